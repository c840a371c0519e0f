"""A2: the critic, where there is one: how much of the returns it explains, and how many of its updates are clipped."""

from __future__ import annotations

from typing import ClassVar

from tocsin.batch.arrays import Ops
from tocsin.batch.contract import Found, OnHost, Scalar
from tocsin.batch.inputs import Settings
from tocsin.batch.moments import Spread
from tocsin.batch.tokens import TokenBlock


class ValueFit:
    """value_explained_variance = 1 - Var(return - value) / Var(return), over response tokens.

    value is the critic's value now (`values`; `old_values` where there are none). 1 is a perfect critic, 0 one that knows no
    more than the mean return, below 0 a harmful one. Mask: under it only. No token, or returns that are all the same: None.
    A NaN or an infinity under the mask makes it NaN.
    """

    name: ClassVar[str] = "value_fit"
    needs: ClassVar[tuple[str, ...]] = ("returns",)
    uses: ClassVar[tuple[str, ...]] = ("values", "old_values")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._returns = Spread(ops)
        self._errors = Spread(ops)
        self._value = "values"

    def add(self, block: TokenBlock) -> None:
        self._value = next((name for name in ("values", "old_values") if block.has(name)), "")
        if self._value:
            self._returns.add(block["returns"])
            self._errors.add(block["returns"] - block[self._value])

    def finish(self) -> Found:
        if not self._value:
            return Found(skipped={self.name: "needs values or old_values"})
        if self._returns.count == 0:
            return Found({"value_explained_variance": None})
        inputs = (self._errors.squares, self._returns.squares, self._returns.max, self._returns.min)
        return Found({"value_explained_variance": OnHost(inputs, _explained, "the returns are all the same")})


def _explained(error: float, total: float, highest: float, lowest: float) -> float | None:
    return 1.0 - error / total if total != 0.0 and highest != lowest else None


class ValueClip:
    """value_clip_ratio: share of response tokens whose value update was clipped, so that their value loss has no gradient.

    The clipped loss takes the larger of (value - return)^2 and (clip(value, old - eps, old + eps) - return)^2, eps being
    `Settings.value_clip`; a token is clipped where the second is larger. A value that moved beyond eps but towards its return
    from the other side is not. Mask: under it only. No token: None. NaN compares as not clipped.
    Source: the value loss of OpenAI baselines' PPO, as verl and TRL have it.
    """

    name: ClassVar[str] = "value_clip"
    needs: ClassVar[tuple[str, ...]] = ("values", "old_values", "returns")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        given = settings.value_clip
        self._epsilon = given if given is not None and given > 0.0 else None
        self._why_none = "the settings name no value_clip" if given is None else "value_clip must be above 0"
        self._tokens = 0
        self._clipped: Scalar = 0

    def add(self, block: TokenBlock) -> None:
        if self._epsilon is None:
            return
        value, old, target = block["values"], block["old_values"], block["returns"]
        moved = value - old
        nearest = old + self._ops.clip(moved, -self._epsilon, self._epsilon)
        self._tokens += block.tokens
        # Within eps `nearest` is the value but for rounding, which must not make it look worse.
        clipped = (abs(moved) > self._epsilon) & (abs(nearest - target) > abs(value - target))
        self._clipped = self._clipped + self._ops.count(clipped)

    def finish(self) -> Found:
        if self._epsilon is None:
            return Found(skipped={"value_clip_ratio": self._why_none})
        return Found({"value_clip_ratio": self._clipped / self._tokens if self._tokens else None})

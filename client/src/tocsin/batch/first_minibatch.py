"""A1: consistency on the first minibatch. No weight has moved yet, so the policy ratio has to be 1 for every token."""

from __future__ import annotations

from typing import ClassVar

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.contract import Found, Scalar
from tocsin.batch.inputs import Settings
from tocsin.batch.tokens import TokenBlock


class FirstMinibatch:
    """The policy ratio rho = exp(clamp(new - old, +-20)) of the responses in `first_minibatch`.

    first_minibatch_clip_ratio      share of their tokens with rho outside [1 - clip_low, 1 + clip_high], whatever the sign of
                                    the advantage: it is not an update that clips here, but a wrong probability. Above 0 is a
                                    bug: two forward passes of the same weights disagree, or old_logprobs are not of them
    first_minibatch_ratio_p99       99th percentile of rho, linear between order statistics

    Mask: under it only. No token in the first minibatch: both None. A NaN makes the percentile NaN and counts as clipped:
    it is a wrong probability.
    """

    name: ClassVar[str] = "first_minibatch"
    needs: ClassVar[tuple[str, ...]] = ("new_logprobs", "old_logprobs", "first_minibatch")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._low = 1.0 - settings.clip_low
        self._high = 1.0 + settings.clip_high
        self._ratios: list[Array] = []
        self._clipped: Scalar = 0

    def add(self, block: TokenBlock) -> None:
        ratio = self._ops.take(block.ratio, block["first_minibatch"])
        if len(ratio):
            self._ratios.append(ratio)
            self._clipped = self._clipped + self._ops.count(~((ratio >= self._low) & (ratio <= self._high)))

    def finish(self) -> Found:
        tokens = sum(len(ratio) for ratio in self._ratios)
        if not tokens:
            return Found({"first_minibatch_clip_ratio": None, "first_minibatch_ratio_p99": None})
        (p99,) = self._ops.quantiles(self._ops.join(self._ratios), (0.99,))
        return Found({"first_minibatch_clip_ratio": self._clipped / tokens, "first_minibatch_ratio_p99": p99})

"""A4: how open the policy still is, by the entropy of its next-token distributions.

Source of the second: high-entropy minority tokens carry most of what RL with verifiable rewards learns (Wang et al. 2025,
"Beyond the 80/20 rule"); the mean can look well while these forks close.
"""

from __future__ import annotations

from typing import ClassVar, Final

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.contract import Found, Scalar
from tocsin.batch.inputs import Settings
from tocsin.batch.tokens import TokenBlock

TOP_PART: Final = 5
"""One in so many positions is among the top: 20 %."""


class Entropy:
    """Nats per token, from the full-vocabulary entropy at each position.

    policy_entropy         mean over response tokens
    policy_entropy_top20   mean over the ceil(n / 5) of the n response tokens of the batch whose entropy is highest: always a
                           fifth of the tokens and at least one, however many of them are 0

    Mask: under it only. No token: None. NaN under the mask makes both NaN (it counts as the highest); +inf makes both infinite.
    Memory: one more copy of the entropies under the mask, and one while their top is looked for.
    """

    name: ClassVar[str] = "entropy"
    needs: ClassVar[tuple[str, ...]] = ("entropy",)

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._parts: list[Array] = []
        self._total: Scalar = 0.0
        self._tokens = 0

    def add(self, block: TokenBlock) -> None:
        self._parts.append(block["entropy"])
        self._total = self._total + self._ops.sum(block["entropy"])
        self._tokens += block.tokens

    def finish(self) -> Found:
        if not self._tokens:
            return Found({"policy_entropy": None, "policy_entropy_top20": None})
        joined = self._ops.join(self._parts) if len(self._parts) > 1 else self._parts[0]
        self._parts.clear()
        size = -(-self._tokens // TOP_PART)
        highest = self._ops.top(joined, size)
        return Found({"policy_entropy": self._total / self._tokens, "policy_entropy_top20": self._ops.sum(highest) / size})

"""A2: the distance from the reference policy, by three estimators that agree while it is small.

d = log pi - log pi_ref of the sampled token, pi the policy being updated (`new_logprobs`; `old_logprobs` where there are none).
Source: Schulman 2020, "Approximating KL divergence".
"""

from __future__ import annotations

from typing import ClassVar

from tocsin.batch.arrays import Ops
from tocsin.batch.contract import Found, Scalar
from tocsin.batch.inputs import Settings
from tocsin.batch.tokens import LOG_CLAMP, TokenBlock


class ReferenceKl:
    """Nats per token, means over response tokens.

    kl_reference_k1   mean d: unbiased, can be negative
    kl_reference_k2   mean d^2 / 2: biased, small variance
    kl_reference_k3   mean exp(-d) + d - 1: unbiased and never negative
    kl_reference      the k3 one, as GRPO puts it into the loss. It is an estimate of KL(pi || pi_ref) from tokens of pi

    Mask: under it only. No token: None. In k3 alone, d below -20 counts as -20, or one token could overflow the mean. NaN under
    the mask makes all of them NaN; an infinite d makes k1 and k2 infinite, and k3 if it is above.
    """

    name: ClassVar[str] = "reference_kl"
    needs: ClassVar[tuple[str, ...]] = ("ref_logprobs",)
    uses: ClassVar[tuple[str, ...]] = ("new_logprobs", "old_logprobs")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._tokens = 0
        self._policy = True
        self._sums: list[Scalar] = [0.0, 0.0, 0.0]

    def add(self, block: TokenBlock) -> None:
        self._policy = block.has("new_logprobs") or block.has("old_logprobs")
        if not self._policy:
            return
        ops = self._ops
        apart = block["new_logprobs" if block.has("new_logprobs") else "old_logprobs"] - block["ref_logprobs"]
        cut = ops.clip(apart, -LOG_CLAMP, None)
        k3 = ops.clip(ops.expm1(-cut) + cut, 0.0, None)  # rounding may go below 0
        self._tokens += block.tokens
        parts = (ops.sum(apart), ops.dot(apart, apart) / 2, ops.sum(k3))
        self._sums = [total + part for total, part in zip(self._sums, parts, strict=True)]

    def finish(self) -> Found:
        if not self._policy:
            return Found(skipped={self.name: "needs new_logprobs or old_logprobs"})
        k1, k2, k3 = (total / self._tokens if self._tokens else None for total in self._sums)
        return Found({"kl_reference_k1": k1, "kl_reference_k2": k2, "kl_reference_k3": k3, "kl_reference": k3})

"""A2: how far the update moves the policy from the one that was old when the batch was made.

rho = exp(clamp(new - old, +-20)) is PPO's ratio of a token, under the mask.
"""

from __future__ import annotations

from typing import ClassVar, Final

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.contract import Found, Scalar, quotient
from tocsin.batch.inputs import Settings
from tocsin.batch.moments import Spread
from tocsin.batch.tokens import LOG_CLAMP, TokenBlock

_LEVELS: Final = {"policy_ratio_p50": 0.5, "policy_ratio_p95": 0.95, "policy_ratio_p99": 0.99}


class PolicyRatio:
    """The distribution of rho over response tokens, and the distance from the old policy.

    policy_ratio_mean, _std, _max, _min     of rho; the deviation is that of the population
    policy_ratio_p50, _p95, _p99            quantiles of rho, linear between order statistics
    log_ratio_clamp_ratio                   share of tokens with |new - old| > 20, which the fuse cut
    kl_old_policy                           nats per token, k1: mean(old - new), without the fuse. An unbiased estimate of
                                            KL(old || new) from tokens of the old policy; can be negative

    Mask: under it only. No token: all None. A NaN under the mask makes all of them NaN but for the share, where it does not
    count as cut; an infinite log ratio is cut to the fuse in rho, counts as cut, and makes kl_old_policy infinite.
    """

    name: ClassVar[str] = "policy_ratio"
    needs: ClassVar[tuple[str, ...]] = ("new_logprobs", "old_logprobs")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._spread = Spread(ops)
        self._ratios: list[Array] = []
        self._cut: Scalar = 0
        self._fallen: Scalar = 0.0

    def add(self, block: TokenBlock) -> None:
        if block.tokens == 0:
            return
        self._spread.add(block.ratio)
        self._ratios.append(block.ratio)
        self._cut = self._cut + self._ops.count(abs(block.log_ratio) > LOG_CLAMP)
        self._fallen = self._fallen - self._ops.sum(block.log_ratio)

    def finish(self) -> Found:
        tokens = self._spread.count
        levels = list(_LEVELS.values())
        quantiles = self._ops.quantiles(self._ops.join(self._ratios), levels) if tokens else [None] * len(levels)
        return Found(
            {
                **self._spread.metrics("policy_ratio"),
                **dict(zip(_LEVELS, quantiles, strict=True)),
                "log_ratio_clamp_ratio": quotient(self._cut, tokens),
                "kl_old_policy": self._fallen / tokens if tokens else None,
            }
        )

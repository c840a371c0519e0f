"""A2: which tokens the clipped surrogate leaves without gradient, kept apart by side and by advantage sign.

The surrogate min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A) has zero gradient in two of the six cases, and only there:

                A > 0                    A < 0
    rho below   passes                   clipped (low)
    rho inside  passes                   passes
    rho above   clipped (high)           passes; with dual clip, clipped where rho > c

rho = exp(clamp(new - old, +-20)). Sources: Schulman et al. 2017 (PPO), Ye et al. 2020 (dual clip), Yu et al. 2025 (DAPO: two
epsilons).
"""

from __future__ import annotations

from typing import ClassVar

from tocsin.batch.arrays import Ops
from tocsin.batch.contract import Found, Scalar, quotient
from tocsin.batch.inputs import Settings
from tocsin.batch.tokens import TokenBlock


class Clipping:
    """Shares of response tokens by what the clip does to them.

    ppo_clip_high_ratio                  rho > 1 + clip_high and A > 0
    ppo_clip_low_ratio                   rho < 1 - clip_low and A < 0
    ppo_clip_ratio                       either of the two
    ppo_dual_clip_ratio                  A < 0 and rho > c; only with a `Settings.dual_clip` above 1
    ppo_clip_high_given_positive_ratio   the high ones, of the tokens with A > 0
    ppo_clip_low_given_negative_ratio    the low ones, of the tokens with A < 0: many low hits may only mean many negatives
    unclipped_update_ratio               A != 0 and none of the three: the tokens that the update comes from

    The bounds themselves are not clipped (strict comparisons, in the type of the logprobs). Mask: under it only. No token:
    None; no token of a sign: its given share is None. A token whose rho or A is NaN is clipped by no side and counts as one
    that the update comes from, for its gradient is NaN and not 0; nonfinite_count tells of it. An infinite rho is cut to e^20.
    """

    name: ClassVar[str] = "clipping"
    needs: ClassVar[tuple[str, ...]] = ("new_logprobs", "old_logprobs", "advantages")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._above = 1.0 + settings.clip_high
        self._below = 1.0 - settings.clip_low
        self._dual = settings.dual_clip if settings.dual_clip is not None and settings.dual_clip > 1.0 else None
        self._why_none = "the settings name no dual_clip" if settings.dual_clip is None else "dual_clip must be above 1"
        self._tokens = 0
        self._high: Scalar = 0
        self._low: Scalar = 0
        self._far: Scalar = 0
        self._positive: Scalar = 0
        self._negative: Scalar = 0
        self._idle: Scalar = 0

    def add(self, block: TokenBlock) -> None:
        count, ratio, advantages = self._ops.count, block.ratio, block["advantages"]
        positive, negative = advantages > 0, advantages < 0
        self._tokens += block.tokens
        self._positive = self._positive + count(positive)
        self._negative = self._negative + count(negative)
        self._idle = self._idle + count(advantages == 0)
        self._high = self._high + count(positive & (ratio > self._above))
        self._low = self._low + count(negative & (ratio < self._below))
        if self._dual is not None:
            self._far = self._far + count(negative & (ratio > self._dual))

    def finish(self) -> Found:
        tokens, clipped = self._tokens, self._high + self._low
        found = Found(
            {
                "ppo_clip_high_ratio": quotient(self._high, tokens),
                "ppo_clip_low_ratio": quotient(self._low, tokens),
                "ppo_clip_ratio": quotient(clipped, tokens),
                "ppo_clip_high_given_positive_ratio": quotient(self._high, self._positive),
                "ppo_clip_low_given_negative_ratio": quotient(self._low, self._negative),
                "unclipped_update_ratio": quotient(tokens - clipped - self._far - self._idle, tokens),
            }
        )
        if self._dual is None:
            found.skipped["ppo_dual_clip_ratio"] = self._why_none
        else:
            found.metrics["ppo_dual_clip_ratio"] = quotient(self._far, tokens)
        return found

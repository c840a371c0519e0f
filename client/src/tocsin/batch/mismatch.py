"""A1: how far the probabilities of the training engine lie from those of the rollout engine, for the same tokens and weights.

a = logprob of the sampled token under the training engine (`old_logprobs`), r = under the rollout engine (`rollout_logprobs`),
l = a - r. With the same weights l is 0 but for rounding; whatever it is more is error of one engine, or weights out of step.
"""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar, Final

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.contract import Found, OnHost, Scalar
from tocsin.batch.inputs import Settings
from tocsin.batch.moments import Spread
from tocsin.batch.tokens import TokenBlock

EXTREME_PROBABILITY: Final = 1e-3
"""Tokens below it are rare ones: engines differ most there, and one of them weighs more than a thousand usual ones."""


class Mismatch:
    """The gap between the engines, token by token.

    rollout_logprob_abs_diff_mean, _std, _max   nats, of |l|; the deviation is that of the population
    rollout_logprob_abs_diff_p99, _p999         nats, quantiles of |l|, linear between order statistics
    rollout_prob_abs_diff_mean, _std, _max      of |exp a - exp r|
    rollout_prob_pearson_correlation            of exp a and exp r; None when one of them is constant
    rollout_kl_k1                               nats per token, mean(-l): an unbiased estimate of KL(rollout || train), as the
                                                tokens are the rollout engine's; can be negative
    rollout_kl_k1_error                         nats per token, std(l) / sqrt(tokens): the standard error of k1
    rollout_kl_k2, rollout_kl_abs               nats per token, mean(l^2 / 2) and mean |l|
    rollout_kl_k3, rollout_kl_k3_max            nats per token, of w - l - 1 with w = exp(clamp(l, +-20)); never negative
    rollout_kl_k1_k3_ratio                      k1 / k3: near 1 for a small true mismatch; beyond 3 or below 1/3 (or negative)
                                                one of the two estimates is invalid, or the gap is a bias; means something only
                                                where k1 is several errors from 0. None when k3 is 0
    mismatch_logit_std                          logits, temperature * sqrt(2 k3): the spread of logit noise that would cause
                                                this KL, comparable across temperatures as KL grows with 1 / T^2
    extreme_token_ratio                         share of tokens with probability < 1e-3 under either engine

    Mask: under it only. No token: all None. A NaN under the mask makes all of them NaN but for the share. A logprob of -inf
    makes the means and maxima of l infinite and their deviations NaN.
    """

    name: ClassVar[str] = "mismatch"
    needs: ClassVar[tuple[str, ...]] = ("old_logprobs", "rollout_logprobs")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._temperature = settings.temperature
        self._abs = Spread(ops)
        self._abs_gaps: list[Array] = []
        self._gaps = Spread(ops)
        self._gap_squares: Scalar = 0.0
        self._k3: Scalar = 0.0
        self._k3_highest: list[Scalar] = []
        self._train = Spread(ops)
        self._rollout = Spread(ops)
        self._abs_apart = Spread(ops)
        self._extreme: Scalar = 0

    def add(self, block: TokenBlock) -> None:
        if block.tokens == 0:
            return
        ops, old, rollout = self._ops, block["old_logprobs"], block["rollout_logprobs"]
        self._abs.add(block.abs_gap)
        self._abs_gaps.append(block.abs_gap)
        self._gaps.add(block.gap)
        self._gap_squares = self._gap_squares + ops.dot(block.gap, block.gap)
        self._k3 = self._k3 + ops.sum(block.k3)
        self._k3_highest.append(ops.max(block.k3))
        train_prob, rollout_prob = ops.exp(old), ops.exp(rollout)
        self._train.add(train_prob)
        self._rollout.add(rollout_prob)
        self._abs_apart.add(abs(train_prob - rollout_prob))
        rare = math.log(EXTREME_PROBABILITY)
        self._extreme = self._extreme + ops.count((old < rare) | (rollout < rare))

    def finish(self) -> Found:
        if not self._abs_gaps:
            return Found(dict.fromkeys(_NAMES))
        ops, tokens = self._ops, self._abs.count
        p99, p999 = ops.quantiles(ops.join(self._abs_gaps), (0.99, 0.999))
        k1, k3 = -self._gaps.centre, self._k3 / tokens
        return Found(
            {
                "rollout_logprob_abs_diff_mean": self._abs.mean,
                "rollout_logprob_abs_diff_std": self._abs.std,
                "rollout_logprob_abs_diff_max": self._abs.max,
                "rollout_logprob_abs_diff_p99": p99,
                "rollout_logprob_abs_diff_p999": p999,
                "rollout_prob_abs_diff_mean": self._abs_apart.mean,
                "rollout_prob_abs_diff_std": self._abs_apart.std,
                "rollout_prob_abs_diff_max": self._abs_apart.max,
                "rollout_prob_pearson_correlation": self._correlation(),
                "rollout_kl_k1": k1,
                "rollout_kl_k1_error": self._gaps.error,
                "rollout_kl_k2": self._gap_squares / (2 * tokens),
                "rollout_kl_abs": self._abs.mean,
                "rollout_kl_k3": k3,
                "rollout_kl_k3_max": ops.max(ops.stack(self._k3_highest)),
                "rollout_kl_k1_k3_ratio": OnHost((k1, k3), _ratio, "rollout_kl_k3 is 0: the engines agree to the last bit"),
                "mismatch_logit_std": OnHost((k3,), partial(_logit_std, self._temperature)),
                "extreme_token_ratio": self._extreme / tokens,
            }
        )

    def _correlation(self) -> OnHost:
        """From the squares of train, rollout and their difference, which keeps 1 - r where sums of products would lose it."""
        spreads = (self._train, self._rollout)
        inputs = [scalar for spread in spreads for scalar in (spread.squares, spread.max, spread.min)]
        size, tokens = self._abs_apart, self._abs_apart.count
        # (sum of d^2) - n mean(d)^2, the squares of d = train - rollout from those of |d|.
        apart = size.squares + tokens * (size.centre**2 - (self._train.centre - self._rollout.centre) ** 2)
        return OnHost((*inputs, apart), _pearson, "the probabilities of one engine are all the same")


_NAMES: Final = (
    "rollout_logprob_abs_diff_mean",
    "rollout_logprob_abs_diff_std",
    "rollout_logprob_abs_diff_max",
    "rollout_logprob_abs_diff_p99",
    "rollout_logprob_abs_diff_p999",
    "rollout_prob_abs_diff_mean",
    "rollout_prob_abs_diff_std",
    "rollout_prob_abs_diff_max",
    "rollout_prob_pearson_correlation",
    "rollout_kl_k1",
    "rollout_kl_k1_error",
    "rollout_kl_k2",
    "rollout_kl_abs",
    "rollout_kl_k3",
    "rollout_kl_k3_max",
    "rollout_kl_k1_k3_ratio",
    "mismatch_logit_std",
    "extreme_token_ratio",
)


def _pearson(
    train: float, train_max: float, train_min: float, rollout: float, rollout_max: float, rollout_min: float, apart: float
) -> float | None:
    if train_max == train_min or rollout_max == rollout_min:
        return None
    return max(-1.0, min(1.0, (train + rollout - apart) / (2.0 * math.sqrt(train) * math.sqrt(rollout))))


def _ratio(k1: float, k3: float) -> float | None:
    return k1 / k3 if k3 else None


def _logit_std(temperature: float, k3: float) -> float:
    return temperature * math.sqrt(2.0 * k3)


class Perplexity:
    """The gap between the engines, response by response: d_i = mean_t r - mean_t a, the log of the ratio of perplexities.

    rollout_log_ppl_diff, _max, _min    nats, mean, maximum and minimum over responses of d_i: a gap with one sign shows here
    rollout_log_ppl_abs_diff            nats, mean over responses of |d_i|
    ppl_ratio                           mean over responses of exp(d_i)
    training_ppl, rollout_ppl           mean over responses of exp(-mean_t a), exp(-mean_t r)
    training_log_ppl, rollout_log_ppl   nats, mean over responses of -mean_t a, -mean_t r

    Mask: means over the tokens under it; responses without any token are left out. No token: all None. A NaN makes all NaN,
    a logprob of -inf makes its response's perplexity infinite.
    """

    name: ClassVar[str] = "perplexity"
    needs: ClassVar[tuple[str, ...]] = ("old_logprobs", "rollout_logprobs")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._old: list[Array] = []
        self._rollout: list[Array] = []
        self._filled: list[Array] = []
        self._tokens = 0

    def add(self, block: TokenBlock) -> None:
        self._old.append(block.mean_per_row(block["old_logprobs"]))
        self._rollout.append(block.mean_per_row(block["rollout_logprobs"]))
        self._filled.append(block.filled)
        self._tokens += block.tokens

    def finish(self) -> Found:
        if not self._tokens:
            return Found(dict.fromkeys(_PPL_NAMES))
        ops = self._ops
        filled = ops.join(self._filled)
        old, rollout = ops.take(ops.join(self._old), filled), ops.take(ops.join(self._rollout), filled)
        apart = rollout - old
        found = (
            _mean(ops, apart),
            ops.max(apart),
            ops.min(apart),
            _mean(ops, abs(apart)),
            _mean(ops, ops.exp(apart)),
            _mean(ops, ops.exp(-old)),
            _mean(ops, ops.exp(-rollout)),
            _mean(ops, -old),
            _mean(ops, -rollout),
        )
        return Found(dict(zip(_PPL_NAMES, found, strict=True)))


_PPL_NAMES: Final = (
    "rollout_log_ppl_diff",
    "rollout_log_ppl_diff_max",
    "rollout_log_ppl_diff_min",
    "rollout_log_ppl_abs_diff",
    "ppl_ratio",
    "training_ppl",
    "rollout_ppl",
    "training_log_ppl",
    "rollout_log_ppl",
)


def _mean(ops: Ops, x: Array) -> Scalar:
    return ops.sum(x) / len(x)

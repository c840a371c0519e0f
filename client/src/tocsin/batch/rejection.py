"""A1: rejection rules: which tokens or responses are masked because the engines disagree on them too much.

An option is a level and an estimator of the gap, l = old - rollout logprob: k1 = -l, k2 = l^2 / 2, k3 = w - l - 1.
"token" judges each token; "seq_sum", "seq_mean" and "seq_max" judge a response by the sum, mean or maximum over its tokens.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.contract import Found, Scalar
from tocsin.batch.importance import usable
from tocsin.batch.inputs import Batch, Bounds, Settings
from tocsin.batch.moments import Spread
from tocsin.batch.row_stats import row_metrics, share, weighted
from tocsin.batch.tokens import TokenBlock

OPTIONS: Final = (
    "token_k1",
    "token_k2",
    "token_k3",
    "seq_sum_k1",
    "seq_sum_k2",
    "seq_sum_k3",
    "seq_mean_k1",
    "seq_mean_k2",
    "seq_mean_k3",
    "seq_max_k2",
    "seq_max_k3",
)
"""What may be in `Settings.rejection`."""
ALL: Final = "all"
"""The label of what all rules in use mask together."""


def limits(option: str, bounds: Bounds) -> tuple[float, float]:
    """The interval in which the option's statistic is accepted, ends included.

    The bounds of k1 are of the ratio pi_rollout / pi_train, so their logarithms are taken, and an upper bound alone stands for
    (1 / upper, upper). Those of k2 and k3 are of the statistic. Raises ValueError for an unknown option or senseless bounds.
    """
    if option not in OPTIONS:
        raise ValueError(f"unknown rejection option {option!r}; there are {', '.join(OPTIONS)}")
    try:
        lower, upper = (None if bound is None else float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds of {option} are {bounds!r}, expected (lower, upper), numbers or None") from error
    if option.endswith("k1"):
        if any(bound is not None and not bound > 0 for bound in (lower, upper)):
            raise ValueError(f"bounds of {option} are {bounds!r}, expected ratios above 0")
        if upper is not None:
            lower = 1.0 / upper if lower is None else lower
        lower, upper = (None if bound is None else math.log(bound) for bound in (lower, upper))
    low, high = -math.inf if lower is None else lower, math.inf if upper is None else upper
    if not low <= high:
        raise ValueError(f"bounds of {option} are {bounds!r}: nothing lies between them")
    return low, high


@dataclass(frozen=True)
class Rule:
    """One option in use."""

    option: str
    low: float
    high: float

    @property
    def per_token(self) -> bool:
        """Whether it judges tokens; else responses."""
        return self.option.startswith("token")

    def statistic(self, block: TokenBlock) -> Array:
        """[n] for a rule that judges tokens, else [rows] (of a response without tokens: no meaning)."""
        level, _, estimator = self.option.rpartition("_")
        x = _estimates(block, estimator)
        if level == "token":
            return x
        if level == "seq_max":
            return block.ops.segment_max(x, block.counts)
        return block.mean_per_row(x) if level == "seq_mean" else block.ops.segment_sum(x, block.counts)

    def keeps(self, statistic: Array) -> Array:
        """Which are accepted; NaN is not."""
        return (statistic >= self.low) & (statistic <= self.high)


def _estimates(block: TokenBlock, estimator: str) -> Array:
    if estimator == "k1":
        return -block.gap
    return block.gap * block.gap * 0.5 if estimator == "k2" else block.k3


def rules_of(rejection: Mapping[str, Bounds]) -> list[Rule]:
    """The rules in the order given. Raises ValueError as `limits` does."""
    return [Rule(option, *limits(option, bounds)) for option, bounds in rejection.items()]


def kept_tokens(block: TokenBlock, rules: list[Rule], statistics: list[Array]) -> Array:
    """[n], bool: tokens that every one of these rules (one at least) accepts, with the statistic of each.

    A rule over responses accepts or masks all tokens of one.
    """
    accepted = [
        rule.keeps(statistic) if rule.per_token else block.ops.repeat(rule.keeps(statistic), block.counts, block.tokens)
        for rule, statistic in zip(rules, statistics, strict=True)
    ]
    return functools.reduce(operator.and_, accepted)


@np.errstate(all="ignore")
def rejection_mask(
    old_logprobs: Any, rollout_logprobs: Any, mask: Any = None, *, lengths: Any = None, rejection: Mapping[str, Bounds]
) -> Any:
    """The mask that is left after these rules: bool, in the shape of the logprobs ([B, T], or packed [N] with lengths).

    Raises ValueError for arrays that do not fit each other, no rule, an unknown option or bounds without sense.
    """
    rules = rules_of(rejection)
    if not rules:
        raise ValueError("rejection is empty, expected at least one option")
    checked = usable(Batch(old_logprobs=old_logprobs, rollout_logprobs=rollout_logprobs, mask=mask, lengths=lengths))
    kept = [kept_tokens(block, rules, [rule.statistic(block) for rule in rules]) for block in checked.tokens.blocks()]
    if not kept:
        return checked.tokens.laid(checked.ops.flags(checked.tokens.arrays["old_logprobs"]).reshape(-1))
    return checked.tokens.laid(checked.ops.join(kept))


class Rejection:
    """What the rejection rules of `Settings.rejection` do to the batch. Every metric is labelled by option.

    rejection_mean, _max, _min, _std            of the option's statistic over response tokens (a response's statistic counts
                                                once per token); the deviation is that of the population, of values cut to the
                                                bounds. All but _std raw
    rejection_above_ratio, _below_ratio         share of tokens (token options) or responses with the statistic beyond a bound
    rejection_seq_mean, _std, _max, _min        over responses: of the mean over its tokens (token options), or of the
                                                response's statistic; the deviation is divided by n - 1
    rejection_seq_max_deviation                 maximum over responses of the absolute value of the same
    rejection_seq_above_ratio, _below_ratio     share of responses with the same beyond a bound
    rejection_masked_token_ratio                share of tokens that the option masks; label "all": that any of them masks
    rejection_masked_sequence_ratio             share of responses of which it masks at least one token; "all" likewise

    Mask: under it only; responses without any token are left out. No token: all None. NaN is masked; it is on neither side of
    the bounds and gives NaN in the other statistics. No option in use: nothing. An option without sense is told in `skipped`.
    """

    name: ClassVar[str] = "rejection"
    needs: ClassVar[tuple[str, ...]] = ("old_logprobs", "rollout_logprobs")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._rules: list[Rule] = []
        self._skipped: dict[str, str] = {}
        for option, bounds in settings.rejection.items():
            try:
                self._rules.append(Rule(option, *limits(option, bounds)))
            except ValueError as error:
                self._skipped[f"rejection[{option}]"] = str(error)
        self._tallies = {
            rule.option: _TokenTally(ops, rule) if rule.per_token else _RowTally(ops, rule) for rule in self._rules
        }
        self._masked: Scalar = 0
        self._touched: Scalar = 0
        self._tokens = 0
        self._filled: Scalar = 0

    def add(self, block: TokenBlock) -> None:
        if not self._rules or block.tokens == 0:
            return
        ops = self._ops
        statistics = [rule.statistic(block) for rule in self._rules]
        for rule, statistic in zip(self._rules, statistics, strict=True):
            self._tallies[rule.option].add(block, statistic)
        masked = ~kept_tokens(block, self._rules, statistics)
        self._masked = self._masked + ops.count(masked)
        self._touched = self._touched + ops.count(ops.segment_sum(ops.floats(masked), block.counts) > 0)
        self._filled = self._filled + ops.count(block.filled)
        self._tokens += block.tokens

    def finish(self) -> Found:
        metrics: dict[str, dict[str, Scalar]] = {name: {} for name in NAMES} if self._rules else {}
        for option, tally in self._tallies.items():
            found = tally.finish() if self._tokens else {}
            for name in NAMES:
                metrics[name][option] = found.get(name)
        if self._rules:
            tokens, responses = self._tokens, self._filled
            metrics["rejection_masked_token_ratio"][ALL] = self._masked / tokens if tokens else None
            metrics["rejection_masked_sequence_ratio"][ALL] = self._touched / responses if tokens else None
        elif not self._skipped:
            return Found(skipped={self.name: "no option in Settings.rejection"})
        return Found(dict(metrics), self._skipped)


class _TokenTally:
    """One rule that judges tokens."""

    def __init__(self, ops: Ops, rule: Rule) -> None:
        self._ops = ops
        self._rule = rule
        self._spread = Spread(ops)
        self._cut = Spread(ops)
        self._above: Scalar = 0
        self._below: Scalar = 0
        self._masked: Scalar = 0
        self._means: list[Array] = []
        self._touched: list[Array] = []

    def add(self, block: TokenBlock, x: Array) -> None:
        ops, rule = self._ops, self._rule
        self._spread.add(x)
        self._cut.add(ops.clip(x, rule.low, rule.high))
        self._above = self._above + ops.count(x > rule.high)
        self._below = self._below + ops.count(x < rule.low)
        masked = ~rule.keeps(x)
        self._masked = self._masked + ops.count(masked)
        self._means.append(ops.take(block.mean_per_row(x), block.filled))
        self._touched.append(ops.take(ops.segment_sum(ops.floats(masked), block.counts) > 0, block.filled))

    def finish(self) -> dict[str, Scalar]:
        ops, tokens = self._ops, self._spread.count
        touched = ops.join(self._touched)
        return {
            **self._spread.metrics("rejection"),
            "rejection_std": self._cut.std,
            "rejection_above_ratio": self._above / tokens,
            "rejection_below_ratio": self._below / tokens,
            "rejection_masked_token_ratio": self._masked / tokens,
            "rejection_masked_sequence_ratio": share(ops, touched, len(touched)),
            **_over_responses(ops, self._rule, ops.join(self._means)),
        }


class _RowTally:
    """One rule that judges responses."""

    def __init__(self, ops: Ops, rule: Rule) -> None:
        self._ops = ops
        self._rule = rule
        self._statistics: list[Array] = []
        self._counts: list[Array] = []

    def add(self, block: TokenBlock, x: Array) -> None:
        self._statistics.append(self._ops.take(x, block.filled))
        self._counts.append(self._ops.take(block.counts, block.filled))

    def finish(self) -> dict[str, Scalar]:
        ops, rule = self._ops, self._rule
        x, counts = ops.join(self._statistics), ops.join(self._counts)
        tokens = ops.sum(counts)
        masked = ~rule.keeps(x)
        return {
            "rejection_mean": ops.dot(x, counts) / tokens,
            "rejection_std": weighted(ops, ops.clip(x, rule.low, rule.high), counts, tokens).std,
            "rejection_max": ops.max(x),
            "rejection_min": ops.min(x),
            "rejection_above_ratio": share(ops, x > rule.high, len(x)),
            "rejection_below_ratio": share(ops, x < rule.low, len(x)),
            "rejection_masked_token_ratio": ops.dot(ops.floats(masked), counts) / tokens,
            "rejection_masked_sequence_ratio": share(ops, masked, len(x)),
            **_over_responses(ops, rule, x),
        }


def _over_responses(ops: Ops, rule: Rule, x: Array) -> dict[str, Scalar]:
    return {
        **row_metrics(ops, "rejection_seq", x),
        "rejection_seq_max_deviation": ops.max(abs(x)),
        "rejection_seq_above_ratio": share(ops, x > rule.high, len(x)),
        "rejection_seq_below_ratio": share(ops, x < rule.low, len(x)),
    }


NAMES: Final = (
    "rejection_mean",
    "rejection_std",
    "rejection_max",
    "rejection_min",
    "rejection_above_ratio",
    "rejection_below_ratio",
    "rejection_masked_token_ratio",
    "rejection_masked_sequence_ratio",
    "rejection_seq_mean",
    "rejection_seq_std",
    "rejection_seq_max",
    "rejection_seq_min",
    "rejection_seq_max_deviation",
    "rejection_seq_above_ratio",
    "rejection_seq_below_ratio",
)
"""Every metric of this measure; the label is the option."""

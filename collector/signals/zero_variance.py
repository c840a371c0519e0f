"""B2: how many groups without reward variance are to be expected, and how many more there are.

For a group of size G of a prompt with k earlier successes in n tries (earlier visits fading by half per visit), under a
Beta(alpha, beta) prior over prompts that is fitted to the run's earlier groups:

    a = alpha + k, b = beta + n - k
    q = [B(a + G, b) + B(a, b + G)] / B(a, b)        all correct, plus all wrong

    expected = mean q                                share of groups, 0..1
    excess   = observed - expected
    z        = excess / sqrt(sum q(1 - q) / P^2 + 0.05^2)

The prior and the histories come from earlier records only, and not from records at which a `zero_variance_*` series breaches.
Seen and unseen prompts are reported apart: an excess on seen ones points at the verifier or the training, one on
unseen ones only at the data. Without success counts the expectation is calibrated on the run's own earlier ratios, and `proxy`.

Masks, gaps: groups without a success count are left out; a row without any gives no value. Non-finite ratios are left out of
the calibration. Source: docs/signals/zero_variance.md.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress
from operator import add, mul
from typing import Any, Final, cast

from collector.catalogue import Metric
from collector.signals.beta import after_histories, compare
from collector.signals.prompts import UNSEEN, PromptHistory, digests_of
from collector.signals.protocol import Block, Derived, Row, RunState, Signal
from collector.signals.zero_variance_proxy import RatioHistory
from tocsin import wire

FADE: Final = 0.95
"""Weight of the groups of one record against those of the record after it, in the fit of the prior."""
MIN_GROUPS: Final = 16.0
"""Groups (faded) that the prior is fitted to at least."""
MIN_SPREAD, MAX_SPREAD = 0.02, 0.95
"""Bounds of 1 / (alpha + beta + 1): prompts neither all alike nor all decided."""

METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "zero_variance_expected",
        "ratio",
        "share of groups with zero reward variance to be expected from difficulty and group size",
    ),
    Metric("zero_variance_excess", "ratio", "observed minus expected share of groups with zero reward variance"),
    Metric("zero_variance_z", "1", "zero_variance_excess in standard deviations of the expectation"),
    *(
        Metric(f"zero_variance_{what}_{part}", unit, f"{text}, {meaning}")
        for part, meaning in (
            ("seen", "prompts with a history in this run"),
            ("unseen", "prompts without a history in this run"),
            ("all_correct", "groups with every response correct"),
            ("all_wrong", "groups with every response wrong"),
            ("all_wrong_seen", "all-wrong groups of prompts with a history in this run"),
        )
        for what, unit, text in (
            ("expected", "ratio", "expected share"),
            ("excess", "ratio", "observed minus expected share"),
            ("z", "1", "excess in standard deviations"),
        )
    ),
)
_BLOCKS: Final = {
    part: Block(*(f"zero_variance_{what}{part and '_'}{part}" for what in ("expected", "excess", "z")))
    for part in ("", "seen", "unseen", "all_correct", "all_wrong", "all_wrong_seen")
}


class ZeroVariance(Signal):
    """Prior, prompt histories, and the last record's groups, learnt from once it is known that they did not breach."""

    def __init__(self, prompts: PromptHistory | None = None) -> None:
        self._prompts = PromptHistory() if prompts is None else prompts
        # Faded sums over earlier groups: their number, sum k/G, and sum k(k-1)/(G(G-1)). The last two are unbiased for the
        # first two moments of the prompts' success rate whatever G is, so a change of the group size needs no new fit.
        self._count = self._first = self._second = 0.0
        self._pending: tuple[int, list[int], list[int]] | None = None
        self._places: list[int] = []
        """Where the prompts of the pending groups are among the histories; found again if this is empty."""
        self._ratios = RatioHistory()
        self._counts_seen = False

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        groups = row.groups
        if groups is not None and groups.success and groups.success.count(None) < len(groups.success):
            self._counts_seen = True
            self._from_counts(groups, derived)
        elif not self._counts_seen and ("zero_variance_group_ratio" in run.arrived or groups is not None):
            self._ratios.update(run, groups, derived)

    def _from_counts(self, groups: wire.Groups, derived: Derived) -> None:
        self._learn()
        digests, successes = _counted(groups)
        self._pending = (groups.size, digests, successes)
        self._places = self._prompts.find(digests)
        prior = self.prior()
        if prior is not None and groups.size > 1:
            histories = self._prompts.histories(self._places)
            _compare(groups.size, successes, histories, prior, derived)

    def prior(self) -> tuple[float, float] | None:
        """(alpha, beta) fitted to the earlier groups by moments; None before there are enough of them."""
        if self._count < MIN_GROUPS:
            return None
        mean = min(max(self._first / self._count, 0.01), 0.99)
        variance = self._second / self._count - mean * mean
        spread = min(max(variance / (mean * (1.0 - mean)), MIN_SPREAD), MAX_SPREAD)
        strength = 1.0 / spread - 1.0
        return mean * strength, (1.0 - mean) * strength

    def _learn(self) -> None:
        """Take in the groups of the record before: they are earlier ones now, and they did not breach."""
        if self._pending is None:
            return
        size, digests, successes = self._pending
        self._pending = None
        self._prompts.visit(digests, successes, size, self._places)
        if size > 1:  # a single response says nothing about the spread
            self._count = self._count * FADE + len(successes)
            won = sum(successes)
            self._first = self._first * FADE + won / size
            self._second = self._second * FADE + (sum(map(mul, successes, successes)) - won) / (size * (size - 1))

    def cut(self, step: int) -> None:
        self._ratios.cut()

    def phase_changed(self, changed: Collection[str]) -> None:
        """New data, new difficulty: the prior is fitted anew. A new group size is in the formula already."""
        if any("data" in key or key in ("phase", "curriculum") for key in changed):
            self._learn()
            self._count = self._first = self._second = 0.0
            self._ratios = RatioHistory()

    def breaching(self, keys: Collection[str]) -> None:
        if any(key.startswith("zero_variance_") for key in keys):
            self._pending = None
            self._ratios.breaching()

    def dump(self) -> Any:
        moments = [self._count, self._first, self._second]
        return [self._prompts.dump(), moments, self._pending, self._counts_seen, self._ratios.dump()]

    def load(self, state: Any) -> None:
        prompts, moments, pending, self._counts_seen, ratios = state
        self._prompts.load(prompts)
        self._count, self._first, self._second = moments
        self._pending = None if pending is None else (pending[0], pending[1], pending[2])
        self._places = []
        self._ratios.load(ratios)


def _counted(groups: wire.Groups) -> tuple[list[int], list[int]]:
    """Digests and success counts of the groups that have a count."""
    counts = groups.success
    if None not in counts:
        return digests_of(groups.prompt), cast(list[int], counts)
    prompts = [prompt for prompt, k in zip(groups.prompt, counts, strict=True) if k is not None]
    return digests_of(prompts), [k for k in counts if k is not None]


def _compare(
    size: int, successes: list[int], histories: list[tuple[float, float]], prior: tuple[float, float], derived: Derived
) -> None:
    """What each part of the groups shows against what it lets expect."""
    rights, wrongs = after_histories(size, *prior, histories)
    flats = list(map(add, rights, wrongs))
    spreads = [q * (1.0 - q) for q in flats]
    wrong_spreads = [q * (1.0 - q) for q in wrongs]
    groups, right, wrong = len(histories), successes.count(size), successes.count(0)
    seen_groups = groups - histories.count(UNSEEN)
    if seen_groups == groups:
        unseen_q = unseen_v = 0.0
        seen_right, seen_wrong = right, wrong
        seen_q, seen_v, wrong_seen_q, wrong_seen_v = sum(flats), sum(spreads), sum(wrongs), sum(wrong_spreads)
    else:
        seen = [tries > 0.0 for _, tries in histories]
        unseen = [not had for had in seen]
        unseen_q, unseen_v = sum(compress(flats, unseen)), sum(compress(spreads, unseen))
        met = list(compress(successes, seen))
        seen_right, seen_wrong = met.count(size), met.count(0)
        seen_q, seen_v = sum(compress(flats, seen)), sum(compress(spreads, seen))
        wrong_seen_q, wrong_seen_v = sum(compress(wrongs, seen)), sum(compress(wrong_spreads, seen))
    _tell(derived, "", groups, right + wrong, seen_q + unseen_q, seen_v + unseen_v)
    _tell(derived, "seen", seen_groups, seen_right + seen_wrong, seen_q, seen_v)
    _tell(derived, "unseen", groups - seen_groups, right + wrong - seen_right - seen_wrong, unseen_q, unseen_v)
    _tell(derived, "all_correct", groups, right, sum(rights), sum([q * (1.0 - q) for q in rights]))
    _tell(derived, "all_wrong", groups, wrong, sum(wrongs), sum(wrong_spreads))
    _tell(derived, "all_wrong_seen", seen_groups, seen_wrong, wrong_seen_q, wrong_seen_v)


def _tell(derived: Derived, part: str, groups: int, observed: int, expected: float, variance: float) -> None:
    """Expected share, excess and z of one part of the groups, from its sums; nothing for an empty part."""
    if groups:
        derived.blocks.append(_BLOCKS[part])
        derived.values += compare(observed / groups, expected / groups, variance / (groups * groups))

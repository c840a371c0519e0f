"""B5: is the policy losing its diversity, and what kind of loss is it?

    policy_entropy_slope         least-squares slope of policy_entropy over the last 20 records (8 finite ones at least), nats
                                 per record
    policy_entropy_slope_ratio   its fall as a share of itself, -slope / mean of the 20, over the same of the run's beginning
                                 (20 records after a warm-up of 5; 0.5 % per record at least): 1 = as then, 0 or less = no fall
    policy_entropy_records_left  records until it reaches 0.05 nats if it goes on as in the last 20, by the line or the
                                 exponential, whichever explains more of the variance; 10,000 at most, and where it does
                                 not fall (the line explains less than a quarter)
    sharpening_without_reach     1 while correct_ratio rises and group_pass_ratio falls: solved prompts get surer, others are
                                 lost
    healthy_compression          1 while entropy is under half its baseline and retrieval is far above chance
    template_collapse            1 while entropy is at least 0.8 of its baseline and retrieval is near chance: varied words, one
                                 answer

Entropy decays multiplicatively, hence the exponential and the share of itself. Rising and falling are a Mann-Kendall z beyond
2 over 20 records. Far above chance is more than half of the way from chance to 1; near is less than a tenth; both by means of 3
records. Values that are not finite are left out, and the others close ranks; the exponential is tried where all are above 0.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite, log
from typing import Any, Final

from collector.catalogue import Metric
from collector.series import window
from collector.signals.protocol import Block, Derived, Row, RunState, Signal
from collector.signals.trend import LEAST, Trend, explained, level, line

ENTROPY: Final = "policy_entropy"
CORRECT: Final = "correct_ratio"
REACH: Final = "group_pass_ratio"
RETRIEVAL: Final = "retrieval_accuracy"
CHANCE: Final = "retrieval_chance"
WINDOW: Final = 20
WARM_UP: Final = 5
FLOOR: Final = 0.05
"""Nats per token: a policy that hardly chooses any more."""
FAR: Final = 10_000.0
"""Records: as good as never."""
SLOWEST: Final = 0.005
"""Share of the mean per record: an early fall slower than this is none, and nothing to measure by."""
CLEAR: Final = 0.25
"""Share of the variance that a line must explain to be a fall and no noise: p = 2 % with 20 values."""
SURE: Final = 2.0
_LOG_FLOOR: Final = log(FLOOR)

METRICS: Final[tuple[Metric, ...]] = (
    Metric("policy_entropy_slope", "nats per token", "least-squares slope of policy_entropy over 20 records, per record"),
    Metric(
        "policy_entropy_slope_ratio", "1", "relative fall of policy_entropy per record over that of the run's first records"
    ),
    Metric("policy_entropy_records_left", "count", "records until policy_entropy is 0.05 nats if it falls on; 10,000 at most"),
    Metric("sharpening_without_reach", "1", "1 while correct_ratio rises and group_pass_ratio falls, else 0"),
    Metric("healthy_compression", "1", "1 while entropy is low and responses still tell their prompt, else 0"),
    Metric("template_collapse", "1", "1 while entropy is normal and responses no longer tell their prompt, else 0"),
)
_FALL: Final = Block("policy_entropy_slope", "policy_entropy_records_left")
_RATIO: Final = Block("policy_entropy_slope_ratio")
_REACH: Final = Block("sharpening_without_reach")
_KIND: Final = Block("healthy_compression", "template_collapse")


class Diversity(Signal):
    """How the entropy fell at the beginning of the run; everything else follows from the stored samples."""

    def __init__(self) -> None:
        self._first: list[float] = []
        """The entropies that the early fall is fitted to, until it is."""
        self._early = 0.0
        """Share of the mean per record; 0 until it is known."""
        self._correct = Trend(CORRECT, WINDOW, LEAST)
        self._reach = Trend(REACH, WINDOW, LEAST)

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        arrived = run.arrived
        if ENTROPY in arrived:
            self._entropy(run, row, derived)
        if REACH in run.series:
            self._correct.follow(run, row)
            self._reach.follow(run, row)
            if CORRECT in arrived or REACH in arrived:
                correct, reach = self._correct.z(run, row), self._reach.z(run, row)
                if correct is not None and reach is not None:
                    derived.add_one(_REACH, float(correct > SURE and reach < -SURE))
        if RETRIEVAL in run.series and (ENTROPY in arrived or RETRIEVAL in arrived):
            _kind(run, derived)

    def _entropy(self, run: RunState, row: Row, derived: Derived) -> None:
        series = run.series[ENTROPY]
        if self._early == 0.0 and not row.late and run.record > WARM_UP:
            self._learn(series.values[-1])
        fit = line(window(series, run.step, WINDOW) if row.late else series.values[-WINDOW:])
        if fit is None:
            return
        slope, mean, values = fit
        derived.blocks.append(_FALL)
        derived.values += (slope, _records_left(slope, mean, values))
        if self._early > 0.0 and mean > 0.0:
            derived.blocks.append(_RATIO)
            derived.values.append(-slope / mean / self._early)

    def _learn(self, value: float) -> None:
        if not isfinite(value):
            return
        self._first.append(value)
        if len(self._first) == WINDOW:
            fit = line(self._first)
            self._first = []
            if fit is not None and fit[1] > 0.0:
                self._early = max(-fit[0] / fit[1], SLOWEST)

    def cut(self, step: int) -> None:
        """What was learnt of the run's beginning stays."""
        self._correct.forget()
        self._reach.forget()

    def phase_changed(self, changed: Collection[str]) -> None:
        """A new phase has no beginning of its own: the first one stays the measure."""

    def breaching(self, keys: Collection[str]) -> None:
        """The early fall is a description of the beginning, good or bad."""

    def dump(self) -> Any:
        return [self._first, self._early]

    def load(self, state: Any) -> None:
        self._first, self._early = state
        self.cut(0)


def _records_left(slope: float, mean: float, values: list[float]) -> float:
    """Until the floor, by the better of the two fits to finite values."""
    ahead = (len(values) - 1) / 2.0  # from the middle of the window, where the line is at the mean, to the newest value
    now = mean + slope * ahead
    if now <= FLOOR:
        return 0.0
    if slope >= 0.0 or (by_line := explained(slope, mean, values)) < CLEAR:
        return FAR
    if min(values) > 0.0 and (curve := line([log(value) for value in values])) is not None:
        decay, log_mean, logs = curve
        if decay < 0.0 and explained(decay, log_mean, logs) > by_line:
            return min(max(0.0, (_LOG_FLOOR - log_mean) / decay - ahead), FAR)
    return min((FLOOR - now) / slope, FAR)


def _kind(run: RunState, derived: Derived) -> None:
    baseline, series = run.baselines.get(ENTROPY), run.series
    if baseline is None or CHANCE not in series or ENTROPY not in series:
        return
    entropy, accuracy, chance = (level(series[name], run.step, 3) for name in (ENTROPY, RETRIEVAL, CHANCE))
    if entropy is None or accuracy is None or chance is None or not chance < 1.0:
        return
    told = (accuracy - chance) / (1.0 - chance)
    compressed = entropy < 0.5 * baseline.centre and told > 0.5
    derived.add(_KIND, float(compressed), float(entropy >= 0.8 * baseline.centre and told < 0.1))

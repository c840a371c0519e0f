"""B9: how a run lives: its rhythm, resumes, metrics that vanish, freeze or are no numbers any more.

All values belong to the step of the row that brings them. What can be judged only once a step is complete (which keys it had)
is told at the first row of the step after it.

    record_gap_seconds         event time since the record before; not across a resume
    record_gap_median          median of the last 64 gaps
    stall_after                max(5 * record_gap_median, 600 s): longer silence is a stall (needs two records)
    resumed                    1 at the first record of a further attempt, else 0
    nonfinite_metric_count     core training metrics that are NaN or infinite
    vanished_metric_count      metrics that the run used to log and does not log any more
    key_set_change_count       metrics by which the last complete step differs from the one before it
    constant_metric_count      metrics that must move and were exactly the same for 20 records
    client_dropped_records     records that the client says it dropped
    run_failed                 1 when the attempt ended as `failed`, 0 from the next attempt on
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection
from math import isfinite
from typing import Any, Final

from collector.catalogue import Metric
from collector.signals.baseline import median
from collector.signals.protocol import Block, Derived, Row, RunState, Signal

GAPS: Final = 64
STALL_GAPS: Final = 5.0
STALL_FLOOR: Final = 600.0
VANISHED_AFTER: Final = 5
"""Records without a metric before it counts as vanished; 3 times its own longest absence where that is more."""
VANISHED_ESTABLISHED: Final = 5
"""Samples that a metric needs before its absence means anything."""
CONSTANT_AFTER: Final = 20

MUST_MOVE: Final = (
    "grad_norm",
    "policy_entropy",
    "reward_mean",
    "rollout_logprob_abs_diff_mean",
)
"""Real-valued results of a whole batch: equal to the last bit over many records means that nothing moves or computes them.
Not among them: losses (0 in a sound on-policy GRPO step) and lengths (the limit, when all responses reach it)."""

CORE: Final = (
    "grad_norm",
    "policy_loss",
    "critic_loss",
    "nll_loss",
    "mtp_loss",
    "kl_",
    "rollout_kl_",
    "policy_ratio_",
    "rollout_logprob_abs_diff_",
    "ess_ratio",
    "is_weight_",
    "chi2_",
    "policy_entropy",
    "reward_",
    "advantage_",
    "param_update_ratio",
    "first_minibatch_",
    "value_explained_variance",
)
"""Beginnings of the names of metrics that are numbers in every sound step. Not among them: those that are NaN when a set is
empty (correlations, lengths by correctness, evaluation)."""
_DERIVED: Final = ("_spike_ratio", "_spike_sigmas", "_spike_records")

METRICS: Final[tuple[Metric, ...]] = (
    Metric("record_gap_seconds", "seconds", "event time between this record and the one before"),
    Metric("record_gap_median", "seconds", "median of the last 64 gaps between records"),
    Metric("stall_after", "seconds", "silence that counts as a stall: max(5 * median gap, 600)"),
    Metric("resumed", "1", "1 at the first record of a further attempt, else 0"),
    Metric("nonfinite_metric_count", "count", "core training metrics that are NaN or infinite"),
    Metric("vanished_metric_count", "count", "metrics that the run used to log and does not any more"),
    Metric("key_set_change_count", "count", "metrics by which the last complete step differs from the one before"),
    Metric("constant_metric_count", "count", "metrics that must move and were equal for 20 records"),
    Metric("client_dropped_records", "count", "records that the client had to drop since its start"),
    Metric("run_failed", "1", "1 when the attempt ended as failed, 0 from the next attempt on"),
)

_GAP: Final = Block("record_gap_seconds")
_RHYTHM: Final = Block("record_gap_median", "stall_after")
_COUNTS: Final = Block(
    "resumed",
    "nonfinite_metric_count",
    "vanished_metric_count",
    "key_set_change_count",
    "constant_metric_count",
    "client_dropped_records",
)
_NONFINITE: Final = Block("nonfinite_metric_count")
_FAILED: Final = Block("run_failed")


class _Still:
    """How long a metric has been exactly the same."""

    __slots__ = ("records", "value")

    def __init__(self, value: float, records: int) -> None:
        self.value = value
        self.records = records


class LifeCycle(Signal):
    """The rhythm of a run and the bookkeeping of its keys; bounded by the number of its series."""

    def __init__(self) -> None:
        self.stall_after: float | None = None
        self.failed = False
        self.nonfinite: tuple[str, ...] = ()
        self.vanished: tuple[str, ...] = ()
        self.constant: tuple[str, ...] = ()
        self._gaps: list[float] = []
        self._ordered: list[float] = []
        self._gap_median = 0.0
        self._last_time: float | None = None
        self._present: frozenset[str] = frozenset()
        """Keys of the newest step so far, and of the complete one before it."""
        self._before: frozenset[str] | None = None
        self._absent: dict[str, int] = {}
        """Record number since which a key is missing."""
        self._longest: dict[str, int] = {}
        """Longest absence of a key that came back, in records."""
        self._change = 0
        self._carried: set[str] = set()
        """Non-finite metrics of rows that came after their step had been counted: told with the next step."""
        self._equal: dict[str, _Still] = {}

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        nonfinite = () if row.finite else _nonfinite(run)
        if row.late:
            if row.fresh:
                derived.add(_NONFINITE, float(len(nonfinite)))
            return
        if not row.fresh:
            self._present |= row.present
            if nonfinite:
                self._carried.update(nonfinite)
                self.nonfinite = tuple(sorted({*self.nonfinite, *nonfinite}))
                derived.add(_NONFINITE, float(len(self.nonfinite)))
            return
        self._rhythm(run, row, derived)
        self._keys(run, row)
        self._constancy(run)
        self.nonfinite = tuple(sorted({*self._carried, *nonfinite})) if self._carried or nonfinite else ()
        self._carried.clear()
        counts = (row.resumed, len(self.nonfinite), len(self.vanished), self._change, len(self.constant), row.dropped)
        derived.blocks.append(_COUNTS)
        derived.values += counts
        if self.failed:
            self.failed = False
            derived.add(_FAILED, 0.0)

    def saw(self, present: frozenset[str]) -> None:
        """A row of the newest step that changed no value still says that its metrics are being logged."""
        self._present |= present

    def ended(self, failed: bool) -> Derived:
        """The attempt is over."""
        self.failed = failed
        derived = Derived()
        derived.add(_FAILED, 1.0 if failed else 0.0)
        return derived

    def _rhythm(self, run: RunState, row: Row, derived: Derived) -> None:
        last, self._last_time = self._last_time, run.event_time
        if last is not None and not row.resumed:
            gap = max(0.0, run.event_time - last)
            gaps, ordered = self._gaps, self._ordered
            gaps.append(gap)
            insort(ordered, gap)
            if len(gaps) > GAPS:
                del ordered[bisect_left(ordered, gaps.pop(0))]
            self._gap_median = median(ordered)
            derived.blocks.append(_GAP)
            derived.values.append(gap)
        if self._gaps:
            self.stall_after = max(STALL_GAPS * self._gap_median, STALL_FLOOR)
            derived.blocks.append(_RHYTHM)
            derived.values += (self._gap_median, self.stall_after)
        elif last is not None:
            self.stall_after = STALL_FLOOR

    def _keys(self, run: RunState, row: Row) -> None:
        """Judge the step that is complete now, and begin to collect the keys of this one."""
        complete, self._present = self._present, row.present
        before, self._before = self._before, complete
        self._change = 0
        if before is None:
            return
        absent = self._absent
        record = run.record - 1  # the number of the complete step
        if complete is not before and complete != before:
            self._change = len(complete ^ before) if before else 0
            for key in sorted(before - complete):  # a set has no order of its own, and a dump shall have one
                absent.setdefault(key, record)
            for key in [key for key in absent if key in complete]:
                self._longest[key] = max(self._longest.get(key, 0), record - absent.pop(key))
        # Most trainers have metrics that are absent at most records, such as evaluation: their time runs while nothing changes.
        gone = [key for key, since in absent.items() if self._is_gone(run, key, record - since + 1)]
        self.vanished = tuple(sorted(gone)) if gone else ()

    def _is_gone(self, run: RunState, key: str, records: int) -> bool:
        series = run.series.get(key)
        established = series is not None and len(series) >= VANISHED_ESTABLISHED
        return established and records >= max(VANISHED_AFTER, 3 * self._longest.get(key, 0))

    def _constancy(self, run: RunState) -> None:
        arrived, series, equal = run.arrived, run.series, self._equal
        constant: tuple[str, ...] = ()
        for name in MUST_MOVE:
            if name in arrived:
                value = series[name].values[-1]  # the row is of the newest step
                still = equal.get(name)
                if still is None:
                    equal[name] = still = _Still(value, 0)
                still.records = still.records + 1 if value == still.value else 1
                still.value = value
                if still.records >= CONSTANT_AFTER:
                    constant += (name,)
        self.constant = constant

    def cut(self, step: int) -> None:
        """Resume: the rhythm was learnt and stays; what belongs to single steps goes."""
        self._equal.clear()
        self._carried.clear()
        self._absent.clear()
        self._present = frozenset()
        self._before = None
        self._change = 0
        self.nonfinite = self.vanished = self.constant = ()

    def phase_changed(self, changed: Collection[str]) -> None:
        """The rhythm adapts by itself."""

    def breaching(self, keys: Collection[str]) -> None:
        """Nothing here is learnt from values."""

    def dump(self) -> Any:
        told = [self.stall_after, self.failed, self.nonfinite, self.vanished, self.constant]
        rhythm = [self._gaps, self._gap_median, self._last_time]
        before = None if self._before is None else sorted(self._before)
        keys = [sorted(self._present), before, self._absent, self._longest, self._change]
        equal = {name: (still.value, still.records) for name, still in self._equal.items()}
        return [told, rhythm, keys, sorted(self._carried), equal]

    def load(self, state: Any) -> None:
        told, rhythm, keys, carried, equal = state
        self.stall_after, self.failed = told[0], told[1]
        self.nonfinite, self.vanished, self.constant = tuple(told[2]), tuple(told[3]), tuple(told[4])
        self._gaps, self._gap_median, self._last_time = rhythm
        self._ordered = sorted(self._gaps)
        self._present = frozenset(keys[0])
        self._before = None if keys[1] is None else frozenset(keys[1])
        self._absent, self._longest, self._change = keys[2], keys[3], keys[4]
        self._carried = set(carried)
        self._equal = {name: _Still(value, records) for name, (value, records) in equal.items()}


def is_core(key: str) -> bool:
    """Whether a series is a core training metric: a number in every sound step."""
    name = key.partition("{")[0]
    return name.startswith(CORE) and not name.endswith(_DERIVED)


def _nonfinite(run: RunState) -> tuple[str, ...]:
    found = []
    for key in run.arrived:
        if is_core(key):
            value = run.series[key].at(run.step)
            if value is not None and not isfinite(value):
                found.append(key)
    return tuple(found)

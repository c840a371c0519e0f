"""The state of one run: `apply` folds one record in, and nothing else changes it but what the rules give back.

`Run` is its own `collector.model.RunView`, so that a record is evaluated without a copy. The fold is deterministic: a run that
is dumped, loaded and given the rest of its records ends as one that was never disturbed, bit for bit.

Errors:

    IncompatibleDump     a dump of another version or byte order; fold the raw records instead
"""

from __future__ import annotations

import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from collector.applied import UNCHANGED, Applied, Outcome
from collector.book import Book, Fold
from collector.declared import Declared, of_record
from collector.model import Baseline, RunStatus
from collector.names import Vocabularies
from collector.order import Order, Place
from collector.rollouts import Rollouts
from collector.series import SLACK, Series
from collector.signals import SIGNALS, definitions
from collector.signals.baseline import Baselines
from collector.signals.life_cycle import LifeCycle
from collector.signals.protocol import Derived, Row, Signal
from collector.snapshot import RunExposed
from tocsin import wire

DEPTH: Final = 256
"""Samples per series that a window may look back on."""
MIN_DEPTH: Final = 64
"""What the signals need to look back on."""
MAX_SERIES: Final = 1_000
GROUP_STEPS: Final = 32
"""Steps whose groups are known to be counted, so that a repeated row counts no prompt twice; more than the reorder window."""
DUMP_VERSION: Final = 4

RecordedFor = Callable[[Mapping[str, str]], Mapping[str, Baseline]]
"""The recorded clean baseline, by series key, for a run with these labels; empty when none matches."""
_APPLIED: Final = {outcome: Applied(outcome) for outcome in Outcome}
_PLACED: Final = {Place.NEW: Outcome.STEP, Place.RESUME: Outcome.RESUMED, Place.LATE: Outcome.LATE, Place.MERGE: Outcome.MERGED}
# Members of enumerations that the hot path asks for: looking them up there took as long as folding ten values in.
_NEW, _RESUME, _MERGE = Place.NEW, Place.RESUME, Place.MERGE
_RUNNING: Final = RunStatus.RUNNING
_STEP: Final = Outcome.STEP
_DROPPED: Final = {
    Place.TOO_LATE: _APPLIED[Outcome.DROPPED_LATE],
    Place.OLD_ATTEMPT: _APPLIED[Outcome.DROPPED_ATTEMPT],
}


class IncompatibleDump(ValueError):
    """The dump was made by another version of this program or on a machine of another byte order."""


class Run:
    """One run. Satisfies `RunView`; not safe for several threads, but for `exposed`, which any thread may read.

    Raises ValueError for a depth below `MIN_DEPTH`.
    """

    def __init__(
        self,
        run_id: str,
        *,
        depth: int = DEPTH,
        max_series: int = MAX_SERIES,
        vocabularies: Vocabularies | None = None,
        recorded: Mapping[str, float] | None = None,
        recorded_for: RecordedFor | None = None,
    ) -> None:
        if depth < MIN_DEPTH:
            raise ValueError(f"depth is {depth}, the signals need at least {MIN_DEPTH}")
        self.run = run_id
        self.depth = depth
        self.max_series = max_series
        self.labels: Mapping[str, str] = {}
        self.config: Mapping[str, Any] = {}
        self.links: Mapping[str, str] = {}
        self.on_stop = "ignore"
        self.status = RunStatus.RUNNING
        self.end_reason = ""
        self.step = -1
        self.record = 0
        self.event_time = 0.0
        self.started_at = 0.0
        self.last_arrival = 0.0
        self.received_at = 0.0
        self.arrived: frozenset[str] = frozenset()
        self.steps: array[int] = array("q")
        self.times: array[float] = array("d")
        self.recorded: Mapping[str, float] = {} if recorded is None else recorded
        """Centres of the recorded baseline; configuration, so not part of a dump. With `recorded_for` it follows the labels."""
        self._recorded_for = recorded_for
        self._book = Book(max_series)
        # Attributes and no properties: the signals and the rules ask for them dozens of times per record.
        self.series: Mapping[str, Series] = self._book.series
        """By series key."""
        self.members: Mapping[str, list[str]] = self._book.members
        """Series keys of a labelled metric by its name."""
        self._vocabularies = Vocabularies(frozenset(definitions())) if vocabularies is None else vocabularies
        self._order = Order()
        self._configured = False
        self._life = LifeCycle()
        self._signals: tuple[Signal, ...] = tuple(self._life if kind is LifeCycle else kind() for kind in SIGNALS)
        self._baselines = Baselines()
        self.baselines: Mapping[str, Baseline] = self._baselines.in_force
        """Baselines by series key: the recorded one that matches the labels, else the run's own once it is frozen."""
        self.rollouts: Final = Rollouts()
        """Sampled rollouts of the last records that brought some."""
        self._group_steps: list[int] = []
        self._vocabulary = ""
        self._exposed_keys: tuple[str, ...] = ()
        self._newest: list[array[float]] = []
        self._exposed: RunExposed | None = None
        self._lock = threading.Lock()
        """Held while a record is folded in and while a snapshot is made, so that a scrape sees whole records only."""
        self._match_recorded()

    # ---- what others may ask beyond RunView

    @property
    def attempt(self) -> int:
        """Ours: the declared one, or more after restarts that were not declared."""
        return self._order.attempt

    @property
    def ended_at(self) -> float | None:
        """Event time of the end record of the present attempt."""
        return self._order.ended_at

    @property
    def stall_at(self) -> float | None:
        """When silence becomes a stall, by the clock of `last_arrival`; None when ended or with fewer than two records."""
        after = self._life.stall_after
        return None if after is None or self._order.ended_at is not None else self.last_arrival + after

    @property
    def exposed(self) -> RunExposed:
        """The run after its last whole record, for the exporter; any thread may ask. Made when asked for, then kept."""
        with self._lock:
            if self._exposed is None:
                self._exposed = self._expose()
            return self._exposed

    @property
    def reasons(self) -> Mapping[str, tuple[str, ...]]:
        """The metrics behind the counts of the life cycle, by the signal's name."""
        life = self._life
        return {
            "nonfinite_metric_count": life.nonfinite,
            "vanished_metric_count": life.vanished,
            "constant_metric_count": life.constant,
        }

    # ---- the fold

    def apply(self, record: wire.Record, *, received_at: float, arrival: float) -> Applied:
        """Fold one record in; the view is then the run at this record.

        `received_at` is the broker's time, `arrival` the time by the clock that judges silence (received_at live, event time in
        a replay). Never raises for a record that `wire.decode` returned.
        """
        with self._lock:
            if not self._order.opened:
                self.started_at = record.time
            self.arrived = frozenset()
            if type(record) is wire.StepRecord:
                applied = self._step(record)
            elif type(record) is wire.RunRecord:
                applied = self._declare(record)
            else:
                assert isinstance(record, wire.EndRecord)
                applied = self._end(record)
            if applied.outcome not in UNCHANGED:
                if arrival > self.last_arrival:
                    self.last_arrival = arrival
                if received_at > self.received_at:
                    self.received_at = received_at
                self._exposed = None
            return applied

    def extend(self, pairs: Iterable[tuple[str, float]]) -> None:
        """Values of `record:` rules at the step just evaluated: part of the fold, so windows over them survive a restart."""
        with self._lock:
            frozen, step = self._baselines.frozen, self.step
            for key, value in pairs:
                self._book.record(key, step, value)
                if key not in frozen:
                    self._baselines.note(self.record, key, value)
            self._exposed = None

    def mark_breaching(self, keys: Collection[str]) -> None:
        """These series breach at the step just evaluated: no baseline and no prior learns from it."""
        self._baselines.breaching(keys)
        for signal in self._signals:
            signal.breaching(keys)

    def use_recorded(self, recorded_for: RecordedFor) -> None:
        """Other recorded baselines are in force from the next record on (the configuration was read anew)."""
        with self._lock:
            self._recorded_for = recorded_for
            self._match_recorded()

    def _match_recorded(self) -> None:
        if self._recorded_for is not None:
            found = self._recorded_for(self.labels)
            self.recorded = {key: baseline.centre for key, baseline in found.items()}
            self._baselines.prefer(found)

    def _declare(self, record: wire.RunRecord) -> Applied:
        order = self._order
        if order.opened and order.is_old(record):
            return _APPLIED[Outcome.DROPPED_ATTEMPT]
        opens = record.attempt > order.declared or not self._configured
        known = Declared(self.labels, self.config, self.links, self.on_stop)
        declared = of_record(record) if opens else known.added(of_record(record))
        changed = declared != known
        if not opens and not changed:
            order.declare(record.attempt, record.time, reconfigured=False)
            return _APPLIED[Outcome.DUPLICATE]
        order.declare(record.attempt, record.time, reconfigured=True)
        keys = known.phase_keys(declared) if self._configured else ()
        self.labels, self.config, self.links, self.on_stop = declared
        self._match_recorded()
        self._configured = True
        self.event_time = record.time
        if order.ended_at is None:
            self.status, self.end_reason = RunStatus.RUNNING, ""
        if keys:
            self._baselines.restart(self.record)
            for signal in self._signals:
                signal.phase_changed(keys)
        return Applied(Outcome.OPENED if opens else Outcome.RECONFIGURED, phase_changed=keys)

    def _end(self, record: wire.EndRecord) -> Applied:
        order = self._order
        if order.opened and order.is_old(record):
            return _APPLIED[Outcome.DROPPED_ATTEMPT]
        status = RunStatus(record.status)
        if record.attempt == order.declared and order.ended_at == record.time and self.status is status:
            return _APPLIED[Outcome.DUPLICATE]
        order.end(record.attempt, record.time)
        self.status, self.end_reason = status, record.reason
        self.event_time = record.time
        derived = self._life.ended(status is RunStatus.FAILED)
        if self.steps:
            self.step = self.steps[-1]
            self._book.write(derived, self.step, False, self.arrived)
            self.arrived = frozenset(derived.blocks[0].names)
        return _APPLIED[Outcome.ENDED]

    def _step(self, record: wire.StepRecord) -> Applied:
        place = self._order.place(record, self.steps)
        newest = place is _NEW or place is _RESUME
        if not newest and (dropped := _DROPPED.get(place)) is not None:
            return dropped
        if record.names != self._vocabulary:
            self._vocabulary = record.names
            self._book.unbind()
        if self._order.ended_at is None:
            self.status, self.end_reason = _RUNNING, ""
        self.step = record.step
        self.event_time = record.time
        if place is _RESUME:
            self._cut(record.step)
        fresh = place is not _MERGE
        if fresh:
            self._place(record, newest)
        fold = Fold()
        names = self._vocabularies.of(self._vocabulary)
        into = self._book.fold_new if newest else self._book.fold_any
        keys = into(names, record.metrics, self.config, record.step, fold)
        groups = self._groups(record)
        if record.rollouts:
            self.rollouts.keep(record.step, record.rollouts, record.rollout_log)
        late = not newest and record.step != self.steps[-1]
        if fresh or fold.changed or groups is not None:
            self.arrived = fold.arrived
            present = keys if not fold.nulls else keys | frozenset(fold.nulls)
            self._derive(Row(fresh, late, place is _RESUME, groups, fold.finite, present, record.dropped), newest)
            outcome = _STEP if place is _NEW else _PLACED[place]
        else:
            outcome = Outcome.DUPLICATE
            if not late:
                self._life.saw(keys | frozenset(fold.nulls))
        if names.known and not fold.refused and not fold.over_limit:
            return _APPLIED[outcome]
        return Applied(outcome, tuple(fold.refused), fold.over_limit, not names.known)

    def _place(self, record: wire.StepRecord, newest: bool) -> None:
        """Count a step and give it its place among the steps of the run."""
        self.record += 1
        if newest:
            self.steps.append(record.step)
            self.times.append(record.time)
        else:
            at = bisect_left(self.steps, record.step)
            self.steps.insert(at, record.step)
            self.times.insert(at, record.time)
        if self.record % max(1, self.depth // SLACK) == 0:
            # All at once and rarely: no series gains more than one sample per record.
            self._book.trim(self.depth)
            if (excess := len(self.steps) - self.depth) > 0:
                del self.steps[:excess]
                del self.times[:excess]

    def _groups(self, record: wire.StepRecord) -> wire.Groups | None:
        """The row's groups, if they are the first of their step."""
        if record.groups is None or not record.groups.prompt or record.step in self._group_steps:
            return None
        self._group_steps.append(record.step)
        del self._group_steps[:-GROUP_STEPS]
        return record.groups

    def _derive(self, row: Row, newest: bool) -> None:
        derived = Derived()
        for signal in self._signals:
            signal.update(self, row, derived)
        self.arrived = self._book.write(derived, self.step, newest, self.arrived)
        self._baselines.update(self, row)

    def _cut(self, step: int) -> None:
        """Resume at `step`: forget the samples of it and later ones, keep what was learnt."""
        self._book.cut(step)
        self.rollouts.cut(step)
        at = bisect_left(self.steps, step)
        del self.steps[at:]
        del self.times[at:]
        self._group_steps = [known for known in self._group_steps if known < step]
        self._exposed_keys = ()
        for signal in self._signals:
            signal.cut(step)

    def _expose(self) -> RunExposed:
        if len(self._exposed_keys) != len(self.series):
            self._exposed_keys = tuple(self.series)
            self._newest = [series.values for series in self.series.values()]
        return RunExposed(
            run=self.run,
            labels=self.labels,
            attempt=self._order.attempt,
            status=self.status,
            step=self._order.last_step,
            record=self.record,
            event_time=self._order.newest_time if self._order.opened else 0.0,
            received_at=self.received_at,
            started_at=self.started_at,
            keys=self._exposed_keys,
            values=tuple([values[-1] for values in self._newest]),
        )

    # ---- checkpoints

    def dump(self) -> bytes:
        """The whole state, without loss. `recorded` and the limits are configuration and not in it."""
        declared = [self.labels, self.config, self.links, self.on_stop, self._configured, str(self.status), self.end_reason]
        clocks = [self.step, self.record, self.event_time, self.started_at, self.last_arrival, self.received_at]
        windows = [self.steps.tobytes(), self.times.tobytes(), self._book.dump(), self._group_steps, self.rollouts.dump()]
        signals = [signal.dump() for signal in self._signals]
        body = [self.run, self._vocabulary, declared, clocks, windows, self._order.dump(), signals, self._baselines.dump()]
        return msgspec.msgpack.encode([DUMP_VERSION, sys.byteorder, body])

    @classmethod
    def load(
        cls,
        data: bytes,
        *,
        depth: int = DEPTH,
        max_series: int = MAX_SERIES,
        vocabularies: Vocabularies | None = None,
        recorded: Mapping[str, float] | None = None,
        recorded_for: RecordedFor | None = None,
    ) -> Run:
        """The run that `dump` was called on. Raises IncompatibleDump."""
        try:
            version, byteorder, body = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise IncompatibleDump(f"not a dump of a run: {error}") from None
        if (version, byteorder) != (DUMP_VERSION, sys.byteorder):
            raise IncompatibleDump(f"dump version {version} ({byteorder}), this program reads {DUMP_VERSION} ({sys.byteorder})")
        run_id, vocabulary, declared, clocks, windows, order, signals, baselines = body
        run = cls(
            run_id,
            depth=depth,
            max_series=max_series,
            vocabularies=vocabularies,
            recorded=recorded,
            recorded_for=recorded_for,
        )
        run._restore(vocabulary, declared, clocks, windows)
        run._order.load(order)
        for signal, state in zip(run._signals, signals, strict=True):
            signal.load(state)
        run._baselines.load(baselines)
        run._match_recorded()
        return run

    def _restore(self, vocabulary: str, declared: Any, clocks: Any, windows: Any) -> None:
        self._vocabulary = vocabulary
        self.labels, self.config, self.links, self.on_stop, self._configured, status, self.end_reason = declared
        self.status = RunStatus(status)
        self.step, self.record, self.event_time, self.started_at, self.last_arrival, self.received_at = clocks
        steps, times, book, self._group_steps, rollouts = windows
        self.steps, self.times = array("q", steps), array("d", times)
        self._book.load(book)
        self.rollouts.load(rollouts)

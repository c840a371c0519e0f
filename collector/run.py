"""The fold of one run: `apply` folds one record in, and nothing else changes a run but what the rules give back.

`Run` is its own `collector.model.RunView`, so that a record is evaluated without a copy. The fold is deterministic: a run that
is dumped, loaded and given the rest of its records ends as one that was never disturbed, bit for bit. What a run is made of,
and its dump, are in `run_state`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from collector.applied import UNCHANGED, Applied, Outcome
from collector.book import Fold
from collector.declared import Declared, of_record
from collector.model import RunStatus
from collector.order import Place
from collector.run_state import RecordedFor, RunBase
from collector.series import SLACK
from collector.signals.protocol import Derived, Row
from collector.snapshot import RunExposed
from tocsin import wire

GROUP_STEPS: Final = 32
"""Steps whose groups are known to be counted, so that a repeated row counts no prompt twice; more than the reorder window."""
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


class Run(RunBase):
    """One run. Satisfies `RunView`; not safe for several threads, but for `exposed`, which any thread may read.

    Raises ValueError for a depth below `MIN_DEPTH`.
    """

    # ---- what others may ask beyond RunView

    @property
    def attempt(self) -> int:
        """Ours: the declared one, or more after restarts that were not declared."""
        return self._order.attempt

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

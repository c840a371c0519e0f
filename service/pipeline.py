"""From raw records to one committed transaction: decode, fold, judge, plan deliveries, commit.

Nothing here waits and nothing reads a clock. What a record does cannot leave the loop: a value that is no record goes to the
dead letters; one whose evaluation raises goes there too, its run is brought back to where it was, and the traceback is
logged. Only a commit that fails raises; then nothing of the batch happened, and `reset` forgets it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from alerts.incidents import IncidentBook, Plan
from collector import health
from collector.health import Health
from collector.model import Batch, RawRecord
from collector.ports import DeadLetters
from collector.run import RecordedFor
from rules.engine import Engine
from rules.model import AlertEvent, RuleHealth, Verdict
from service.canary import Canary
from service.consume import Processed
from service.judging import Judged, judge, ticks
from service.live import ClockKind, Live
from service.own_alerts import Own, OwnAlerts
from service.pending import Pending
from service.self_watch import SelfWatch
from service.shelf import Shelf
from service.store.model import StoredRecord
from service.store.store import Store
from service.tally import Tally
from tocsin import wire

log = logging.getLogger(__name__)

CHECKPOINT_ROWS: Final = 200
"""Rows of a run between two checkpoints: what a restart has to apply again, against what each commit has to write."""
FRESH_SECONDS: Final = 30.0
"""For so long a look at the source says that nothing waits; a loop at work looks several times a second."""
INTERNAL: Final = "internal"
RESERVED: Final = "reserved_run"
"""The alerts of Tocsin about itself have a run of their own: a trainer's records in it would mix incidents and states."""
NOTHING: Final = Plan()


@dataclass(frozen=True)
class Parts:
    """What a pipeline works with."""

    store: Store
    shelf: Shelf
    engine: Engine
    book: IncidentBook
    dead_letters: DeadLetters
    health: Health
    clock: ClockKind = "received"
    own: OwnAlerts | None = None
    """Alerts about Tocsin itself; None for replays."""
    canary: Canary | None = None
    """The test alert; None for replays."""
    sole_reader: bool = False
    """Nobody else reads this source (a spool): all runs are ours, those of files that are gone as well."""
    rejected_share: float = 0.05
    checkpoint_rows: int = CHECKPOINT_ROWS
    show_rules: bool = True
    """Whether anybody looks at the rules' samples."""
    see: Callable[[Live, Sequence[AlertEvent]], None] | None = None
    """Is shown the events of a record with the run as it is after it."""
    timer: Callable[[], float] = time.perf_counter
    """Measures how long evaluation takes; decides nothing."""


class Pipeline:
    """Used by one thread. After `process`, `tick` or `checkpoint` raised, call `reset` and read again from the store."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._engine = parts.engine
        self._bundle = 0
        self._whole = not parts.sole_reader
        """Whether the runs are here that no assignment brings."""
        self._tally = Tally(parts.health)
        self._positions: dict[str, int | None] = {}
        self._watch = SelfWatch(parts.own, parts.book, parts.store, parts.rejected_share)
        self._caught_up = False
        """Nothing waited to be read when the source was last looked at."""
        self._looked_at = 0.0
        self._owed: list[tuple[Own, bool, str, float]] = []
        """What is to be said about Tocsin itself and is not committed: it outlives a store that is away."""
        self._lettered: set[tuple[str, int]] = set()
        """Dead letters of a batch that is not committed: when it comes again, they are there."""
        self._restore_own()

    @property
    def engine(self) -> Engine:
        """The rules in force."""
        return self._engine

    # ---- the loop's calls

    def process(self, batch: Batch, now: float) -> Processed:
        """Apply and commit one batch; `now` is the wall clock."""
        self._caught_up = self._knows_silence(now)
        self._rebalance(batch)
        pending = Pending(self._positions)
        rejected = len(batch.faults)
        for fault in batch.faults:
            self._dead(fault.partition, fault.offset, "unreadable", fault.reason, fault.value, now)
        for raw in batch.records:
            rejected += not self._record(raw, pending, now)
        if batch.records or batch.faults:
            self._watch.count(len(batch.records) - rejected + len(batch.faults), rejected, pending, now)
        processed = self._commit(pending, now)
        self._caught_up, self._looked_at = batch.caught_up, now
        self._lettered.clear()
        if batch.records or batch.faults:
            known = batch.records and self._parts.clock == "received"
            self._tally.tell(batch, now - batch.records[-1].received_at if known else None, len(self._parts.shelf))
        return processed

    def tick(self, now: float) -> Processed:
        """Judge silence (only where nothing waits to be read), end own alerts that are over, let go of old runs."""
        pending = Pending(self._positions)
        live_clock = self._parts.clock == "received"
        for live in self._parts.shelf.all():
            self._retire(live, pending, now)
        silent = self._knows_silence(now)
        if silent and live_clock:
            for live in self._parts.shelf.running():
                if (found := ticks(live, self._engine, now)) is not None:
                    self._note_health(found.health, pending, now)
                    self._touch(live, found.events, pending, now)
                    pending.judged(live.partition)
        self._watch.tick(pending, now)
        if self._parts.canary is not None:
            self._parts.canary.tick(pending, now)
        self._due(pending, now)
        expired = self._parts.shelf.expired(now, silent=silent) if live_clock else []
        over = [live for live in expired if not self._parts.book.waits(live.run.run)]
        for live in over:
            if live.saved < live.sequence:
                pending.save(live)
        processed = self._commit_owed(pending, now)
        for live in over:
            self._parts.shelf.forget(live.run.run)
        self._parts.health.set(health.RUNS, len(self._parts.shelf))
        return processed

    def checkpoint(self, now: float) -> Processed:
        """Save every run whose log has grown since its last checkpoint."""
        pending = Pending(self._positions)
        for live in self._parts.shelf.all():
            if live.saved < live.sequence:
                pending.save(live)
        return self._commit_owed(pending, now)

    def reset(self) -> None:
        """Forget everything: nothing that was not committed has happened."""
        self._parts.shelf.clear()
        self._positions.clear()
        self._caught_up = False
        self._whole = not self._parts.sole_reader
        self._tally.forget()
        self._restore_own()

    # ---- changes from outside, between two batches

    def reload(self, engine: Engine, now: float, recorded_for: RecordedFor | None = None) -> Processed:
        """Judge by other rules, and with other recorded baselines if they are given, from the next record on. States of rules
        that are still there go on; alerts of removed rules are resolved."""
        self._engine = engine
        self._bundle += 1
        self._parts.shelf.deepen(engine.depth)
        if recorded_for is not None:
            self._parts.shelf.runs.use_recorded(recorded_for)
        return self.tick(now)

    def happened(self, own: Own, reason: str, now: float) -> Processed:
        """Raise an alert about Tocsin itself."""
        return self.state_of(own, True, reason, now)

    def state_of(self, own: Own, fires: bool, reason: str, now: float) -> Processed:
        """Say whether something about Tocsin itself is so; when it cannot be committed now, with the next tick that can."""
        self._owed.append((own, fires, reason, now))
        return self._commit_owed(Pending(self._positions), now)

    def is_open(self, incident: str) -> bool:
        """Whether people can say something of this incident here."""
        return self._parts.book.is_open(incident)

    def acknowledge(self, incident: str, owner: str, until: float, now: float, *, door: str = "", note: str = "") -> Processed:
        """Somebody has an open incident in hand until then, see `IncidentBook.acknowledge`."""
        return self._said(self._parts.book.acknowledge(incident, owner, until, now, door=door, note=note), now)

    def close_by_hand(self, incident: str, owner: str, now: float) -> Processed:
        """Somebody says that an open incident is over, see `IncidentBook.close_by_hand`."""
        return self._said(self._parts.book.close_by_hand(incident, owner, now), now)

    # ---- runs of our own

    def _restore_own(self) -> None:
        self._watch.restore()
        if self._parts.canary is not None:
            self._parts.canary.restore()

    def _owns(self, run: str) -> bool:
        canary = self._parts.canary
        return self._watch.owns(run) or (canary is not None and run == canary.run)

    # ---- partitions

    def _rebalance(self, batch: Batch) -> None:
        if not self._whole:
            self._parts.shelf.restore_running()
            self._whole = True
        for partition in batch.revoked:
            self._parts.shelf.forget_partition(partition)
            self._positions.pop(partition, None)
        for partition in batch.assigned:
            self._positions[partition] = self._parts.store.position(partition)
            self._parts.shelf.restore_partition(partition)
        if batch.assigned:
            self._caught_up = False

    # ---- one record

    def _record(self, raw: RawRecord, pending: Pending, now: float) -> bool:
        """Whether the value was a record."""
        if raw.partition not in self._positions:
            self._positions[raw.partition] = self._parts.store.position(raw.partition)
        at = pending.ends.get(raw.partition, self._positions[raw.partition])
        if at is not None and raw.offset < at:
            return True  # read before; a source may give a record again after it was opened anew
        try:
            decoded = wire.decode(raw.value, raw.content_type)
        except wire.WireError as error:
            pending.read(raw.partition, raw.next_offset)
            self._dead(raw.partition, raw.offset, str(error.reason), error.detail, raw.value, now)
            return False
        record = decoded.record
        if self._owns(record.run):
            pending.read(raw.partition, raw.next_offset)
            why = f"run {record.run!r} has the name of this collector (rename the run, or set another `name` in tocsin.yaml)"
            self._dead(raw.partition, raw.offset, RESERVED, why, raw.value, now)
            self._watch.happened(Own.LIMITS, why, pending, now)
            return False
        if decoded.unknown:
            self._tally.unknown_fields(len(decoded.unknown))
        live = self._parts.shelf.get(record.run, raw.partition, pending.touched)
        if live is None:
            self._tally.no_room()
            limit = self._parts.shelf.runs.max_runs
            self._watch.happened(Own.LIMITS, f"run {record.run} is beyond the limit of {limit} runs", pending, now)
        else:
            try:
                self._retire(live, pending, now)
                self._evaluate(live, raw, record, pending, now)
            except Exception as error:
                where = f"{raw.partition}:{raw.offset}"
                log.exception("run %s: the record at %s could not be evaluated", record.run, where)
                self._dead(raw.partition, raw.offset, INTERNAL, f"{type(error).__name__}: {error}", raw.value, now)
                self._rebuild(record.run, raw.partition, pending, now)
                self._watch.happened(Own.INTERNAL, f"a record of run {record.run} raised {type(error).__name__}", pending, now)
        pending.read(raw.partition, raw.next_offset)
        return True

    def _evaluate(self, live: Live, raw: RawRecord, record: wire.Record, pending: Pending, now: float) -> None:
        """Judge one record and note what it did. Until the last lines, which cannot fail, nothing is noted."""
        began = self._parts.timer()
        judged = self._judge(live, raw, record, now)
        facts = judged.facts.pack()
        if judged.events and self._parts.see is not None:
            self._parts.see(live, judged.events)
        plan = self._parts.book.apply(judged.events, now) if judged.events else NOTHING
        self._tally.folded(judged.applied, self._parts.timer() - began)
        live.partition = raw.partition
        live.sequence += 1
        run = live.run.run
        pending.records.append(StoredRecord(run, live.sequence, raw, facts))
        pending.touched[run] = live
        pending.planned(judged.events, plan)
        if judged.applied.over_limit:
            limit = self._parts.shelf.runs.max_series_per_run
            self._watch.happened(Own.LIMITS, f"run {run} has more than {limit} series; the first ones are kept", pending, now)
        self._note_health(judged.health, pending, now)

    def _retire(self, live: Live, pending: Pending, now: float) -> None:
        """Under another bundle than the one that its states were made with: end the alerts of rules that are gone. After a
        reload, and after a restart that found other rules than the run had."""
        if live.bundle == self._bundle:
            return
        found = self._engine.retire(live.run, live.states, now)
        live.bundle = self._bundle
        if found.events or live.states.dirty:
            self._touch(live, found.events, pending, now)
            pending.judged(live.partition)

    def _due(self, pending: Pending, now: float) -> None:
        """What the incident book has to say because time has passed."""
        self._unasked(self._parts.book.tick(now), pending)

    def _said(self, plan: Plan, now: float) -> Processed:
        pending = Pending(self._positions)
        self._unasked(plan, pending)
        return self._commit(pending, now)

    def _unasked(self, plan: Plan, pending: Pending) -> None:
        """Note a plan that no event caused: the partitions of its runs must still be ours."""
        pending.planned((), plan)
        runs = {incident.run for incident in plan.incidents}
        for live in self._parts.shelf.all():
            if live.run.run in runs:
                pending.judged(live.partition)

    def _judge(self, live: Live, raw: RawRecord, record: wire.Record, now: float) -> Judged:
        clock = self._parts.clock
        silence = clock == "event" or self._caught_up
        return judge(live, raw, record, self._engine, clock=clock, now=now, silence=silence)

    def _touch(self, live: Live, events: Sequence[AlertEvent], pending: Pending, now: float) -> None:
        pending.touched[live.run.run] = live
        if events:
            pending.planned(events, self._parts.book.apply(events, now))

    def _rebuild(self, run: str, partition: str, pending: Pending, now: float) -> None:
        """Bring a run back to where it was before the record that failed: from the store, and through the earlier records of
        this batch once more. Their events are planned already."""
        shelf = self._parts.shelf
        shelf.forget(run)
        earlier = [stored for stored in pending.records if stored.run == run]
        live = shelf.get(run, partition, pending.touched)
        if live is None or not earlier:
            pending.touched.pop(run, None)
            return
        for stored in earlier:
            judged = self._judge(live, stored.raw, wire.decode(stored.raw.value, stored.raw.content_type).record, now)
            live.partition = stored.raw.partition
            live.sequence += 1
            if judged.events:
                self._parts.book.apply(judged.events, now)
        pending.touched[run] = live

    # ---- counting

    def _note_health(self, found: Iterable[RuleHealth], pending: Pending, now: float) -> None:
        for each in found:
            self._tally.unjudged(each)
            log.warning("rule %s cannot judge run %s at step %d: %s", each.alert, each.run, each.step, each.reason)
            if each.verdict is Verdict.ERROR:
                self._watch.happened(Own.RULE, f"rule {each.alert} fails on run {each.run}: {each.reason}", pending, now)

    def _dead(self, partition: str, offset: int, reason: str, detail: str, value: bytes, now: float) -> None:
        self._tally.rejected(reason)
        if (partition, offset) not in self._lettered:
            self._lettered.add((partition, offset))
            self._parts.dead_letters.put(
                partition=partition, offset=offset, reason=reason, detail=detail, value=value, rejected_at=now
            )

    def _knows_silence(self, now: float) -> bool:
        """Whether the time until now is one in which nothing waited. After a machine was suspended, a disk hung or the clock
        was put forward nobody knows: whatever came in between has yet to be read, and all runs would seem to have stalled."""
        return self._caught_up and now - self._looked_at <= FRESH_SECONDS

    # ---- the transaction

    def _commit_owed(self, pending: Pending, now: float) -> Processed:
        for own, fires, reason, at in self._owed:
            self._watch.judge(own, fires, reason, pending, at)
        processed = self._commit(pending, now)
        self._owed.clear()
        return processed

    def _commit(self, pending: Pending, now: float) -> Processed:
        if not pending:
            return Processed()
        commit, saved = pending.commit(now, self._parts.checkpoint_rows)
        self._parts.store.commit(commit)
        for live in saved:
            live.saved = live.sequence
        for live in pending.touched.values():
            live.states.dirty.clear()
            if self._parts.show_rules:
                live.samples = self._engine.samples(live.states)
        self._positions.update(pending.ends)
        return Processed(dict(pending.ends), tuple(pending.events), pending.receivers)

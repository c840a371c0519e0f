"""What one record does to one run, and what it adds to the transaction under way.

What a record does cannot leave here: a value that is no record goes to the dead letters; one whose evaluation raises goes
there too, its run is brought back to where it was, and the traceback is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from alerts.incidents import NO_BRIEFS, Plan
from collector.model import RawRecord
from rules.engine import Engine
from rules.model import AlertEvent, RuleHealth, Verdict
from service.evidence.clerk import Looked
from service.judging import Judged, judge, ticks
from service.letters import Letters
from service.live import Live
from service.own_alerts import Own
from service.parts import Parts
from service.pending import Pending
from service.self_watch import SelfWatch
from service.stop_requests import Stop, heard, news, watched
from service.store.model import StoredRecord
from service.storm_watch import StormWatch
from service.tally import Tally
from tocsin import wire

log = logging.getLogger(__name__)

INTERNAL: Final = "internal"
RESERVED: Final = "reserved_run"
"""The alerts of Tocsin about itself have a run of their own: a trainer's records in it would mix incidents and states."""
NOTHING: Final = Plan()


class _Told(NamedTuple):
    """What follows from a record or a tick."""

    events: Sequence[AlertEvent]
    plan: Plan
    stop: Stop | None
    looked: Looked | None = None


class Evaluating:
    """Of one pipeline. `pending` is the transaction under way, `now` the wall clock; `silence`: nothing waited before it."""

    def __init__(self, parts: Parts, letters: Letters, tally: Tally, watch: SelfWatch, storms: StormWatch) -> None:
        self.engine = parts.engine
        """The rules in force."""
        self._parts = parts
        self._letters = letters
        self._tally = tally
        self._watch = watch
        self._storms = storms
        self._bundle = 0

    def use(self, engine: Engine) -> None:
        """Judge by other rules from the next record on."""
        self.engine = engine
        self._bundle += 1

    def record(self, raw: RawRecord, pending: Pending, now: float, *, silence: bool) -> bool:
        """Judge one value. Returns whether it was a record."""
        try:
            decoded = wire.decode(raw.value, raw.content_type)
        except wire.WireError as error:
            self._letters.put(raw.partition, raw.offset, str(error.reason), error.detail, raw.value, now)
            return False
        record = decoded.record
        if self._owns(record.run):
            why = f"run {record.run!r} has the name of this collector (rename the run, or set another `name` in tocsin.yaml)"
            self._letters.put(raw.partition, raw.offset, RESERVED, why, raw.value, now)
            self._watch.happened(Own.LIMITS, why, pending, now)
            return False
        if decoded.unknown:
            self._tally.unknown_fields(len(decoded.unknown))
        live = self._parts.shelf.get(record.run, raw.partition, pending.touched)
        if live is None:
            self._tally.no_room()
            limit = self._parts.shelf.runs.max_runs
            self._watch.happened(Own.LIMITS, f"run {record.run} is beyond the limit of {limit} runs", pending, now)
            return True
        try:
            self.retire(live, pending, now)
            self._evaluate(live, raw, record, pending, now, silence)
        except Exception as error:
            where = f"{raw.partition}:{raw.offset}"
            log.exception("run %s: the record at %s could not be evaluated", record.run, where)
            self._letters.put(raw.partition, raw.offset, INTERNAL, f"{type(error).__name__}: {error}", raw.value, now)
            self._rebuild(record.run, raw.partition, pending, now, silence)
            self._watch.happened(Own.INTERNAL, f"a record of run {record.run} raised {type(error).__name__}", pending, now)
        return True

    def retire(self, live: Live, pending: Pending, now: float) -> None:
        """Under another bundle than the one that its states were made with: end the alerts of rules that are gone. After a
        reload, and after a restart that found other rules than the run had."""
        if live.bundle == self._bundle:
            return
        found = self.engine.retire(live.run, live.states, now)
        live.bundle = self._bundle
        pending.renewed[live.run.run] = live
        if found.events or live.states.dirty:
            self._touch(live, found.events, pending, now)
            pending.judged(live.partition)

    def stall(self, live: Live, pending: Pending, now: float) -> None:
        """Judge a run's silence, if it has lasted too long by now."""
        if (found := ticks(live, self.engine, now)) is not None:
            self._note_health(found.health, pending, now)
            self._touch(live, found.events, pending, now)
            pending.judged(live.partition)

    def _owns(self, run: str) -> bool:
        canary = self._parts.canary
        return self._watch.owns(run) or self._storms.owns(run) or (canary is not None and run == canary.run)

    def _evaluate(self, live: Live, raw: RawRecord, record: wire.Record, pending: Pending, now: float, silence: bool) -> None:
        """Judge one record and note what it did. Until the last lines, which cannot fail, nothing is noted."""
        began = self._parts.timer()
        judged = self._judge(live, raw, record, now, silence)
        facts = judged.facts.pack()
        if judged.events and self._parts.see is not None:
            self._parts.see(live, judged.events)
        # Most records lead to nothing more, and are to cost nothing more.
        told = self._tell(live, raw, record, judged, now, silence) if judged.events or live.stop is not None else None
        self._tally.folded(judged.applied, self._parts.timer() - began)
        live.partition = raw.partition
        live.sequence += 1
        run = live.run.run
        pending.records.append(StoredRecord(run, live.sequence, raw, facts))
        pending.touched[run] = live
        if live.evidence_waits and self._parts.clerk is not None:
            self._parts.clerk.follow(live, pending.evidence)
        if told is not None:
            self._note(live, told, pending, now)
        if judged.applied.over_limit:
            limit = self._parts.shelf.runs.max_series_per_run
            self._watch.happened(Own.LIMITS, f"run {run} has more than {limit} series; the first ones are kept", pending, now)
        self._note_health(judged.health, pending, now)

    def _judge(self, live: Live, raw: RawRecord, record: wire.Record, now: float, silence: bool) -> Judged:
        clock = self._parts.clock
        return judge(live, raw, record, self.engine, clock=clock, now=now, silence=silence or clock == "event")

    def _touch(self, live: Live, events: Sequence[AlertEvent], pending: Pending, now: float) -> None:
        pending.touched[live.run.run] = live
        if events:
            stop = live.stop
            if stop is not None:
                stop, more = watched(stop, live.run, events, now)
                events = [*events, *more]
            self._note(live, self._plan(live, stop, events, now), pending, now)

    def _tell(self, live: Live, raw: RawRecord, record: wire.Record, judged: Judged, now: float, caught_up: bool) -> _Told:
        """What a record leads to beside its own row: events, what the incident book makes of them, the request to stop."""
        events, stop = judged.events, live.stop
        if stop is not None:
            outcome = judged.applied.outcome
            stop, more = heard(stop, live.run, raw, record, outcome, events, now, caught_up=caught_up)
            events = [*events, *more]
        return self._plan(live, stop, events, now, record.attempt)

    def _plan(self, live: Live, stop: Stop | None, events: Sequence[AlertEvent], now: float, declared: int = 0) -> _Told:
        if not events and stop is live.stop:
            return _Told(events, NOTHING, stop)
        book, plan, looked = self._parts.book, NOTHING, None
        if events:
            looked = None if self._parts.clerk is None else self._parts.clerk.look(live, self.engine, events, now)
            plan = book.apply(events, now, NO_BRIEFS if looked is None else looked.briefs)
            if self._parts.stops is not None:
                stop, rows = self._parts.stops.ask(stop, live.run, events, plan, now, declared=declared)
                plan = plan._replace(deliveries=[*plan.deliveries, *rows])
        if stop is not None and stop is not live.stop and (said := news(live.stop, stop, now)):
            plan = plan.followed_by(book.remark(stop.incident, said, now))
        return _Told(events, plan, stop, looked)

    def _note(self, live: Live, told: _Told, pending: Pending, now: float) -> None:
        pending.planned(told.events, told.plan)
        if self._parts.clerk is not None and told.looked is not None:
            self._parts.clerk.note(live, told.looked, told.plan, pending.evidence, now)
        if told.stop is not None and told.stop is not live.stop:
            live.stop = pending.stops[live.run.run] = told.stop

    def _rebuild(self, run: str, partition: str, pending: Pending, now: float, silence: bool) -> None:
        """Bring a run back to where it was before the record that failed: from the store, and through the earlier records of
        this batch once more. What they led to is planned already."""
        shelf = self._parts.shelf
        shelf.forget(run)
        self._storms.restore(pending)  # the record may have failed after the book knew of it
        earlier = [stored for stored in pending.records if stored.run == run]
        live = shelf.get(run, partition, pending.touched)
        self._parts.book.restore(pending.incidents(run))
        if live is not None:
            live.stop = pending.stops.get(run, live.stop)
        if live is None or not earlier:
            pending.touched.pop(run, None)
            return
        for stored in earlier:
            record = wire.decode(stored.raw.value, stored.raw.content_type).record
            self._judge(live, stored.raw, record, now, silence)
            live.partition = stored.raw.partition
            live.sequence += 1
        owed = [row.incident for row in pending.evidence.values() if row.run == run and row.waits]
        live.evidence_waits = owed[-1] if owed else live.evidence_waits
        pending.touched[run] = live

    def _note_health(self, found: Iterable[RuleHealth], pending: Pending, now: float) -> None:
        for each in found:
            self._tally.unjudged(each)
            log.warning("rule %s cannot judge run %s at step %d: %s", each.alert, each.run, each.step, each.reason)
            if each.verdict is Verdict.ERROR:
                self._watch.happened(Own.RULE, f"rule {each.alert} fails on run {each.run}: {each.reason}", pending, now)

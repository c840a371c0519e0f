"""What records do to their runs, and what they add to the transaction under way.

What a record does cannot leave here: a value that is no record goes to the dead letters; one whose evaluation raises goes
there too, its run is brought back to where it was, and the traceback is logged.

Most records lead to nothing but their own row. Of each run these are folded and judged one after the other, as far as they go
(`_Line`): what a run keeps is spread over a thousand small objects, and fetching them into the processor's caches anew for
each of several hundred interleaved records costs more than judging one. A record that leads to more (an event, a fault, an
answer to a request) waits there for its turn: the turns come in the order of the records, whatever runs they are of. As a run
waits with its record, everything that looks at the run then sees it as it was at that record, and what results is what results
from one record at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from collector.applied import Applied
from collector.model import RawRecord
from rules.engine import Engine
from rules.model import AlertEvent, RuleHealth, Verdict
from service import telling
from service.judging import Judged, judge, ticks
from service.letters import Letters
from service.live import Live
from service.own_alerts import Own
from service.parts import Parts
from service.pending import Pending
from service.self_watch import SelfWatch
from service.store.model import StoredRecord
from service.storm_watch import StormWatch
from service.tally import Tally
from tocsin import wire

log = logging.getLogger(__name__)

INTERNAL: Final = "internal"
RESERVED: Final = "reserved_run"
"""The alerts of Tocsin about itself have a run of their own: a trainer's records in it would mix incidents and states."""


class _Line:
    """The next records of one run, in order."""

    __slots__ = ("at", "error", "judged", "live", "records", "seconds")

    def __init__(self, live: Live) -> None:
        self.live: Live | None = live
        """None once a record has failed: the run is made anew, and the rest is taken one by one."""
        self.records: list[tuple[int, RawRecord, wire.Record]] = []
        """With their places among all records."""
        self.at = 0
        """The record that comes next; those before are done with."""
        self.judged: Judged | None = None
        """What it led to, if it is folded and waits for its turn."""
        self.error: Exception | None = None
        """What it raised, if it did."""
        self.seconds = 0.0
        """How long judging it took."""


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

    def records(self, raws: Sequence[RawRecord], pending: Pending, now: float, *, silence: bool) -> int:
        """Judge values, in order. Returns how many of them were no records."""
        lines: dict[str, _Line] = {}
        shelf, rejected, size = self._parts.shelf, 0, 0
        for place, raw in enumerate(raws):
            decoded = _decoded(raw)
            if isinstance(decoded, wire.WireError):
                self._go(lines, pending, now, silence)
                self._letters.put(raw.partition, raw.offset, str(decoded.reason), decoded.detail, raw.value, now)
                rejected += 1
                continue
            record = decoded.record
            line = lines.get(record.run)
            if line is None:
                live = shelf.known(record.run)
                if live is None or live.bundle != self._bundle:
                    self._go(lines, pending, now, silence)
                    rejected += not self._first(raw, decoded, pending, now, silence)
                    continue
                line = lines[record.run] = _Line(live)
            if decoded.unknown:
                self._tally.unknown_fields(len(decoded.unknown))
            line.records.append((place, raw, record))
            size += len(raw.value)
            if size >= self._parts.round_bytes:
                self._go(lines, pending, now, silence)
                size = 0
        self._go(lines, pending, now, silence)
        return rejected

    def _first(self, raw: RawRecord, decoded: wire.Decoded, pending: Pending, now: float, silence: bool) -> bool:
        """Judge a record whose run may not be a trainer's; whether it is."""
        record = decoded.record
        if self._owns(record.run):
            why = f"run {record.run!r} has the name of this collector (rename the run, or set another `name` in tocsin.yaml)"
            self._letters.put(raw.partition, raw.offset, RESERVED, why, raw.value, now)
            self._watch.happened(Own.LIMITS, why, pending, now)
            return False
        if decoded.unknown:
            self._tally.unknown_fields(len(decoded.unknown))
        self._one(raw, record, pending, now, silence)
        return True

    def _one(self, raw: RawRecord, record: wire.Record, pending: Pending, now: float, silence: bool) -> None:
        """Judge one record, whatever of its run is here."""
        live = self._parts.shelf.get(record.run, raw.partition, pending.touched)
        if live is None:
            self._tally.no_room()
            limit = self._parts.shelf.runs.max_runs
            self._watch.happened(Own.LIMITS, f"run {record.run} is beyond the limit of {limit} runs", pending, now)
            return
        line = _Line(live)
        line.records.append((0, raw, record))
        try:
            self.retire(live, pending, now)
        except Exception as error:
            line.error = error
        if line.error is not None or self._waits(line, live, pending, now, silence):
            self._turn(line, pending, now, silence)

    def _go(self, lines: dict[str, _Line], pending: Pending, now: float, silence: bool) -> None:
        """Through all lines: each as far as it goes by itself, then what waits, in the order of the records."""
        waiting: list[tuple[int, _Line]] = []
        for line in lines.values():
            self._on(line, waiting, pending, now, silence)
        while waiting:
            _, line = heappop(waiting)
            self._turn(line, pending, now, silence)
            self._on(line, waiting, pending, now, silence)
        lines.clear()

    def _on(self, line: _Line, waiting: list[tuple[int, _Line]], pending: Pending, now: float, silence: bool) -> None:
        """Fold records of a line until one waits for its turn."""
        live = line.live
        while line.at < len(line.records):
            if live is None or self._waits(line, live, pending, now, silence):
                heappush(waiting, (line.records[line.at][0], line))
                return

    def _waits(self, line: _Line, live: Live, pending: Pending, now: float, silence: bool) -> bool:
        """Fold and judge the next record of a line. One that leads to nothing but its row is noted and done with; whether it
        is another one."""
        _, raw, record = line.records[line.at]
        began = self._parts.timer()
        try:
            judged = self._judge(live, raw, record, now, silence)
            if judged.events or judged.health or judged.applied.over_limit or live.stop is not None or live.evidence_waits:
                line.judged, line.seconds = judged, self._parts.timer() - began
                return True
            facts = judged.facts.pack()
        except Exception as error:
            line.error = error
            return True
        self._keep(live, raw, judged.applied, facts, self._parts.timer() - began, pending)
        line.at += 1
        return False

    def _turn(self, line: _Line, pending: Pending, now: float, silence: bool) -> None:
        """It is the turn of a record that waits."""
        _, raw, record = line.records[line.at]
        live, judged, error = line.live, line.judged, line.error
        line.at += 1
        line.judged = line.error = None
        if live is None:
            self._one(raw, record, pending, now, silence)
            return
        try:
            if error is not None:
                raise error
            assert judged is not None
            self._lead(live, raw, record, judged, line.seconds, pending, now, silence)
        except Exception as error:
            where = f"{raw.partition}:{raw.offset}"
            log.exception("run %s: the record at %s could not be evaluated", record.run, where)
            self._letters.put(raw.partition, raw.offset, INTERNAL, f"{type(error).__name__}: {error}", raw.value, now)
            self._rebuild(record.run, raw.partition, pending, now, silence)
            self._watch.happened(Own.INTERNAL, f"a record of run {record.run} raised {type(error).__name__}", pending, now)
            line.live = None

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

    def _keep(
        self, live: Live, raw: RawRecord, applied: Applied, facts: bytes | None, seconds: float, pending: Pending
    ) -> None:
        """Note the row of a record that was judged."""
        self._tally.folded(applied, seconds)
        live.partition = raw.partition
        live.sequence += 1
        run = live.run.run
        pending.records.append(StoredRecord(run, live.sequence, raw, facts))
        pending.touched[run] = live

    def _lead(
        self,
        live: Live,
        raw: RawRecord,
        record: wire.Record,
        judged: Judged,
        seconds: float,
        pending: Pending,
        now: float,
        silence: bool,
    ) -> None:
        """Note what a record led to. Until the last lines, which cannot fail, nothing is noted."""
        began = self._parts.timer()
        facts = judged.facts.pack()
        if judged.events and self._parts.see is not None:
            self._parts.see(live, judged.events)
        told = None
        if judged.events or live.stop is not None:
            told = telling.of_record(self._parts, self.engine, live, raw, record, judged, now, silence)
        run = live.run.run
        self._keep(live, raw, judged.applied, facts, seconds + self._parts.timer() - began, pending)
        if live.evidence_waits and self._parts.clerk is not None:
            self._parts.clerk.follow(live, pending.evidence)
        if told is not None:
            telling.note(self._parts, live, told, pending, now)
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
            told = telling.of_silence(self._parts, self.engine, live, events, now)
            telling.note(self._parts, live, told, pending, now)

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


def _decoded(raw: RawRecord) -> wire.Decoded | wire.WireError:
    try:
        return wire.decode(raw.value, raw.content_type)
    except wire.WireError as error:
        return error

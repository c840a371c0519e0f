"""What follows from events of a run: what the incident book makes of them, the evidence, the request to stop.

`of_record` and `of_silence` find it out and may fail; `note` puts it into the transaction under way and cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from alerts.incidents import NO_BRIEFS, Plan
from collector.model import RawRecord
from rules.engine import Engine
from rules.model import AlertEvent
from service.evidence.clerk import Looked
from service.judging import Judged
from service.live import Live
from service.parts import Parts
from service.pending import Pending
from service.stop_requests import Stop, heard, news, watched
from tocsin import wire

NOTHING: Final = Plan()


class Told(NamedTuple):
    """What follows from a record or from silence."""

    events: Sequence[AlertEvent]
    plan: Plan
    stop: Stop | None
    looked: Looked | None = None


def of_record(
    parts: Parts, engine: Engine, live: Live, raw: RawRecord, record: wire.Record, judged: Judged, now: float, caught_up: bool
) -> Told:
    """What a record leads to beside its own row. `caught_up`: nothing waited before it."""
    events, stop = judged.events, live.stop
    if stop is not None:
        outcome = judged.applied.outcome
        stop, more = heard(stop, live.run, raw, record, outcome, events, now, caught_up=caught_up)
        events = [*events, *more]
    return _plan(parts, engine, live, stop, events, now, record.attempt)


def of_silence(parts: Parts, engine: Engine, live: Live, events: Sequence[AlertEvent], now: float) -> Told:
    """What events lead to that no record caused."""
    stop = live.stop
    if stop is not None:
        stop, more = watched(stop, live.run, events, now)
        events = [*events, *more]
    return _plan(parts, engine, live, stop, events, now, 0)


def note(parts: Parts, live: Live, told: Told, pending: Pending, now: float) -> None:
    """Put it into the transaction under way."""
    pending.planned(told.events, told.plan)
    if parts.clerk is not None and told.looked is not None:
        parts.clerk.note(live, told.looked, told.plan, pending.evidence, now)
    if told.stop is not None and told.stop is not live.stop:
        live.stop = pending.stops[live.run.run] = told.stop


def _plan(
    parts: Parts, engine: Engine, live: Live, stop: Stop | None, events: Sequence[AlertEvent], now: float, declared: int
) -> Told:
    if not events and stop is live.stop:
        return Told(events, NOTHING, stop)
    book, plan, looked = parts.book, NOTHING, None
    if events:
        looked = None if parts.clerk is None else parts.clerk.look(live, engine, events, now)
        plan = book.apply(events, now, NO_BRIEFS if looked is None else looked.briefs)
        if parts.stops is not None:
            stop, rows = parts.stops.ask(stop, live.run, events, plan, now, declared=declared)
            plan = plan._replace(deliveries=[*plan.deliveries, *rows])
    if stop is not None and stop is not live.stop and (said := news(live.stop, stop, now)):
        plan = plan.followed_by(book.remark(stop.incident, said, now))
    return Told(events, plan, stop, looked)

"""One record of one run: fold it in, then judge it. The order of things here is what a replay and a live run share.

1. Silence that had become a stall before the record came is judged at exactly its deadline.
2. The record is folded; values of `record:` rules follow it into the run.
3. The end of a run ends its alerts; the last record is then judged once more, so that `run ended badly` can stand.
4. Rules that the row calls for are judged; what breaches is kept out of baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from collector.applied import Applied, Outcome
from collector.model import RawRecord, RunStatus
from rules.engine import Engine, Evaluation
from rules.model import AlertEvent, RuleHealth
from service.live import ClockKind, Facts, Live, arrival
from tocsin import wire


class Judged(NamedTuple):
    """What one record led to."""

    applied: Applied
    events: Sequence[AlertEvent]
    health: Sequence[RuleHealth]
    facts: Facts


def judge(
    live: Live, raw: RawRecord, record: wire.Record, engine: Engine, *, clock: ClockKind, now: float, silence: bool
) -> Judged:
    """Fold and judge one record; `live` is changed.

    `now` (wall time) is only noted in events; where the clock is the event time, that is noted instead, so that a replay
    repeats itself. `silence` says whether the time before this record was one in which nothing was waiting to be read.
    """
    arrived = arrival(raw, record, clock)
    noted = record.time if clock == "event" else now
    events: list[AlertEvent] = []
    health: list[RuleHealth] = []
    run = live.run
    if silence and (deadline := run.stall_at) is not None and arrived > deadline and live.ticked != deadline:
        _take(stall(live, engine, deadline), events, health)
    applied = run.apply(record, received_at=raw.received_at, arrival=arrived)
    if not applied.outcome.changed or isinstance(record, wire.RunRecord):
        return Judged(applied, _linked(events, live), health, Facts())
    recorded = engine.record(run)
    if recorded:
        run.extend(recorded)
    if applied.outcome is Outcome.ENDED:
        _take(engine.finish(run, live.states, noted, f"run_{run.status}"), events, health)
    found = engine.evaluate(run, live.states, noted)
    if found.breaching:
        run.mark_breaching(found.breaching)
    _take(found, events, health)
    return Judged(applied, _linked(events, live), health, Facts(recorded, found.breaching))


def stall(live: Live, engine: Engine, deadline: float) -> Evaluation:
    """Judge silence at the moment at which it became a stall."""
    live.ticked = deadline
    return engine.tick(live.run, live.states, deadline)


def ticks(live: Live, engine: Engine, now: float) -> Evaluation | None:
    """Judge silence if its deadline has passed by `now` and was not judged yet; None when there is nothing to say."""
    deadline = live.run.stall_at
    if deadline is None or now <= deadline or live.ticked == deadline or live.run.status is not RunStatus.RUNNING:
        return None
    found = stall(live, engine, deadline)
    return found._replace(events=_linked(found.events, live))


def _take(found: Evaluation, events: list[AlertEvent], health: list[RuleHealth]) -> None:
    events += found.events
    health += found.health


def _linked(events: Sequence[AlertEvent], live: Live) -> Sequence[AlertEvent]:
    """Events with the links of their run, which rules do not know."""
    links = live.run.links
    return [replace(event, links=dict(links)) for event in events] if links and events else events

"""Events as the incident book sees them: cut into moments (those of one record), beginnings before ends, shadow as silence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from alerts.identity import fingerprint
from rules.model import SHADOW, AlertEvent, EventState


def moments(events: Sequence[AlertEvent]) -> Iterator[list[AlertEvent]]:
    """The events of each record of each run, in the order in which they came."""
    return (list(moment) for _, moment in groupby(map(_shadowed, events), key=_moment))


def beginnings_first(events: Sequence[AlertEvent]) -> list[tuple[str, AlertEvent]]:
    """The events of a moment with their fingerprints; an alert's resolve goes last, if it is the last word on that alert."""
    pairs = [(fingerprint(event), event) for event in events]
    last = {print_: index for index, (print_, _) in enumerate(pairs)}
    ends = {index for index in last.values() if pairs[index][1].state is EventState.RESOLVED}
    return [pair for index, pair in enumerate(pairs) if index not in ends] + [pairs[index] for index in sorted(ends)]


def _shadowed(event: AlertEvent) -> AlertEvent:
    """What is in shadow does not fire. An end that nobody waits for is passed over in the book."""
    if event.explained_by == SHADOW and event.state is EventState.EXPLAINED:
        return replace(event, state=EventState.RESOLVED, reason="the rule is in shadow", explained_by="")
    return event


def _moment(event: AlertEvent) -> tuple[str, int, int, int, float]:
    return event.run, event.attempt, event.record, event.step, event.event_time

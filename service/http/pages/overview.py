"""The first page: what is open, then all runs, the sick ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from alerts.model import Incident
from collector.model import RunStatus
from rules.model import AlertEvent, EventState, Severity
from service.http.pages.summary import Summary, summarised
from service.http.pages.words import LOUDNESS
from service.store.model import RunRow

MAX_RUNNING: Final = 200
"""A page of more would take its reader, and the machine, longer than what stands on it is worth."""
MAX_ENDED: Final = 50


class RunLine(NamedTuple):
    """A run with what fires on it."""

    run: RunRow
    alerts: Sequence[AlertEvent]
    """The loudest first, then by layer; what is explained comes last."""
    worst: Severity | None
    """The loudest that is not explained."""
    heard: float
    """Seconds since its last record."""

    @property
    def explained(self) -> int:
        return sum(event.state is EventState.EXPLAINED for event in self.alerts)


def overview(
    runs: Sequence[RunRow], firing: Sequence[AlertEvent], incidents: Sequence[Incident], trouble: Sequence[str], now: float
) -> dict[str, Any]:
    """What the template is given. Alerts of no listed run and no open incident come apart."""
    by_run: dict[str, list[AlertEvent]] = {}
    for event in firing:
        by_run.setdefault(event.run, []).append(event)
    lines = [_line(row, by_run.pop(row.run, []), now) for row in runs]
    lines.sort(key=lambda line: _rank(line.worst))
    summaries = [summarised(incident, now) for incident in incidents if incident.alerts]
    summaries.sort(key=lambda each: (not each.waits, LOUDNESS[each.severity]))
    known = {incident.run for incident in incidents}
    running: list[RunLine] = []
    ended: list[RunLine] = []
    for line in lines:
        (running if line.run.status is RunStatus.RUNNING or line.worst is not None else ended).append(line)
    return {
        "incidents": summaries[:MAX_RUNNING],
        "incidents_more": max(0, len(summaries) - MAX_RUNNING),
        "running": running[:MAX_RUNNING],
        "running_more": max(0, len(running) - MAX_RUNNING),
        "ended": ended[:MAX_ENDED],
        "ended_more": max(0, len(ended) - MAX_ENDED),
        "others": [event for run, events in by_run.items() if run not in known for event in events],
        "trouble": list(trouble),
        "sentence": sentence(summaries),
    }


def sentence(summaries: Sequence[Summary]) -> str:
    """The state of everything in one sentence, for the title, and for who hears the page instead of seeing it."""
    if not summaries:
        return "No open incident"
    waiting = [each for each in summaries if each.waits and each.severity.pages]
    count = f"{len(summaries):,} open incident{'' if len(summaries) == 1 else 's'}"
    return f"{count}, {len(waiting):,} of severity page or stop not acknowledged" if waiting else count


def ordered(alerts: Sequence[AlertEvent]) -> list[AlertEvent]:
    """What fires by itself first, the loudest first, then by layer."""
    return sorted(
        alerts, key=lambda event: (event.state is EventState.EXPLAINED, LOUDNESS[event.severity], event.layer, event.alert)
    )


def _line(row: RunRow, alerts: list[AlertEvent], now: float) -> RunLine:
    loud = [event.severity for event in alerts if event.state is EventState.FIRING]
    worst = min(loud, key=LOUDNESS.__getitem__) if loud else None
    return RunLine(row, ordered(alerts), worst, max(0.0, now - row.last_arrival))


def _rank(worst: Severity | None) -> int:
    return len(LOUDNESS) if worst is None else LOUDNESS[worst]

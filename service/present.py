"""Alert events, runs and incidents as plain values for JSON: numbers are safe, non-finite ones are spelled as on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from alerts.model import Incident, Storm
from rules.model import AlertEvent
from service.stop_requests import Stop
from service.store.model import AlertRow, RunRow
from tocsin.wire import spell


def replay_line(event: AlertEvent) -> dict[str, Any]:
    """One line of `tocsin replay --json`; its keys are a contract with scripts."""
    return {
        "run": event.run,
        "alert": event.alert,
        "id": event.id,
        "severity": event.severity.value,
        "layer": event.layer,
        "state": event.state.value,
        "step": event.step,
        "record": event.record,
        "value": spell(event.value),
        "limit": spell(event.limit),
        "verdict": event.verdict.value,
    }


def alert(event: AlertEvent) -> dict[str, Any]:
    """An alert with all that a reader of the API needs."""
    return replay_line(event) | {
        "labels": event.labels,
        "attempt": event.attempt,
        "episode": event.episode,
        "reason": event.reason,
        "summary": event.summary,
        "next": list(event.next),
        "runbook": event.runbook,
        "explained_by": event.explained_by,
        "event_time": event.event_time,
        "evaluated_at": event.evaluated_at,
        "run_labels": event.run_labels,
        "links": event.links,
    }


def logged(row: AlertRow) -> dict[str, Any]:
    """A line of the event log; `sequence` is what `before=` takes to page on."""
    return {"sequence": row.sequence, "committed_at": row.committed_at} | alert(row.event)


def run(row: RunRow, firing: int, asked: Stop | None = None) -> dict[str, Any]:
    """A run in the list of runs."""
    return {
        "run": row.run,
        "state": row.status.value,
        "attempt": row.attempt,
        "step": row.step,
        "record": row.record,
        "last_record_at": row.last_arrival,
        "labels": dict(row.labels),
        "firing": firing,
        "stop": stop(asked),
    }


def stop(asked: Stop | None) -> dict[str, Any] | None:
    """A request to stop, and what became of it; None for none. Without `over` its acknowledgement is waited for."""
    if asked is None:
        return None
    request = asked.request
    return {
        "id": request.id,
        "rule": request.rule,
        "step": request.step,
        "reason": request.reason,
        "action": request.action,
        "requested_at": request.requested_at,
        "expires_at": request.expires_at,
        "acknowledged_at": asked.acknowledged_at,
        "acknowledged_step": None if asked.acknowledged_at is None else asked.acknowledged_step,
        "void": asked.void,
        "over": asked.over,
        "unanswered": asked.unanswered,
        "earlier": [msgspec.to_builtins(each) for each in asked.earlier],
    }


def _storm(found: Storm) -> dict[str, Any]:
    return {"joined": found.joined, "over": found.over, "incidents": list(found.members)}


def incident(found: Incident, asked: Stop | None = None) -> dict[str, Any]:
    """An incident with the alerts in it; `asked` is the newest request to its run, and shown if it was made in it."""
    return {
        "id": found.id,
        "run": found.run,
        "opened_at": found.opened_at,
        "opened_step": found.opened_step,
        "closed_at": found.closed_at,
        "acknowledged": None if found.acknowledged is None else msgspec.to_builtins(found.acknowledged),
        "stop": stop(asked) if asked is not None and asked.incident == found.id else None,
        "storm": None if found.storm is None else _storm(found.storm),
        "alerts": [
            {
                "alert": told.alert,
                "id": told.id,
                "labels": told.labels,
                "severity": told.severity.value,
                "layer": told.layer,
                "firing": told.firing,
                "explained_by": told.explained_by,
                "muted_by": told.muted_by,
                "closed_by": told.closed_by,
                "told": list(told.receivers),
                "told_through": told.storm,
            }
            for told in found.alerts.values()
        ],
    }

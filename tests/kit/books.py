"""Events of an incident book in short, and what it says."""

from __future__ import annotations

from typing import Any

from alerts.incidents import Plan
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event


def at(step: int, alert: str, state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    """An event of the run at a step; each step is a moment of its own."""
    return event(alert=alert, state=state, step=step, record=step, event_time=1000.0 + step, **changes)


def warns(step: int, alert: str, **changes: Any) -> AlertEvent:
    return at(step, alert, severity=Severity.WARNING, **changes)


def resolves(step: int, alert: str, **changes: Any) -> AlertEvent:
    return at(step, alert, EventState.RESOLVED, **changes)


def explained(step: int, alert: str, by: str, **changes: Any) -> AlertEvent:
    return at(step, alert, EventState.EXPLAINED, explained_by=by, **changes)


def said(plan: Plan) -> list[tuple[str, str, str]]:
    return [(row.receiver, row.action.value, row.event.alert) for row in plan.deliveries]

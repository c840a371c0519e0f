"""For how long nobody has had an incident in hand: what escalation goes by. Part of the planner (`alerts.incidents`)."""

from __future__ import annotations

from alerts.model import Incident


def in_hand(incident: Incident, now: float) -> bool:
    """Whether an acknowledgement is in force."""
    return incident.acknowledged is not None and now < incident.acknowledged.until


def unattended(incident: Incident, now: float) -> float:
    """A clock in seconds that stands still while the incident is acknowledged; only differences of it mean anything."""
    return now - attended(incident, now)


def attended(incident: Incident, now: float) -> float:
    """For how many seconds of its life until `now` it was acknowledged."""
    current = incident.acknowledged
    since = 0.0 if current is None else max(0.0, min(now, current.until) - current.at)
    return incident.attended + since

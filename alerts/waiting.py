"""Alerts that wait for others: what pages nobody is told a little later, together with what begins meanwhile.

Part of the planner, whose rules stand in `alerts.incidents`. Functions over an incident that is being changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from alerts.model import Group, Incident


def join(incident: Incident, receiver: str, fingerprint: str, now: float, wait: float) -> None:
    """The alert waits for the receiver's next message: of the group that waits already, else for `wait` seconds."""
    group = incident.groups.get(receiver) or Group(since=now, wait=wait)
    if fingerprint not in group.alerts:
        incident.groups[receiver] = replace(group, alerts=[*group.alerts, fingerprint])


def waits(incident: Incident, receiver: str, fingerprint: str) -> bool:
    """Whether the alert waits for this receiver."""
    return receiver in incident.groups and fingerprint in incident.groups[receiver].alerts


def leave(incident: Incident, fingerprint: str) -> None:
    """The alert waits no more, for nobody: it is over, explained, muted or closed by hand."""
    for receiver, group in list(incident.groups.items()):
        if fingerprint not in group.alerts:
            continue
        if left := [other for other in group.alerts if other != fingerprint]:
            incident.groups[receiver] = replace(group, alerts=left)
        else:
            del incident.groups[receiver]


def over(group: Group, now: float) -> bool:
    """Whether it has waited long enough. A clock that was set back behind its beginning holds nothing up."""
    return not group.since <= now < group.since + group.wait

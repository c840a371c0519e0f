"""One alert within its incident: what an event makes of it, and whether people are told of it. Part of the planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from alerts.model import Told
from rules.model import AlertEvent, EventState, Severity

UNMUTED: Final[Mapping[str, Any]] = {"muted_by": "", "muted_until": None, "untold": None}
"""The fields of one that nothing mutes."""


def fired(known: Told | None, event: AlertEvent) -> Told:
    """The alert after an event that is no end; `known` is what the incident has of it."""
    explained_by = event.explained_by if event.state is EventState.EXPLAINED else ""
    if known is not None and known.firing:
        # Name, severity and layer may have been edited; the episode stays the one under which receivers were told.
        edited = {"alert": event.alert, "severity": event.severity, "layer": event.layer, "event": event}
        return replace(known, **edited, explained_by=explained_by, **UNMUTED)
    # A rule that lost its state counts its episodes anew; within an incident they must not repeat.
    episode = event.episode if known is None else max(event.episode, known.episode + 1)
    return Told(
        alert=event.alert,
        id=event.id,
        labels=event.labels,
        severity=event.severity,
        layer=event.layer,
        explained_by=explained_by,
        episode=episode,
        event=event,
    )


def speaks(told: Told) -> bool:
    """Whether it is of those alerts of which people are told, unless something mutes it."""
    loud = told.event is not None and told.severity is not Severity.INFO
    return told.firing and loud and not told.explained_by and not told.closed_by

"""A mute, and the two things that people declare: a silence and a maintenance window."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from alerts.matching import MatchEntry
from alerts.muting.hours import Hours


class Mute(NamedTuple):
    """Why an alert is told to nobody now."""

    by: str
    """For people: `silence 4f2a91c0`, `maintenance cluster-upgrade`, `quiet hours`."""
    until: float | None
    """When to look again, in seconds since the epoch. It may end before, when somebody lifts it; or another takes over then."""


class Silence(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Somebody knows of these alerts and answers for their silence until `expires_at`."""

    id: str
    match: MatchEntry
    owner: str
    reason: str
    starts_at: float
    expires_at: float
    """Exclusive; seconds since the epoch."""
    place: str = ""
    """`silences.yaml:3:5` for one that stands in a file; empty for one that was made while the collector ran."""

    def state(self, now: float) -> str:
        """`pending`, `active` or `expired`."""
        return "expired" if now >= self.expires_at else "active" if now >= self.starts_at else "pending"


class Window(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Planned work: its alerts are told when it is over, if they still fire then."""

    name: str
    match: MatchEntry
    owner: str
    reason: str
    hours: Hours
    place: str = ""
    """As in `Silence`."""

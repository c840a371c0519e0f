"""An incident in one line: how loud it is, which of its alerts leads, who has it in hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from alerts.board import state_of
from alerts.model import Acknowledgement, Incident, LineState, Told
from rules.model import Severity
from service.http.pages.words import LOUDNESS

_ORDER: Final = (LineState.FIRING, LineState.MUTED, LineState.EXPLAINED, LineState.RESOLVED)
_WORTH: Final = {state: rank for rank, state in enumerate(_ORDER)}


class Member(NamedTuple):
    """One alert of an incident."""

    told: Told
    state: LineState
    step: int
    """At which it was last heard of while it fired."""


class Summary(NamedTuple):
    """What a list says of an incident, and the head of its page."""

    incident: Incident
    severity: Severity
    """The loudest that fires; of one that is over, the loudest there was."""
    lead: Member
    """Of what fires by itself the loudest, then the one of the earliest layer."""
    members: Sequence[Member]
    """All alerts, the lead first."""
    acknowledged: Acknowledgement | None
    """While it is in force."""
    lasted: float
    """Seconds from its beginning to now, or to its end."""

    @property
    def is_open(self) -> bool:
        return self.incident.closed_at is None

    @property
    def by_hand(self) -> str:
        """Who has resolved it while something in it fires on; empty when nobody has, or when it is over."""
        if not self.is_open or self.lead.state is not LineState.RESOLVED:
            return ""
        return next((each.told.closed_by for each in self.members if each.told.firing and each.told.closed_by), "")

    @property
    def waits(self) -> bool:
        """Whether it is for somebody to take it in hand."""
        return self.is_open and self.acknowledged is None and not self.by_hand

    @property
    def others(self) -> int:
        """Alerts beside the lead."""
        return len(self.members) - 1


def summarised(incident: Incident, now: float) -> Summary:
    """`now` in seconds since the epoch. An incident has at least one alert."""
    members = [_member(told, incident) for told in incident.alerts.values()]
    members.sort(key=lambda each: (_WORTH[each.state], LOUDNESS[each.told.severity], each.told.layer, each.told.alert))
    loud = [each.told.severity for each in members if each.state is LineState.FIRING]
    severities = loud or [each.told.severity for each in members]
    said = incident.acknowledged
    return Summary(
        incident,
        min(severities, key=LOUDNESS.__getitem__),
        members[0],
        members,
        said if said is not None and incident.closed_at is None and now < said.until else None,
        max(0.0, (now if incident.closed_at is None else incident.closed_at) - incident.opened_at),
    )


def _member(told: Told, incident: Incident) -> Member:
    return Member(told, state_of(told), incident.opened_step if told.event is None else told.event.step)

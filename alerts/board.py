"""The alerts of an incident as they stand: what every row to a page carries."""

from __future__ import annotations

from typing import Final

from alerts.model import BoardLine, Incident, LineState, Storm, Told
from alerts.notes import listed
from rules.model import Severity

MAX_LINES: Final = 20

_WORTH: Final = {state: rank for rank, state in enumerate(LineState)}
_LOUDNESS: Final = {severity: rank for rank, severity in enumerate(Severity)}


def board(incident: Incident) -> tuple[BoardLine, ...]:
    """One line per alert, in the order in which they began; info that nobody was told of is left out. Of more than MAX_LINES
    those stay that matter most: what fires before what is explained, over or muted, then the loudest."""
    if incident.storm is not None:
        return _runs(incident.storm)
    lines = [_line(told, incident) for told in incident.alerts.values() if told.severity is not Severity.INFO or told.receivers]
    if len(lines) <= MAX_LINES:
        return tuple(lines)
    ranked = sorted(range(len(lines)), key=lambda at: (_WORTH[lines[at].state], -_LOUDNESS[lines[at].severity], at))
    return tuple(lines[at] for at in sorted(ranked[:MAX_LINES]))


def _runs(storm: Storm) -> tuple[BoardLine, ...]:
    """The loudest incidents of a storm, of equally loud ones those that joined first."""
    loudest = sorted(storm.members.values(), key=lambda member: -_LOUDNESS[member.severity])[:MAX_LINES]
    return tuple(
        BoardLine(
            alert=f"{member.run}: {listed(list(member.alerts.values()), ', ')}",
            severity=member.severity,
            layer=0,
            state=LineState.FIRING,
            step=member.step,
        )
        for member in loudest
    )


def _line(told: Told, incident: Incident) -> BoardLine:
    heard = told.event
    return BoardLine(
        alert=told.alert,
        severity=told.severity,
        layer=told.layer,
        state=state_of(told),
        step=incident.opened_step if heard is None else heard.step,
        value=None if heard is None else heard.value,
    )


def state_of(told: Told) -> LineState:
    """How an alert stands within its incident."""
    if not told.firing or told.closed_by:
        return LineState.RESOLVED
    if told.explained_by:
        return LineState.EXPLAINED
    return LineState.MUTED if told.muted_by else LineState.FIRING

"""A storm: so many incidents at once that further ones are told together, as one incident of a run of the collector's own.

Part of the planner, whose rules stand in `alerts.incidents`. The gate says when; the functions change a storm's incident, which
is otherwise told, acknowledged, escalated, reminded of and ended like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import msgspec
from msgspec.structs import replace

from alerts.identity import fingerprint
from alerts.model import Incident, Member, Storm, Told
from alerts.notes import listed, roughly
from alerts.timing import StormLimit
from rules.model import AlertEvent, EventState, Severity, Verdict

STORM: Final = "tocsin-storm"
"""Rule id of a storm's alert; under it the gate's state is kept."""
_PAGING: Final = "tocsin-storm-pages"
"""And of the one that follows it when something that pages joins what nobody was paged for."""
_ALERT: Final = "TocsinStorm"
_NEXT: Final = ("Look for what these runs share: a verifier, a cluster, a deployment, a data set.",)
_LOUDNESS: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Gate:
    """Which incidents were told lately. Without a name of the collector (a replay) it is always open."""

    def __init__(self, own: str) -> None:
        self.run = f"{own}.storm" if own else ""
        """The run of the storms' incidents."""
        self._exempt = frozenset((own, f"{own}.canary", self.run))
        self._recent: list[float] = []
        self._changed = False

    def concerns(self, incident: Incident) -> bool:
        """Whether it is of those that may join: not what the collector says of itself."""
        return bool(self.run) and incident.run not in self._exempt

    def is_full(self, limit: StormLimit | None, now: float) -> bool:
        """Whether so many incidents were told lately that the next one joins the storm."""
        if limit is None or not self.run:
            return False
        return sum(0.0 <= now - at < limit.within for at in self._recent) >= limit.incidents

    def count(self, limit: StormLimit | None, now: float) -> None:
        """One more was told."""
        if limit is not None and self.run:
            self._recent = [*self._recent, now][-limit.incidents :]
            self._changed = True

    def dump(self) -> bytes | None:
        """The state, if it has changed since it was last asked for."""
        changed, self._changed = self._changed, False
        return msgspec.msgpack.encode(self._recent) if changed else None

    def load(self, value: bytes | None) -> None:
        """Go on from a stored state; None begins anew."""
        self._recent = msgspec.msgpack.decode(value, type=list[float]) if value else []
        self._changed = False


def begun(run: str, number: int, now: float) -> Incident:
    """A storm that nobody has joined."""
    id_ = f"{run}#{number}"
    return Incident(id=id_, run=run, number=number, opened_at=now, opened_step=0, kind="storm", storm=Storm(told_at=now))


def join(incident: Incident, member: Incident, prints: Collection[str], limit: StormLimit | None, now: float) -> str:
    """These alerts of an incident are told through the storm; gives the fingerprint of the storm's own alert."""
    storm = incident.storm
    assert storm is not None, "only of kind storm"
    known = storm.members.get(member.id)
    alerts = {} if known is None else dict(known.alerts)
    alerts |= {print_: member.alerts[print_].alert for print_ in prints}
    loudest = max(prints, key=lambda print_: _LOUDNESS[member.alerts[print_].severity])
    severity, heard = member.alerts[loudest].severity, member.alerts[loudest].event
    if known is not None and _LOUDNESS[known.severity] > _LOUDNESS[severity]:
        severity = known.severity
    step = member.opened_step if heard is None else heard.step
    entry = Member(run=member.run, alerts=alerts, severity=severity, step=step)
    incident.storm = replace(storm, members={**storm.members, member.id: entry}, joined=storm.joined + (known is None))
    return _heard(incident, severity, heard, limit, now)


def leave(incident: Incident, member: str, prints: Collection[str] | None = None) -> bool:
    """These alerts of a member, or all of it, are over. Whether anything changed."""
    storm = incident.storm
    known = None if storm is None else storm.members.get(member)
    if storm is None or known is None:
        return False
    left = {} if prints is None else {key: name for key, name in known.alerts.items() if key not in prints}
    if left == known.alerts:
        return False
    members = {id_: replace(known, alerts=left) if id_ == member else each for id_, each in storm.members.items()}
    if not left:
        del members[member]
    incident.storm = replace(storm, members=members)
    return True


def counts(storm: Storm) -> tuple[int, int]:
    """Joined and over."""
    return storm.joined, storm.over


def is_of_storm(event: AlertEvent) -> bool:
    """Whether an event is about a storm's own alert."""
    return event.id in (STORM, _PAGING)


def _heard(incident: Incident, severity: Severity, like: AlertEvent | None, limit: StormLimit | None, now: float) -> str:
    """The storm's own alert as it is now: as loud as the loudest that ever joined, and routed as that.

    When what joins pages for the first time, that is a further alert: whoever has the quiet one in an open page (it was
    escalated) is woken by it, as by any page that begins under a warning.
    """
    alerts = incident.alerts
    print_ = max(alerts, key=lambda each: _LOUDNESS[alerts[each].severity], default="")
    known = alerts.get(print_)
    if known is None or _LOUDNESS[severity] > _LOUDNESS[known.severity]:
        if known is None or (severity.pages and not known.severity.pages):
            id_ = STORM if known is None else _PAGING
            print_ = fingerprint(_event(incident, id_, severity, limit, now))
            known = Told(alert=_ALERT, id=id_, severity=severity, layer=0, episode=incident.number)
        alerts[print_] = replace(known, severity=severity, routed_as=like or known.routed_as)
    for each, told in alerts.items():
        alerts[each] = replace(told, event=_event(incident, told.id, told.severity, limit, now))
    return print_


def _event(incident: Incident, id_: str, severity: Severity, limit: StormLimit | None, now: float) -> AlertEvent:
    storm = incident.storm
    assert storm is not None, "only of kind storm"
    alerts = Counter(name for member in storm.members.values() for name in member.alerts.values())
    which = listed([f"{name} in {count}" for name, count in alerts.most_common()], ", ")
    beyond = "" if limit is None else f"more than {limit.incidents} incidents within {roughly(limit.within)}; "
    reason = f"{beyond}further ones are told here: {which}"
    return AlertEvent(
        run=incident.run,
        alert=_ALERT,
        id=id_,
        severity=severity,
        layer=0,
        state=EventState.FIRING,
        attempt=1,
        step=0,
        record=storm.joined,
        value=float(storm.joined),
        limit=None if limit is None else float(limit.incidents),
        verdict=Verdict.BREACH,
        reason=reason,
        summary=f"Tocsin: {reason}",
        next=_NEXT,
        episode=incident.number,
        event_time=now,
        evaluated_at=now,
    )

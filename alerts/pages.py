"""What the receivers of one incident are told, as rows: messages per alert, and pages that open, grow and close.

Part of the planner, whose rules stand in `alerts.incidents`; why somebody is told is `alerts.draft`'s to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from alerts.identity import alert_key, delivery_id, incident_key
from alerts.model import Action, Delivery, Incident, Page
from alerts.notes import GOES_ON, together
from rules.model import AlertEvent, EventState, Severity

_LOUDNESS: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Reach(NamedTuple):
    """What the planner has to know of a receiver."""

    scope: str = "alert"
    """"alert", "incident" or "thread", see `alerts.ports.Receiver`."""
    send_resolved: bool = True


class Pages:
    """The rows of one incident while it is being changed. `Page` is replaced, never changed in place."""

    def __init__(self, incident: Incident, reach: Mapping[str, Reach], now: float) -> None:
        self.rows: list[Delivery] = []
        self._incident = incident
        self._reach = reach
        self._now = now

    def reach(self, name: str) -> Reach:
        """Of a receiver that has left the configuration: that of one that hears of alerts."""
        return self._reach.get(name, Reach())

    def tell(self, name: str, prints: Sequence[str], note: str) -> None:
        """One receiver is told of alerts that fire, one or several: in a message each, or in one to its page."""
        if self.reach(name).scope == "alert":
            for print_ in prints:
                begun = (print_, self._incident.alerts[print_].episode)
                self._row(name, Action.TRIGGER, alert_key(print_), begun, begun, self._event(print_), note)
            return
        loudest = max(prints, key=self._loudness)  # of several the first
        page = self._incident.pages.get(name)
        if page is not None and self._has_to_wake(name, page, loudest):
            page = self._anew(name, page, loudest)
        new = [print_ for print_ in prints if page is None or print_ not in page.told]
        if page is None:
            page = self._opened(loudest)
        louder = self._loudness(loudest) > _LOUDNESS[page.severity]
        if new or louder:
            lead = loudest if louder else max(new, key=self._loudness)
            others = [self._incident.alerts[print_].alert for print_ in new if print_ != lead]
            identity = (lead, self._incident.alerts[lead].episode)
            begun = (page.fingerprint, page.episode)
            key = incident_key(self._incident.id)
            self._row(name, Action.TRIGGER, key, identity, begun, self._event(lead), together(note, others))
        self._incident.pages[name] = replace(
            page,
            severity=self._event(loudest).severity if louder else page.severity,
            told=[*page.told, *new],
            alerts=[*page.alerts, *(print_ for print_ in prints if print_ not in page.alerts)],
        )

    def _has_to_wake(self, name: str, page: Page, print_: str) -> bool:
        """Whether the receiver is to be woken by an alert, and would not be by a further word in the page that it has open."""
        reach = self.reach(name)
        wakes = self._incident.alerts[print_].severity.pages and not page.severity.pages
        return wakes and reach.scope == "incident" and reach.send_resolved

    def _anew(self, name: str, page: Page, print_: str) -> Page:
        """End a page that woke nobody and open one in its place, which stands for its alerts as well."""
        heard = self._event(page.alerts[0])
        event = replace(heard, severity=page.severity, state=EventState.RESOLVED, reason=GOES_ON)
        self._end(name, incident_key(self._incident.id), (page.fingerprint, page.episode), event, GOES_ON)
        return replace(self._opened(print_), alerts=page.alerts, told=[each for each in page.told if each != print_])

    def _opened(self, print_: str) -> Page:
        told = self._incident.alerts[print_]
        return Page(fingerprint=print_, episode=told.episode, severity=told.severity, opened_at=self._now)

    def resolve(self, name: str, print_: str, episode: int, event: AlertEvent, note: str) -> None:
        """One receiver that was told of this episode is told its end, at the latest with the last alert of its page."""
        page = self._incident.pages.get(name)
        if page is None or print_ not in page.alerts:
            self._end(name, alert_key(print_), (print_, episode), event, note)
        elif remaining := [other for other in page.alerts if other != print_]:
            self._incident.pages[name] = replace(page, alerts=remaining)
        else:
            del self._incident.pages[name]
            last = replace(event, severity=page.severity)
            self._end(name, incident_key(self._incident.id), (page.fingerprint, page.episode), last, note)

    def update(self, name: str, note: str, action: Action = Action.UPDATE) -> None:
        """A change of the incident, to an open page. Its count is the incident's `updates`."""
        page = self._incident.pages[name]
        heard = self._incident.alerts[page.alerts[0]].event
        if name in self._reach and heard is not None:
            begun = (page.fingerprint, page.episode)
            event = replace(heard, severity=page.severity)
            self._row(name, action, incident_key(self._incident.id), begun, begun, event, note, self._incident.updates)

    def _end(self, name: str, key: str, begun: tuple[str, int], event: AlertEvent, note: str) -> None:
        # A receiver that has left the configuration still gets its row: it fails there, visibly, instead of vanishing.
        if self.reach(name).send_resolved:
            self._row(name, Action.RESOLVE, key, begun, begun, event, note)

    def _loudness(self, print_: str) -> int:
        return _LOUDNESS[self._incident.alerts[print_].severity]

    def _event(self, print_: str) -> AlertEvent:
        heard = self._incident.alerts[print_].event
        assert heard is not None, "an alert that is told was heard"
        return heard

    def _row(
        self,
        name: str,
        action: Action,
        key: str,
        identity: tuple[str, int],
        begun: tuple[str, int],
        event: AlertEvent,
        note: str = "",
        count: int = 0,
    ) -> None:
        """`identity` makes the id; `begun` is what `DeliveryQueue.delivered` is asked for."""
        self.rows.append(
            Delivery(
                id=delivery_id(self._incident.id, *identity, action, name, count),
                receiver=name,
                action=action,
                incident=self._incident.id,
                dedup_key=key,
                fingerprint=begun[0],
                event=replace(event, episode=begun[1]),
                created_at=self._now,
                note=note,
            )
        )

"""One incident while one moment or one word of an operator is folded into it. Part of the planner, whose rules stand in
`alerts.incidents`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from alerts.brief import Brief
from alerts.identity import alert_key, delivery_id, incident_key
from alerts.model import Action, Delivery, Incident, Page, Told
from alerts.muting.model import Mute
from alerts.notes import listed, reminder
from rules.model import AlertEvent, EventState, Severity

Route = Callable[[AlertEvent], Sequence[str]]
"""Names of the receivers of an event, without repetition, in order."""
MuteBy = Callable[[AlertEvent, float], Mute | None]
"""Why an alert is told to nobody at a time (seconds since the epoch), if so."""

_LOUDNESS = {severity: rank for rank, severity in enumerate(Severity)}
_UNMUTED: Final[Mapping[str, Any]] = {"muted_by": "", "muted_until": None, "untold": None}


RemindBy = Callable[[AlertEvent, str], Sequence[float]]
"""After how many seconds a receiver is reminded of a page, ascending."""


class Reach(NamedTuple):
    """What the planner has to know of a receiver."""

    scope: str = "alert"
    """"alert", "incident" or "thread", see `alerts.model.Receiver`."""
    send_resolved: bool = True


class Draft:
    """One incident while one moment is folded into it. `Told` and `Page` are replaced, never changed in place."""

    def __init__(self, incident: Incident, route: Route, reach: Mapping[str, Reach], mute: MuteBy, now: float) -> None:
        self.incident = incident
        self.rows: list[Delivery] = []
        self._route = route
        self._reach = reach
        self._mute = mute
        self._now = now
        self._changes: dict[str, list[str]] = {}
        """What the open threads are still to be told, by receiver."""

    def apply(self, print_: str, event: AlertEvent) -> None:
        """Fold one event about the alert with this fingerprint."""
        if event.state is EventState.RESOLVED:
            self._resolve(print_, event)
            return
        before = self.incident.alerts.get(print_)
        told = self._fires(print_, event)
        if before is not None and before.firing and told.explained_by != before.explained_by:
            by = told.explained_by
            self._changed(told, print_, f"{told.alert} is explained by {by}" if by else f"{told.alert} fires by itself")
        if event.state is EventState.FIRING and event.severity is not Severity.INFO:
            told = self._tell_new(print_, told, event)
        self.incident.alerts[print_] = told

    def brief(self, print_: str, brief: Brief) -> None:
        """What is to be said of an alert beside its event."""
        if (told := self.incident.alerts.get(print_)) is not None:
            self.incident.alerts[print_] = replace(told, brief=brief)

    def look_again(self, print_: str) -> bool:
        """Tell an alert that was muted and is not any more. Whether anything is different now."""
        told = self.incident.alerts[print_]
        if told.untold is None:
            return False
        now = self._tell_new(print_, replace(told, **_UNMUTED), told.untold, f"{told.muted_by} ended, it still fires")
        self.incident.alerts[print_] = now
        return (now.muted_by, now.muted_until) != (told.muted_by, told.muted_until)

    def _tell_new(self, print_: str, told: Told, event: AlertEvent, note: str = "") -> Told:
        new = [name for name in self._route(event) if name not in told.receivers]
        if not new or told.closed_by:
            return told
        if (mute := self._mute(event, self._now)) is not None:
            return replace(told, muted_by=mute.by, muted_until=mute.until, untold=event)
        for name in new:
            self._tell(name, print_, told, event, note)
        return replace(told, receivers=[*told.receivers, *new])

    def _fires(self, print_: str, event: AlertEvent) -> Told:
        known = self.incident.alerts.get(print_)
        explained_by = event.explained_by if event.state is EventState.EXPLAINED else ""
        if known is not None and known.firing:
            # Name, severity and layer may have been edited; the episode stays the one under which receivers were told.
            edited = {"alert": event.alert, "severity": event.severity, "layer": event.layer, "event": event}
            return replace(known, **edited, explained_by=explained_by, **_UNMUTED)
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

    def update(self, note: str) -> None:
        """Tell every page of a change that is no alert's."""
        self.incident.updates += 1
        for name in self.incident.pages:
            self._update(name, note)

    def remind(self, name: str, after: Sequence[float]) -> bool:
        """Call an open page to mind, if the next of its reminders is due; of several that are, once. Whether it was."""
        page, acknowledged = self.incident.pages[name], self.incident.acknowledged
        told = self.incident.alerts[page.alerts[0]]
        if page.opened_at is None or told.event is None or (acknowledged is not None and self._now < acknowledged.until):
            return False
        open_for = self._now - page.opened_at
        over = sum(seconds <= open_for for seconds in after)
        if over <= page.reminded or self._mute(told.event, self._now) is not None:
            return False
        self.incident.pages[name] = replace(page, reminded=over)
        self.incident.updates += 1
        self._update(name, reminder(open_for), Action.REMIND)
        return True

    def finish(self) -> None:
        """At the end of the moment: tell the threads in one row each what else has changed about what they were told. One that
        has been closed meanwhile has heard the end of all of it."""
        changes = {name: notes for name, notes in self._changes.items() if name in self.incident.pages}
        self._changes = {}
        if changes:
            self.incident.updates += 1
        for name, notes in changes.items():
            self._update(name, listed(notes))

    def _update(self, name: str, note: str, action: Action = Action.UPDATE) -> None:
        page = self.incident.pages[name]
        told = self.incident.alerts[page.alerts[0]]
        if name in self._reach and told.event is not None:
            begun = (page.fingerprint, page.episode)
            event = replace(told.event, severity=page.severity)
            key = incident_key(self.incident.id)
            self._row(name, action, key, begun, begun, event, note, self.incident.updates)

    def _changed(self, told: Told, print_: str, note: str) -> None:
        """A change of an alert, for the open threads that were told of it and hear of ends."""
        for name in told.receivers:
            page, reach = self.incident.pages.get(name), self._reach.get(name, Reach())
            if page is not None and print_ in page.alerts and reach.scope == "thread" and reach.send_resolved:
                self._changes.setdefault(name, []).append(note)

    def close(self, print_: str, owner: str) -> None:
        """End a firing alert for everybody who was told, and tell nobody of it again."""
        told = self.incident.alerts[print_]
        if not told.firing or told.event is None or told.closed_by:
            return
        note = f"closed by {owner}"
        event = replace(told.event, state=EventState.RESOLVED, reason=note, event_time=self._now)
        self._resolve(print_, event, note)
        self.incident.alerts[print_] = replace(told, receivers=[], closed_by=owner, **_UNMUTED)

    def _tell(self, name: str, print_: str, told: Told, event: AlertEvent, note: str) -> None:
        if self._reach.get(name, Reach()).scope == "alert":
            self._row(name, Action.TRIGGER, alert_key(print_), (print_, told.episode), (print_, told.episode), event, note)
            return
        page = self.incident.pages.get(name)
        if page is None:
            page = Page(fingerprint=print_, episode=told.episode, severity=event.severity, opened_at=self._now)
        louder = _LOUDNESS[event.severity] > _LOUDNESS[page.severity]
        if print_ not in page.told or louder:
            key = incident_key(self.incident.id)
            self._row(name, Action.TRIGGER, key, (print_, told.episode), (page.fingerprint, page.episode), event, note)
        self.incident.pages[name] = replace(
            page,
            severity=event.severity if louder else page.severity,
            told=page.told if print_ in page.told else [*page.told, print_],
            alerts=[*page.alerts, print_],
        )

    def _resolve(self, print_: str, event: AlertEvent, note: str = "") -> None:
        told = self.incident.alerts.get(print_)
        if told is None or not told.firing:
            return
        self.incident.alerts[print_] = replace(told, firing=False, explained_by="", **_UNMUTED)
        self._changed(told, print_, f"{told.alert} resolved")
        # The end in the words of the beginning: the rule may have been renamed, or be gone with its name and severity.
        event = replace(event, alert=told.alert, severity=told.severity, layer=told.layer)
        for name in told.receivers:
            page = self.incident.pages.get(name)
            if page is None or print_ not in page.alerts:
                self._end(name, alert_key(print_), (print_, told.episode), event, note)
            elif remaining := [other for other in page.alerts if other != print_]:
                self.incident.pages[name] = replace(page, alerts=remaining)
            else:
                del self.incident.pages[name]
                last = replace(event, severity=page.severity)
                self._end(name, incident_key(self.incident.id), (page.fingerprint, page.episode), last, note)

    def _end(self, name: str, key: str, begun: tuple[str, int], event: AlertEvent, note: str) -> None:
        # A receiver that has left the configuration still gets its row: it fails there, visibly, instead of vanishing.
        if self._reach.get(name, Reach()).send_resolved:
            self._row(name, Action.RESOLVE, key, begun, begun, event, note)

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
                id=delivery_id(self.incident.id, *identity, action, name, count),
                receiver=name,
                action=action,
                incident=self.incident.id,
                dedup_key=key,
                fingerprint=begun[0],
                event=replace(event, episode=begun[1]),
                created_at=self._now,
                note=note,
            )
        )

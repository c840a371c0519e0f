"""Which incident an alert event belongs to, and who is to be told. A planner without effects: rows out, nothing sent.

The rules of the planner

1. An incident is the alerts of one run, from the first that fires until none does; the next one has the next number.
2. A receiver of scope "alert" gets one trigger for each episode of each alert routed to it, and one resolve.
3. A receiver of scope "incident" or "thread" gets one *page*: the first alert routed to it opens the page, the last of its
   alerts to resolve closes it. In between a further trigger with the same dedup key is planned only if it adds something: an
   alert of which the page has not told yet, or a severity above all it has told. It lands in the open page and never pages
   again; it is also the second chance when the first trigger was refused.
4. Resolve if and only if told: whatever happened in between (explained, re-routed, severity edited, restarted, reloaded),
   exactly the receivers in `Told.receivers` are told the end. Receivers with `send_resolved: false` are told nothing of it,
   but the episode is over for them too.
5. Events of rules in the rollout stage shadow never reach the book. To it, an alert whose rule is put into shadow while it
   fires is over, and one whose rule is taken out of it has begun.
6. Severity info, and alerts explained by an earlier layer, are kept in the incident and sent to nobody. An explained alert
   that fires again by itself is sent then, unless its receiver has been told of this episode already.
7. What is muted (silence, maintenance window, quiet hours) is kept in the incident and told to nobody new. When the mute ends
   and the alert still fires unexplained, `tick` tells it to whom it is routed then. If it is over before, nothing is said;
   who was told before the mute is told the end in spite of it.
8. An acknowledgement is told, as an update, to the pages of receivers of scope "incident" and "thread". It has an owner and an
   expiry and is over with the incident.
9. An incident that is closed by hand: all who were told are told the end, with who closed it. What fires on stays in the
   incident and is told to nobody until it has cleared and fires anew; an alert that is new to the incident is told as ever.

Within one moment (the events of one record) beginnings are planned before ends: when one alert hands over to another, the
page stays open instead of closing and paging again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from alerts.identity import alert_key, delivery_id, fingerprint, incident_key
from alerts.model import Acknowledgement, Action, Delivery, Incident, Page, Told
from alerts.muting.model import Mute
from rules.model import SHADOW, AlertEvent, EventState, Severity

Route = Callable[[AlertEvent], Sequence[str]]
"""Names of the receivers of an event, without repetition, in order."""
MuteBy = Callable[[AlertEvent, float], Mute | None]
"""Why an alert is told to nobody at a time (seconds since the epoch), if so."""

_LOUDNESS = {severity: rank for rank, severity in enumerate(Severity)}
_UNMUTED: Final[Mapping[str, Any]] = {"muted_by": "", "muted_until": None, "untold": None}


class Reach(NamedTuple):
    """What the planner has to know of a receiver."""

    scope: str = "alert"
    """"alert", "incident" or "thread", see `alerts.model.Receiver`."""
    send_resolved: bool = True


class Plan(NamedTuple):
    """What a batch of events changes; to be committed in one transaction with the input position."""

    incidents: Sequence[Incident] = ()
    """New or changed, as they are now. They are copies of the book's: later plans do not change them."""
    deliveries: Sequence[Delivery] = ()
    """New rows, in the order in which they are to leave."""

    @property
    def receivers(self) -> set[str]:
        """Whose workers to wake after the commit."""
        return {delivery.receiver for delivery in self.deliveries}


class IncidentBook:
    """The open incident of each run, in memory. After a failed commit: drop the book, make a new one, `restore`."""

    def __init__(self, route: Route, reach: Mapping[str, Reach], mute: MuteBy | None = None) -> None:
        """`mute` may answer otherwise as people change their minds; without it nothing is muted."""
        self._mute = mute or _nothing_mutes
        self.reconfigure(route, reach)
        self._open: dict[str, Incident] = {}
        self._numbers: dict[str, int] = {}

    def reconfigure(self, route: Route, reach: Mapping[str, Reach]) -> None:
        """Route by another configuration from the next event on; what was told stays told and will be ended."""
        self._route = route
        self._reach = dict(reach)

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Go on from stored incidents: the open one and the newest one of each run (they may be the same)."""
        for incident in incidents:
            self._numbers[incident.run] = max(self._numbers.get(incident.run, 0), incident.number)
            if incident.closed_at is None:
                self._open[incident.run] = incident

    def forget(self, run: str) -> None:
        """The run is another collector's now."""
        self._open.pop(run, None)
        self._numbers.pop(run, None)

    def open_incident(self, run: str) -> Incident | None:
        """The run's open incident; not to be changed by the caller."""
        return self._open.get(run)

    def apply(self, events: Sequence[AlertEvent], now: float) -> Plan:
        """Fold events into the book and plan the rows.

        `events` in the order of the log, all events of one record together; `now` (seconds since the epoch) becomes the rows'
        `created_at` and decides what is muted. How the events of several records are cut into calls does not matter.
        """
        changed: dict[str, Incident] = {}
        rows: list[Delivery] = []
        for _, moment in groupby(map(_shadowed, events), key=_moment):
            incident, planned = self._apply_moment(list(moment), now)
            rows += planned
            if incident is not None:
                changed[incident.id] = incident
        return Plan(list(changed.values()), rows)

    def tick(self, now: float) -> Plan:
        """Plan what has become due by `now` without an event: alerts whose mute has ended."""
        changed: list[Incident] = []
        rows: list[Delivery] = []
        for run in sorted(self._open):  # as after a restart, which restores them in another order
            if not self.waits(run):
                continue
            draft = self._draft(self._open[run], now)
            # A list, as all of them are to be looked at.
            if any([draft.look_again(print_) for print_ in list(draft.incident.alerts)]):
                self._open[run] = draft.incident
                changed.append(draft.incident)
                rows += [_with_explained(row, draft.incident) for row in draft.rows]
        return Plan(changed, rows)

    def acknowledge(self, incident: str, owner: str, until: float, note: str, now: float) -> Plan:
        """Somebody has this incident in hand until then (seconds since the epoch); `note` says so to people. Nothing when it
        is not open here."""
        found = self._by_id(incident)
        if found is None:
            return Plan()
        draft = self._draft(found, now)
        draft.incident.acknowledged = Acknowledgement(owner=owner, at=now, until=until)
        draft.update(note)
        return self._keep(draft)

    def close_by_hand(self, incident: str, owner: str, now: float) -> Plan:
        """Tell the end of everything that is told of this incident. Nothing when it is not open here."""
        found = self._by_id(incident)
        if found is None:
            return Plan()
        draft = self._draft(found, now)
        for print_ in list(draft.incident.alerts):
            draft.close(print_, owner)
        return self._keep(draft)

    def _by_id(self, incident: str) -> Incident | None:
        return next((found for found in self._open.values() if found.id == incident), None)

    def _keep(self, draft: _Draft) -> Plan:
        self._open[draft.incident.run] = draft.incident
        return Plan([draft.incident], [_with_explained(row, draft.incident) for row in draft.rows])

    def waits(self, run: str) -> bool:
        """Whether something about this run becomes due without an event: it must not be forgotten before."""
        found = self._open.get(run)
        return found is not None and any(told.untold is not None for told in found.alerts.values())

    def _draft(self, incident: Incident, now: float) -> _Draft:
        copy = replace(incident, alerts=dict(incident.alerts), pages=dict(incident.pages))
        return _Draft(copy, self._route, self._reach, self._mute, now)

    def _apply_moment(self, events: Sequence[AlertEvent], now: float) -> tuple[Incident | None, list[Delivery]]:
        first = events[0]
        found = self._open.get(first.run)
        if found is None:
            if all(event.state is EventState.RESOLVED for event in events):
                return None, []  # the end of something that never reached the book
            number = self._numbers.get(first.run, 0) + 1
            found = Incident(
                id=f"{first.run}#{number}", run=first.run, number=number, opened_at=first.event_time, opened_step=first.step
            )
        draft = self._draft(found, now)
        for print_, event in _beginnings_first(events):
            draft.apply(print_, event)
        incident = draft.incident
        self._numbers[first.run] = incident.number
        if any(told.firing for told in incident.alerts.values()):
            self._open[first.run] = incident
        else:
            incident.closed_at = first.event_time
            self._open.pop(first.run, None)
        return incident, [_with_explained(row, incident) for row in draft.rows]


class _Draft:
    """One incident while one moment is folded into it. `Told` and `Page` are replaced, never changed in place."""

    def __init__(self, incident: Incident, route: Route, reach: Mapping[str, Reach], mute: MuteBy, now: float) -> None:
        self.incident = incident
        self.rows: list[Delivery] = []
        self._route = route
        self._reach = reach
        self._mute = mute
        self._now = now

    def apply(self, print_: str, event: AlertEvent) -> None:
        if event.state is EventState.RESOLVED:
            self._resolve(print_, event)
            return
        told = self._fires(print_, event)
        if event.state is EventState.FIRING and event.severity is not Severity.INFO:
            told = self._tell_new(print_, told, event)
        self.incident.alerts[print_] = told

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
        for name, page in self.incident.pages.items():
            told = self.incident.alerts[page.alerts[0]]
            if name in self._reach and told.event is not None:
                begun = (page.fingerprint, page.episode)
                event = replace(told.event, severity=page.severity)
                key = incident_key(self.incident.id)
                self._row(name, Action.UPDATE, key, begun, begun, event, note, self.incident.updates)

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
            page = Page(fingerprint=print_, episode=told.episode, severity=event.severity)
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


def _nothing_mutes(_event: AlertEvent, _now: float) -> None:
    return None


def _shadowed(event: AlertEvent) -> AlertEvent:
    """The event as the book sees it: what is in shadow does not fire. An end that nobody waits for is passed over there."""
    if event.explained_by == SHADOW and event.state is EventState.EXPLAINED:
        return replace(event, state=EventState.RESOLVED, reason="the rule is in shadow", explained_by="")
    return event


def _moment(event: AlertEvent) -> tuple[str, int, int, int, float]:
    return event.run, event.attempt, event.record, event.step, event.event_time


def _beginnings_first(events: Sequence[AlertEvent]) -> list[tuple[str, AlertEvent]]:
    """The events of a moment with their fingerprints; an alert's resolve goes last, if it is the last word on that alert."""
    pairs = [(fingerprint(event), event) for event in events]
    last = {print_: index for index, (print_, _) in enumerate(pairs)}
    ends = {index for index in last.values() if pairs[index][1].state is EventState.RESOLVED}
    return [pair for index, pair in enumerate(pairs) if index not in ends] + [pairs[index] for index in sorted(ends)]


def _with_explained(row: Delivery, incident: Incident) -> Delivery:
    """The row's message names the alerts that its alert explains at the end of the moment."""
    name = row.event.alert
    explained = sorted({told.alert for told in incident.alerts.values() if told.explained_by == name})
    if explained:
        row.event = replace(row.event, explains=tuple(explained))
    return row

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
9. A receiver of scope "thread" is also told, in one update per moment, when alerts that it was told of resolve while others of
   its page fire on, become explained, or fire by themselves again; not with `send_resolved: false`. A mute is no reason for an
   update: what is muted stands on the board of the next row. Every row to a page carries the board.
10. An incident that is closed by hand: all who were told are told the end, with who closed it. What fires on stays in the
    incident and is told to nobody until it has cleared and fires anew; an alert that is new to the incident is told as ever.
11. What pages nobody waits a little (`Timing.wait`) for others of its incident, by receiver: then all that still fires is
    told, in one row to a page and in rows of their own to a receiver of scope "alert". What is over before is told to nobody.
    Pages and stops wait for nothing and take along what waits. A mute that ends, or a changed route, is told without a wait.
12. Nobody has acknowledged (`Timing.escalate`) so long after the first was told of an alert, and it fires: others are told of
    it, and of its end. The clock stands still while the incident is acknowledged, and goes on when that expires; what is muted
    or explained when it is due is told to them afterwards.
13. Routes that change while an alert fires: whom they name now and who was not told is told by the next tick. Who was told
    stays told and hears the end, a receiver that has left the configuration too: that row fails, for all to see.
14. A thread is reminded of its open page after each of the times that its route says; of several that have passed unsaid, once.
    While the incident is acknowledged or the alert that holds the page is muted, nothing is said; what became due is said then.

Within one moment (the events of one record) beginnings are planned before ends: when one alert hands over to another, the
page stays open instead of closing and paging again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.structs import replace

from alerts import notes
from alerts.board import board
from alerts.brief import Brief
from alerts.draft import Draft, MuteBy, Route, speaks
from alerts.escalation import attended
from alerts.identity import fingerprint, incident_key
from alerts.model import Acknowledgement, Delivery, Incident, Told
from alerts.pages import Reach
from alerts.timing import AT_ONCE, Timing
from rules.model import SHADOW, AlertEvent, EventState

NO_BRIEFS: Final[Mapping[str, Brief]] = {}

__all__ = ["IncidentBook", "MuteBy", "Plan", "Reach", "Route"]


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

    def __init__(self, route: Route, reach: Mapping[str, Reach], mute: MuteBy | None = None, timing: Timing = AT_ONCE) -> None:
        """`mute` may answer otherwise as people change their minds; without it nothing is muted."""
        self._mute = mute or _nothing_mutes
        self._open: dict[str, Incident] = {}
        self._numbers: dict[str, int] = {}
        self._unrouted: set[str] = set()
        """Runs whose alerts may be routed otherwise than when they began: to be looked at by the next tick."""
        self.reconfigure(route, reach, timing)

    def reconfigure(self, route: Route, reach: Mapping[str, Reach], timing: Timing = AT_ONCE) -> None:
        """Route by another configuration from now on; what was told stays told and will be ended."""
        self._route = route
        self._reach = dict(reach)
        self._timing = timing
        self._unrouted = set(self._open)

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Go on from stored incidents: the open one and the newest one of each run (they may be the same)."""
        for incident in incidents:
            self._numbers[incident.run] = max(self._numbers.get(incident.run, 0), incident.number)
            if incident.closed_at is None:
                self._open[incident.run] = incident
                self._unrouted.add(incident.run)  # the configuration may have changed since

    def forget(self, run: str) -> None:
        """The run is another collector's now."""
        self._open.pop(run, None)
        self._numbers.pop(run, None)
        self._unrouted.discard(run)

    def is_open(self, incident: str) -> bool:
        """Whether the incident with this id is open here."""
        return self._by_id(incident) is not None

    def open_incident(self, run: str) -> Incident | None:
        """The run's open incident; not to be changed by the caller."""
        return self._open.get(run)

    def apply(self, events: Sequence[AlertEvent], now: float, briefs: Mapping[str, Brief] = NO_BRIEFS) -> Plan:
        """Fold events into the book and plan the rows.

        `events` in the order of the log, all events of one record together; `now` (seconds since the epoch) becomes the rows'
        `created_at` and decides what is muted. `briefs`, by fingerprint, are what the rows of these alerts are to say beside
        their events, those too that a later tick plans. How the events of several records are cut into calls does not matter.
        """
        changed: dict[str, Incident] = {}
        rows: list[Delivery] = []
        for _, moment in groupby(map(_shadowed, events), key=_moment):
            incident, planned = self._apply_moment(list(moment), now, briefs)
            rows += planned
            if incident is not None:
                changed[incident.id] = incident
        return Plan(list(changed.values()), rows)

    def tick(self, now: float) -> Plan:
        """Plan what has become due by `now` without an event: what was muted and is not, what has waited long enough, what is
        routed otherwise, escalations and reminders."""
        changed: list[Incident] = []
        rows: list[Delivery] = []
        for run in sorted(self._open):  # as after a restart, which restores them in another order
            if not self.waits(run):
                continue
            draft = self._draft(self._open[run], now)
            if self._due(draft, run in self._unrouted):
                self._open[run] = draft.incident
                changed.append(draft.incident)
                rows += [_completed(row, draft.incident) for row in draft.rows]
        self._unrouted.clear()
        return Plan(changed, rows)

    def _due(self, draft: Draft, unrouted: bool) -> bool:
        """Whether anything was."""
        alerts = list(draft.incident.alerts)
        looked = [draft.look_again(print_) for print_ in alerts]  # lists, as all of them are to be looked at
        if unrouted:
            looked += [draft.route_anew(print_) for print_ in alerts]
        looked += [draft.end_wait(name) for name in list(draft.incident.groups)]
        looked.append(draft.escalate())
        looked += [draft.remind(name, after) for name, after in self._reminders(draft.incident)]
        return any(looked)

    def acknowledge(self, incident: str, owner: str, until: float, now: float, *, door: str = "", note: str = "") -> Plan:
        """Somebody has this incident in hand until then (seconds since the epoch); people are told `note`, or without one who
        it is and until when. Nothing when it is not open here. Raises ValueError, OverflowError for a time no calendar has."""
        found = self._by_id(incident)
        if found is None:
            return Plan()
        draft = self._draft(found, now)
        draft.incident.attended = attended(found, now)
        draft.incident.acknowledged = Acknowledgement(owner=owner, at=now, until=until, door=door)
        draft.update(note or notes.acknowledged(owner, until, now))
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

    def _keep(self, draft: Draft) -> Plan:
        draft.finish()
        self._open[draft.incident.run] = draft.incident
        return Plan([draft.incident], [_completed(row, draft.incident) for row in draft.rows])

    def waits(self, run: str) -> bool:
        """Whether something about this run becomes due without an event: it must not be forgotten before."""
        found = self._open.get(run)
        return found is not None and (run in self._unrouted or self.awaits(found))

    def awaits(self, incident: Incident) -> bool:
        """Whether something about an open incident becomes due without an event."""
        if incident.groups or any(told.untold is not None for told in incident.alerts.values()):
            return True
        if any(incident.pages[name].reminded < len(after) for name, after in self._reminders(incident)):
            return True
        return any(self._escalates(told) for told in incident.alerts.values())

    def _escalates(self, told: Told) -> bool:
        if told.told_at is None or told.event is None or not speaks(told):
            return False
        return any(name not in told.receivers for each in self._timing.escalate(told.event) for name in each.to)

    def _reminders(self, incident: Incident) -> list[tuple[str, Sequence[float]]]:
        """Of the open threads."""
        found = []
        for name, page in incident.pages.items():
            event = incident.alerts[page.alerts[0]].event
            if event is not None and page.opened_at is not None and self._reach.get(name, Reach()).scope == "thread":
                found.append((name, self._timing.remind(event, name)))
        return found

    def _draft(self, incident: Incident, now: float) -> Draft:
        copy = replace(incident, alerts=dict(incident.alerts), pages=dict(incident.pages), groups=dict(incident.groups))
        return Draft(copy, self._route, self._reach, self._mute, self._timing, now)

    def _apply_moment(
        self, events: Sequence[AlertEvent], now: float, briefs: Mapping[str, Brief]
    ) -> tuple[Incident | None, list[Delivery]]:
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
            if print_ in briefs:
                draft.brief(print_, briefs[print_])
        draft.finish()
        incident = draft.incident
        self._numbers[first.run] = incident.number
        if any(told.firing for told in incident.alerts.values()):
            self._open[first.run] = incident
        else:
            incident.closed_at = first.event_time
            self._open.pop(first.run, None)
        return incident, [_completed(row, incident) for row in draft.rows]


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


def _completed(row: Delivery, incident: Incident) -> Delivery:
    """The row with what is known at the end of the moment: its alert's brief, what that explains, on pages the board."""
    name = row.event.alert
    told = incident.alerts.get(fingerprint(row.event))
    row.brief = None if told is None else told.brief
    explained = sorted({told.alert for told in incident.alerts.values() if told.explained_by == name})
    if explained:
        row.event = replace(row.event, explains=tuple(explained))
    if row.dedup_key == incident_key(incident.id):
        row.board = board(incident)
    return row

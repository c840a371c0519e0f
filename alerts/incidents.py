"""Which incident an alert event belongs to, and who is to be told. A planner without effects: rows out, nothing sent.

The rules of the planner

1. An incident is the alerts of one run, from the first that fires until none does; the next one has the next number.
2. A receiver of scope "alert" gets one trigger for each episode of each alert routed to it, and one resolve.
3. A receiver of scope "incident" or "thread" gets one *page*: the first alert routed to it opens the page, the last of its
   alerts to resolve closes it. In between a further trigger with the same dedup key is planned only if it adds something: an
   alert of which the page has not told yet, or a severity above all it has told. It lands in the open page and never pages
   again; it is also the second chance when the first trigger was refused. One exception: under what pages nobody (an escalated
   warning) a further word wakes nobody, whoever has acknowledged it sleeps on. So when an alert that pages joins such a page,
   the page of scope "incident" is ended and opened anew as that alert's, once.
4. Resolve if and only if told: whatever happened in between (explained, re-routed, severity edited, restarted, reloaded),
   exactly the receivers in `Told.receivers` are told the end. Receivers with `send_resolved: false` are told nothing of it,
   but the episode is over for them too.
5. Events of rules in the rollout stage shadow never reach the book. To it, an alert whose rule is put into shadow while it
   fires is over, and one whose rule is taken out of it has begun.
6. Severity info, and alerts explained by an earlier layer, are kept in the incident and sent to nobody. An explained alert
   that fires again by itself is sent then, unless its receiver has been told of this episode already.
7. What is muted (silence, maintenance window, quiet hours) is kept in the incident and told to nobody new. When the mute ends
   and the alert still fires unexplained, `tick` tells it to whom it is routed then. If it is over before, nothing is said;
   who was told before the mute is told the end in spite of it. What was muted together is told together.
8. An acknowledgement is told, as an update, to the pages of receivers of scope "incident" and "thread". It has an owner and an
   expiry and is over with the incident.
9. A receiver of scope "thread" is also told, in one update per moment, when alerts that it was told of resolve while others of
   its page fire on, become explained, or fire by themselves again; not with `send_resolved: false`. A mute is no reason for an
   update: what is muted stands on the board of the next row. Every row to a page carries the board. Threads also hear
   remarks: what the job was asked, what it answered.
10. An incident that is closed by hand: all who were told are told the end, with who closed it. What fires on stays in the
    incident and is told to nobody until it has cleared and fires anew; an alert that is new to the incident is told as ever.
11. What pages nobody waits a little (`Timing.wait`) for others of its incident, by receiver: then all that still fires is
    told, in one row to a page and in rows of their own to a receiver of scope "alert". What is over before is told to nobody.
    Pages and stops wait for nothing and take along what waits. A mute that ends, or a changed route, is told without a wait.
12. Nobody has acknowledged (`Timing.escalate`) so long after the first was told of an alert, and it fires: others are told of
    it, and of its end. The clock stands still while the incident is acknowledged, and goes on when that expires; what is muted
    or explained when it is due is told to them afterwards.
13. Routes that change while an alert fires: whom they name now and who was not told is told by the next tick. Who was told
    stays told and hears the end, a receiver that has left the configuration too: if it cannot be made any more, its row fails
    for all to see. Names here are those under which receivers were told, whatever the file calls them by now (`renaming`).
14. A storm (`Timing.storm`): when so many incidents were told within so long, a further one that is not told yet joins the open
    storm, or opens one: an incident of a run of the collector's own, whose alert stands for all that joined; a second one when
    the first that pages joins after others. Whoever is to be told of a member is told of the storm, once; threads hear at a
    bounded rate how many there are. The storm is muted, escalated and reminded of as the loudest that joined. An alert that is
    told through a storm is ended through it: the storm is over when all of it is and no more are coming. A further alert of a
    member is told by itself once the rush is over. What the collector says of itself joins no storm.
15. A thread is reminded of its open page after each of the times that its route says; of several that have passed unsaid, once.
    While the incident is acknowledged or the alert that holds the page is muted, nothing is said; what became due is said then.

Within one moment (the events of one record) beginnings are planned before ends: when one alert hands over to another, the
page stays open instead of closing and paging again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from alerts import notes
from alerts.brief import Brief
from alerts.draft import Draft, MuteBy, Route
from alerts.due import Due, earliest, plan_due
from alerts.escalation import attended
from alerts.model import Acknowledgement, Incident
from alerts.moments import beginnings_first, moments
from alerts.open_incidents import OpenIncidents
from alerts.pages import Reach
from alerts.plan import Plan, completed
from alerts.storms import Storms
from alerts.timing import AT_ONCE, Timing
from rules.model import AlertEvent, EventState

NO_BRIEFS: Final[Mapping[str, Brief]] = {}

__all__ = ["IncidentBook", "MuteBy", "Plan", "Reach", "Route"]


class IncidentBook:
    """The open incident of each run, in memory. After a failed commit: drop the book, make a new one, `restore`."""

    def __init__(
        self,
        route: Route,
        reach: Mapping[str, Reach],
        mute: MuteBy | None = None,
        timing: Timing = AT_ONCE,
        *,
        own: str = "",
    ) -> None:
        """`mute` may answer otherwise as people change their minds; without it nothing is muted. `own` is the run of what the
        collector says of itself; without it there are no storms."""
        self._mute = mute or _nothing_mutes
        self._opened = OpenIncidents()
        self._storms = Storms(own, self._opened)
        self._unrouted: set[str] = set()
        """Runs whose alerts may be routed otherwise than when they began: to be looked at by the next tick."""
        self._due_at: dict[str, tuple[Incident, float | None]] = {}
        """Of runs that were looked at: when to look again, as long as their incident is this one."""
        self._latest = -math.inf
        self.reconfigure(route, reach, timing)

    def reconfigure(self, route: Route, reach: Mapping[str, Reach], timing: Timing = AT_ONCE) -> None:
        """Route by another configuration from now on; what was told stays told and will be ended."""
        self._route = route
        self._reach = dict(reach)
        self._timing = timing
        self._unrouted = {incident.run for incident in self._opened}
        self._due_at.clear()

    # ---- after a restart, and when runs come and go

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Go on from stored incidents: the open one and the newest one of each run (they may be the same)."""
        self._unrouted.update(self._opened.restore(incidents))  # the configuration may have changed since

    def restore_storms(self, incidents: Iterable[Incident], kept: bytes | None) -> None:
        """The same for what is stored of `storm_run`: its incidents, and the newest `Kept.value`."""
        self._storms.restore(incidents, kept)
        self._unrouted.add(self.storm_run)

    def forget(self, run: str) -> None:
        """The run is another collector's now."""
        self._opened.forget(run)
        self._unrouted.discard(run)
        self._due_at.pop(run, None)

    # ---- what is open

    def is_open(self, incident: str) -> bool:
        """Whether the incident with this id is open here."""
        return self._opened.by_id(incident) is not None

    def open_incident(self, run: str) -> Incident | None:
        """The run's open incident; not to be changed by the caller."""
        return self._opened.of(run)

    def waits(self, run: str) -> bool:
        """Whether something about this run becomes due without an event: it must not be forgotten before."""
        found = self._opened.of(run)
        return found is not None and (run in self._unrouted or self.awaits(found))

    def awaits(self, incident: Incident) -> bool:
        """Whether something about an open incident becomes due without an event."""
        return earliest(incident, self._timing, self._reach, incident.opened_at) is not None

    @property
    def storm_run(self) -> str:
        """The run of the storms; empty when there are none."""
        return self._storms.run

    def strangers(self) -> Sequence[str]:
        """Ids of incidents that are told through the open storm and are not open here."""
        return self._storms.strangers()

    # ---- what happens

    def apply(self, events: Sequence[AlertEvent], now: float, briefs: Mapping[str, Brief] = NO_BRIEFS) -> Plan:
        """Fold events into the book and plan the rows.

        `events` in the order of the log, all events of one record together; `now` (seconds since the epoch) becomes the rows'
        `created_at` and decides what is muted. `briefs`, by fingerprint, are what the rows of these alerts are to say beside
        their events, those too that a later tick plans. How the events of several records are cut into calls does not matter.
        """
        drafts: list[Draft] = []
        for moment in moments(events):
            if (draft := self._moment(moment, now, briefs)) is not None:
                drafts += self._put(draft, now)
        return self._plan(drafts)

    def tick(self, now: float) -> Plan:
        """Plan what has become due by `now` without an event: what was muted and is not, what has waited long enough, what is
        routed otherwise, escalations and reminders, how a storm goes on."""
        drafts: list[Draft] = []
        if now < self._latest:
            self._due_at.clear()  # the clock was set back
        self._latest = now
        for run in sorted(incident.run for incident in self._opened):  # after a restart they come in another order
            found = self._opened.of(run)
            if found is None or not (run in self._unrouted or self._may_be_due(found, now)):
                continue
            draft = self._draft(found, now)
            due = plan_due(draft, self._timing, self._reach, unrouted=run in self._unrouted)
            if self._storms.go_on(draft, self._timing.storm, now) or due:
                drafts += self._put(draft, now)
        self._unrouted.clear()
        return self._plan(drafts)

    def acknowledge(self, incident: str, owner: str, until: float, now: float, *, door: str = "", note: str = "") -> Plan:
        """Somebody has this incident in hand until then (seconds since the epoch); people are told `note`, or without one who
        it is and until when. Nothing when it is not open here. Raises ValueError, OverflowError for a time no calendar has."""
        found = self._opened.by_id(incident)
        if found is None:
            return Plan()
        draft = self._draft(found, now)
        draft.incident.attended = attended(found, now)
        draft.incident.acknowledged = Acknowledgement(owner=owner, at=now, until=until, door=door)
        draft.update(note or notes.acknowledged(owner, until, now))
        return self._plan(self._put(draft, now))

    def close_by_hand(self, incident: str, owner: str, now: float) -> Plan:
        """Tell the end of everything that is told of this incident. Nothing when it is not open here."""
        found = self._opened.by_id(incident)
        if found is None:
            return Plan()
        draft = self._draft(found, now)
        if draft.incident.storm is not None:
            draft.end(notes.closed(owner))  # nothing of its own fires that could end later
            members = [member for id_ in draft.incident.storm.members if (member := self._opened.by_id(id_)) is not None]
            drafts = [self._draft(member, now) for member in members]
            for member_draft in drafts:
                member_draft.close_through(incident, owner)
            return self._plan([put for each in (draft, *drafts) for put in self._put(each, now)])
        for print_ in list(draft.incident.alerts):
            draft.close(print_, owner)
        draft.finish()
        return self._plan(self._put(draft, now))

    def remark(self, incident: str, note: str, now: float) -> Plan:
        """Tell the threads of an open incident what else there is to know, in one line. Nothing when none is told of it."""
        found = self._opened.by_id(incident)
        if found is None:
            return Plan()
        draft = self._draft(found, now)
        draft.remark(note)
        draft.finish()
        return self._plan(self._put(draft, now)) if draft.rows else Plan()

    def over_elsewhere(self, incidents: Collection[str], now: float) -> Plan:
        """These strangers are over, as the store knows."""
        return self._plan(self._storms.over_elsewhere(incidents, lambda found: self._draft(found, now)))

    # ---- helpers

    def _may_be_due(self, incident: Incident, now: float) -> bool:
        known = self._due_at.get(incident.run)
        if known is None or known[0] is not incident:
            known = self._due_at[incident.run] = (incident, earliest(incident, self._timing, self._reach, now))
        return known[1] is not None and known[1] <= now

    def _moment(self, events: Sequence[AlertEvent], now: float, briefs: Mapping[str, Brief]) -> Draft | None:
        first = events[0]
        found = self._opened.of(first.run)
        if found is None:
            if all(event.state is EventState.RESOLVED for event in events):
                return None  # the end of something that never reached the book
            number = self._opened.next_number(first.run)
            found = Incident(
                id=f"{first.run}#{number}", run=first.run, number=number, opened_at=first.event_time, opened_step=first.step
            )
        draft = self._draft(found, now)
        pairs = beginnings_first(events)
        draft.forestall(print_ for print_, event in dict(pairs).items() if event.state is not EventState.FIRING)
        for print_, event in pairs:
            draft.apply(print_, event)
            if print_ in briefs:
                draft.brief(print_, briefs[print_])
        draft.finish()
        if not any(told.firing for told in draft.incident.alerts.values()):
            draft.incident.closed_at = first.event_time
        return draft

    def _draft(self, incident: Incident, now: float) -> Due:
        copy = replace(incident, alerts=dict(incident.alerts), pages=dict(incident.pages), groups=dict(incident.groups))
        limit = self._timing.storm
        joins = self._storms.joins

        def through(about: Incident, storm: str) -> str:
            return joins(about, storm, limit, now)

        return Due(copy, self._route, self._reach, self._mute, self._timing, through, now)

    def _put(self, draft: Draft, now: float) -> list[Draft]:
        """Take the draft over, with what it means for a storm."""
        self._opened.put(draft.incident)
        return [draft, *self._storms.follow(draft, lambda found: self._draft(found, now), self._timing.storm, now)]

    def _plan(self, drafts: Sequence[Draft]) -> Plan:
        """What these drafts amount to; of several of one incident the last is how it is."""
        changed = {draft.incident.id: draft.incident for draft in drafts}
        rows = [completed(row, draft.incident) for draft in drafts for row in draft.rows]
        return Plan(list(changed.values()), rows, self._storms.kept())


def _nothing_mutes(_event: AlertEvent, _now: float) -> None:
    return None

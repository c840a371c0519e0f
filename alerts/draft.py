"""One incident while one moment or one word of an operator is folded into it: who is to be told of what. Part of the planner,
whose rules stand in `alerts.incidents`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from alerts import waiting
from alerts.brief import Brief
from alerts.escalation import unattended
from alerts.model import Delivery, Incident, Told
from alerts.muting.model import Mute
from alerts.notes import closed, listed
from alerts.pages import Pages, Reach
from alerts.timing import Timing
from alerts.told import UNMUTED, fired, speaks
from rules.model import AlertEvent, EventState, Severity

Route = Callable[[AlertEvent], Sequence[str]]
"""Names of the receivers of an event, without repetition, in order."""
MuteBy = Callable[[AlertEvent, float], Mute | None]
"""Why an alert is told to nobody at a time (seconds since the epoch), if so."""


class Draft:
    """One incident while it is being changed. What is in it (`Told`, `Page`, `Group`) is replaced, never changed in place."""

    def __init__(
        self,
        incident: Incident,
        route: Route,
        reach: Mapping[str, Reach],
        mute: MuteBy,
        timing: Timing,
        joins: Callable[[Incident, str], str],
        now: float,
    ) -> None:
        """`joins` says which storm the incident is to be told through, if any; it is given the one through which the alert in
        question was told already."""
        self.incident = incident
        self.joined: dict[str, list[str]] = {}
        """What a storm is to tell, by receiver: fingerprints."""
        self.left: list[tuple[str, str]] = []
        """What was told through a storm and is over: the storm's id and the fingerprint."""
        self.first_told = False
        """Whether the incident is told by itself for the first time."""
        self._pages = Pages(incident, reach, now)
        self._route = route
        self._mute = mute
        self._timing = timing
        self._joins = joins
        self._now = now
        self._storm: str | None = None
        """None before it was asked for."""
        self._changes: dict[str, list[str]] = {}
        """What the open threads are still to be told, by receiver."""

    @property
    def rows(self) -> list[Delivery]:
        """What is planned so far."""
        return self._pages.rows

    # ---- events

    def forestall(self, prints: Iterable[str]) -> None:
        """These are over or explained by the end of the moment: nothing that is told in it takes them along."""
        for print_ in prints:
            waiting.leave(self.incident, print_)

    def apply(self, print_: str, event: AlertEvent) -> None:
        """Fold one event about the alert with this fingerprint."""
        if event.state is EventState.RESOLVED:
            self._resolve(print_, event)
            return
        before = self.incident.alerts.get(print_)
        told = fired(before, event)
        if before is not None and before.firing and told.explained_by != before.explained_by:
            by = told.explained_by
            self._changed(told, print_, f"{told.alert} is explained by {by}" if by else f"{told.alert} fires by itself")
        self.incident.alerts[print_] = told
        if event.state is EventState.FIRING and event.severity is not Severity.INFO:
            self._tell_new(print_)

    def brief(self, print_: str, brief: Brief) -> None:
        """What is to be said of an alert beside its event."""
        if (told := self.incident.alerts.get(print_)) is not None:
            self.incident.alerts[print_] = replace(told, brief=brief)

    def finish(self) -> None:
        """At the end of the moment: tell the threads in one row each what else has changed about what they were told. One that
        has been closed meanwhile has heard the end of all of it."""
        changes = {name: notes for name, notes in self._changes.items() if name in self.incident.pages}
        self._changes = {}
        if changes:
            self.incident.updates += 1
        for name, notes in changes.items():
            self._pages.update(name, listed(notes))

    # ---- what people say

    def update(self, note: str) -> None:
        """Tell every page of a change that is no alert's."""
        self.incident.updates += 1
        for name in self.incident.pages:
            self._pages.update(name, note)

    def remark(self, note: str) -> None:
        """Tell the open threads of what no alert and nobody of them has said."""
        for name in self.incident.pages:
            if self._pages.reach(name).scope == "thread":
                self._changes.setdefault(name, []).append(note)

    def close(self, print_: str, owner: str) -> None:
        """End a firing alert for everybody who was told, and tell nobody of it again."""
        told = self.incident.alerts[print_]
        if not told.firing or told.event is None or told.closed_by:
            return
        note = closed(owner)
        event = replace(told.event, state=EventState.RESOLVED, reason=note, event_time=self._now)
        self._resolve(print_, event, note)
        self.incident.alerts[print_] = replace(told, receivers=[], storm="", through=[], closed_by=owner, **UNMUTED)

    def close_through(self, storm: str, owner: str) -> None:
        """The storm through which alerts were told was closed by hand, and they with it."""
        for print_, told in list(self.incident.alerts.items()):
            if told.storm == storm:
                self.close(print_, owner)

    def end(self, reason: str) -> None:
        """The incident is over, whatever fires."""
        for print_, told in list(self.incident.alerts.items()):
            if told.firing and told.event is not None:
                event = replace(told.event, state=EventState.RESOLVED, reason=reason, event_time=self._now)
                self._resolve(print_, event, reason)
        self.incident.closed_at = self._now

    def tell_storm(self, print_: str, names: Sequence[str]) -> None:
        """Tell receivers who do not know of it of a storm whose alert this is."""
        for name in names:
            if not self.incident.alerts[print_].known_to(name):
                self._tell(name, [print_], "")

    # ---- helpers

    def _news(self, print_: str, *, at_once: bool = True) -> list[str]:
        """Who is to be told of an alert and does not know of it; `at_once`: nor waits for it. One that is muted is news to
        nobody: it is kept until that ends."""
        told = self.incident.alerts[print_]
        assert told.asks is not None, "it fires"
        new = [name for name in self._route(told.asks) if not told.known_to(name)]
        if at_once:
            new = [name for name in new if not waiting.waits(self.incident, name, print_)]
        return [] if not new or told.closed_by or self._muted(print_) else new

    def _tell_new(self, print_: str) -> None:
        """Tell an alert that has begun, or is heard anew, to those who do not know of it; what pages nobody may wait."""
        for name in self._news(print_, at_once=False):
            told = self.incident.alerts[print_]
            wait = 0.0 if told.severity.pages or told.asks is None else self._timing.wait(told.asks, name)
            if wait > 0.0:
                waiting.join(self.incident, name, print_, self._now, wait)
            else:
                self._tell(name, [print_], "")

    def _tell(self, name: str, prints: list[str], note: str, through: str = "") -> None:
        """Tell a receiver of alerts, and with them of all that waits for it; if they were told `through` a storm that is open,
        through that."""
        group = self.incident.groups.pop(name, None)
        if group is not None:
            prints = prints + [each for each in group.alerts if each not in prints and self._may_hear(name, each)]
        if not prints:
            return
        if self._storm is None:
            self._storm = self._joins(self.incident, "")
        if storm := self._storm or (through and self._joins(self.incident, through)):
            self.joined.setdefault(name, []).extend(prints)
            for each in prints:
                told = self.incident.alerts[each]
                self.incident.alerts[each] = replace(told, storm=storm, through=[*told.through, name])
            return
        self._pages.tell(name, prints, note)
        if self.incident.told_at is None:
            self.incident.told_at, self.first_told = self._now, True
        clock = unattended(self.incident, self._now)
        for each in prints:
            told = self.incident.alerts[each]
            told_at = clock if told.told_at is None else told.told_at
            self.incident.alerts[each] = replace(told, receivers=[*told.receivers, name], told_at=told_at)

    def _may_hear(self, name: str, print_: str) -> bool:
        """Whether a receiver for whom an alert has waited is to be told of it now."""
        told = self.incident.alerts[print_]
        if not speaks(told) or told.asks is None or told.known_to(name):
            return False
        return name in self._route(told.asks) and not self._muted(print_)

    def _muted(self, print_: str) -> bool:
        """Whether an alert is muted now; then it waits for that to end."""
        told = self.incident.alerts[print_]
        mute = None if told.asks is None else self._mute(told.asks, self._now)
        if mute is None:
            return False
        self.incident.alerts[print_] = replace(told, muted_by=mute.by, muted_until=mute.until, untold=told.event)
        waiting.leave(self.incident, print_)
        return True

    def _changed(self, told: Told, print_: str, note: str) -> None:
        """A change of an alert, for the open threads that were told of it and hear of ends."""
        for name in told.receivers:
            page, reach = self.incident.pages.get(name), self._pages.reach(name)
            if page is not None and print_ in page.alerts and reach.scope == "thread" and reach.send_resolved:
                self._changes.setdefault(name, []).append(note)

    def _resolve(self, print_: str, event: AlertEvent, note: str = "") -> None:
        told = self.incident.alerts.get(print_)
        if told is None or not told.firing:
            return
        self.incident.alerts[print_] = replace(told, firing=False, explained_by="", **UNMUTED)
        waiting.leave(self.incident, print_)
        if told.storm:
            self.left.append((told.storm, print_))
        self._changed(told, print_, f"{told.alert} resolved")
        # The end in the words of the beginning: the rule may have been renamed, or be gone with its name and severity.
        event = replace(event, alert=told.alert, severity=told.severity, layer=told.layer)
        for name in told.receivers:
            self._pages.resolve(name, print_, told.episode, event, note)

"""What becomes due about an incident without an event. Part of the planner, whose rules stand in `alerts.incidents`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from alerts import waiting
from alerts.draft import Draft
from alerts.escalation import attended, in_hand, unattended
from alerts.model import Action, Incident, Told
from alerts.notes import counted, escalated, reminder, unmuted
from alerts.pages import Reach
from alerts.storm import counts
from alerts.timing import Timing
from alerts.told import UNMUTED, speaks


class Due(Draft):
    """One incident while what has become due is planned. Each method says whether anything is different now."""

    def look_again(self) -> bool:
        """Tell what was muted and is not any more, each receiver of all of it together."""
        changed = False
        told: dict[str, list[str]] = {}
        ended: dict[str, list[str]] = {}
        for print_, before in list(self.incident.alerts.items()):
            if before.untold is None:
                continue
            self.incident.alerts[print_] = replace(before, **UNMUTED)
            for name in self._news(print_):
                told.setdefault(name, []).append(print_)
                ended.setdefault(name, []).append(before.muted_by)
            after = self.incident.alerts[print_]
            changed = changed or (after.muted_by, after.muted_until) != (before.muted_by, before.muted_until)
        for name, prints in told.items():
            self._tell(name, prints, unmuted(ended[name]))
        return changed

    def route_anew(self, print_: str) -> bool:
        """Tell an alert to whom the routes name by now."""
        told = self.incident.alerts[print_]
        # A storm that is another collector's looks to its own routes.
        ours = not told.storm or self._joins(self.incident, told.storm) == told.storm
        if ours and speaks(told) and told.untold is None:
            for name in self._news(print_):
                self._tell(name, [print_], "the routes have changed, it still fires", told.storm)
        return self.incident.alerts[print_] is not told

    def end_wait(self, name: str) -> bool:
        """Tell a receiver what has waited for it long enough."""
        group = self.incident.groups.get(name)
        if group is None or not waiting.over(group, self._now):
            return False  # it may have gone with another receiver's, whose alerts are muted
        self._tell(name, [], "")
        return True

    def escalate(self) -> bool:
        """Tell others of alerts that nobody has had in hand for so long."""
        if in_hand(self.incident, self._now):
            return False
        clock = unattended(self.incident, self._now)
        set_back = False
        due: dict[str, list[str]] = {}
        after: dict[str, float] = {}
        for print_, told in list(self.incident.alerts.items()):
            if told.told_at is None or told.asks is None or not speaks(told):
                continue
            ahead = [each for each in self._timing.escalate(told.asks) if not all(map(told.known_to, each.to))]
            if ahead and clock < told.told_at:
                self.incident.alerts[print_] = replace(told, told_at=clock)
                set_back = True
            found = [each for each in ahead if told.told_at + each.after <= clock]
            if not found or self._mute(told.asks, self._now) is not None:
                continue
            for name in dict.fromkeys(name for each in found for name in each.to if not told.known_to(name)):
                due.setdefault(name, []).append(print_)
                after[name] = min(each.after for each in found if name in each.to)
        for name, prints in due.items():
            self._tell(name, prints, escalated(after[name]))
        return set_back or bool(due)

    def remind(self, name: str, after: Sequence[float]) -> bool:
        """Call an open page to mind, if the next of its reminders is due; of several that are, once."""
        page = self.incident.pages[name]
        told = self.incident.alerts[page.alerts[0]]
        if page.opened_at is None or told.asks is None or in_hand(self.incident, self._now):
            return False
        open_for = self._now - page.opened_at
        over = sum(seconds <= open_for for seconds in after)
        if over <= page.reminded or self._mute(told.asks, self._now) is not None:
            return False
        self.incident.pages[name] = replace(page, reminded=over)
        self.incident.updates += 1
        self._pages.update(name, reminder(open_for), Action.REMIND)
        return True

    def recount(self, within: float) -> bool:
        """Tell the threads of a storm how it goes on, once in so many seconds."""
        storm, threads = (
            self.incident.storm,
            [name for name in self.incident.pages if self._pages.reach(name).scope == "thread"],
        )
        if storm is None or not threads or counts(storm) == storm.told or storm.told_at <= self._now < storm.told_at + within:
            return False
        self.incident.storm = replace(storm, told=counts(storm), told_at=self._now)
        self.incident.updates += 1
        for name in threads:
            self._pages.update(name, counted(*counts(storm)))
        return True


def earliest(incident: Incident, timing: Timing, reach: Mapping[str, Reach], now: float) -> float | None:
    """Before when nothing becomes due about an open incident as it is, on a clock that is not set back; None for never. What
    is muted may become due at any time, and so may what began ahead of a clock that was set back since."""
    if incident.storm is not None or any(told.untold is not None for told in incident.alerts.values()):
        return -math.inf
    found = [group.since + group.wait if group.since <= now else -math.inf for group in incident.groups.values()]
    for name, after in _reminders(incident, timing, reach):
        page = incident.pages[name]
        if page.opened_at is not None and page.reminded < len(after):
            found.append(page.opened_at + after[page.reminded])
    so_far = attended(incident, now)
    for told in incident.alerts.values():
        if told.told_at is not None and (after := _escalations(told, timing)):
            begun = told.told_at + so_far
            found.append(begun + min(after) if begun <= now else -math.inf)
    return min(found, default=None)


def plan_due(draft: Due, timing: Timing, reach: Mapping[str, Reach], *, unrouted: bool) -> bool:
    """Plan what is due now; whether anything was. `unrouted`: the routes may have changed since its alerts were told."""
    looked = [draft.look_again()]
    if unrouted:
        looked += [draft.route_anew(print_) for print_ in list(draft.incident.alerts)]  # lists: all are to be looked at
    looked += [draft.end_wait(name) for name in list(draft.incident.groups)]
    looked.append(draft.escalate())
    looked += [draft.remind(name, after) for name, after in _reminders(draft.incident, timing, reach)]
    return any(looked)


def _escalations(told: Told, timing: Timing) -> list[float]:
    """After how many seconds others are told of an alert who do not know of it yet."""
    if told.asks is None or not speaks(told):
        return []
    return [each.after for each in timing.escalate(told.asks) if not all(map(told.known_to, each.to))]


def _reminders(incident: Incident, timing: Timing, reach: Mapping[str, Reach]) -> list[tuple[str, Sequence[float]]]:
    """Of the open threads."""
    found = []
    for name, page in incident.pages.items():
        event = incident.alerts[page.alerts[0]].asks
        if event is not None and page.opened_at is not None and reach.get(name, Reach()).scope == "thread":
            found.append((name, timing.remind(event, name)))
    return found

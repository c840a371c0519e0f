"""What becomes due about an incident without an event. Part of the planner, whose rules stand in `alerts.incidents`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from alerts.draft import Draft
from alerts.escalation import attended
from alerts.model import Incident, Told
from alerts.pages import Reach
from alerts.timing import Timing
from alerts.told import speaks


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


def plan_due(draft: Draft, timing: Timing, reach: Mapping[str, Reach], *, unrouted: bool) -> bool:
    """Plan what is due now; whether anything was. `unrouted`: the routes may have changed since its alerts were told."""
    alerts = list(draft.incident.alerts)
    looked = [draft.look_again(print_) for print_ in alerts]  # lists, as all of them are to be looked at
    if unrouted:
        looked += [draft.route_anew(print_) for print_ in alerts]
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

"""What becomes due about an incident without an event. Part of the planner, whose rules stand in `alerts.incidents`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alerts.draft import Draft
from alerts.model import Incident, Told
from alerts.pages import Reach
from alerts.timing import Timing
from alerts.told import speaks


def awaits(incident: Incident, timing: Timing, reach: Mapping[str, Reach]) -> bool:
    """Whether anything may become due about an open incident as it is."""
    if incident.storm is not None or incident.groups or any(told.untold is not None for told in incident.alerts.values()):
        return True
    if any(incident.pages[name].reminded < len(after) for name, after in _reminders(incident, timing, reach)):
        return True
    return any(_escalates(told, timing) for told in incident.alerts.values())


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


def _escalates(told: Told, timing: Timing) -> bool:
    if told.told_at is None or told.asks is None or not speaks(told):
        return False
    return any(not told.known_to(name) for each in timing.escalate(told.asks) for name in each.to)


def _reminders(incident: Incident, timing: Timing, reach: Mapping[str, Reach]) -> list[tuple[str, Sequence[float]]]:
    """Of the open threads."""
    found = []
    for name, page in incident.pages.items():
        event = incident.alerts[page.alerts[0]].asks
        if event is not None and page.opened_at is not None and reach.get(name, Reach()).scope == "thread":
            found.append((name, timing.remind(event, name)))
    return found

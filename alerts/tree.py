"""The tree of routes as alerts.yaml writes it, with what is inherited down it: who is told, when, and when not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import msgspec

from alerts.durations import Duration, seconds
from alerts.matching import MatchEntry, compiled, listed
from alerts.muting.hours import Hours
from alerts.routing import ALL, Route
from alerts.timing import Escalation
from rules.config_errors import ConfigError
from rules.names import suggestion
from rules.yaml_tree import Node, find

GROUP_WAIT: Final[Duration] = "20s"
"""For so long an alert that pages nobody waits for others, where nothing else is said."""


class EscalateEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Whom else to tell when nobody has acknowledged after so long; an empty list takes an inherited one back."""

    after: Duration
    to: str | list[str]


class RouteEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One route; without `receiver` it has its parent's, with an empty list nobody is told."""

    match: MatchEntry = msgspec.field(default_factory=MatchEntry)
    receiver: str | list[str] | None = None
    routes: list[RouteEntry] = []
    goes_on: bool = msgspec.field(default=False, name="continue")
    quiet_hours: list[Hours] | None = None
    """When warnings wait; without it they are the parent's."""
    remind: list[Duration] | None = None
    """After how long an open incident is called to mind, ascending; without it as the parent says."""
    group_wait: Duration | None = None
    """For how long a warning waits for others; without it as the parent says. Pages and stops never wait."""
    escalate: EscalateEntry | None = None
    """Without it as the parent says."""


def route_tree(entry: RouteEntry, node: Node, known: Collection[str], errors: list[ConfigError]) -> Route:
    """The root with all that is below it, of a file whose keys at `node` the entry has; `known` are names of receivers."""
    nothing = Route(ALL, (), group_wait=seconds(GROUP_WAIT))
    root = replace(_route(entry, node, nothing, known, errors, key="default"), place="")
    return replace(root, routes=_routes(entry.routes, find(node, "routes"), root, known, errors))


def named(names: str | list[str], node: Node, known: Collection[str], errors: list[ConfigError]) -> tuple[str, ...]:
    """Names of receivers, each once; a fault for each that nobody has."""
    every = listed(names)
    for number, name in enumerate(every):
        if name not in known:
            hint = suggestion(name, known) or f" (known here: {', '.join(sorted(known)) or 'none'})"
            errors.append(find(node, number).mark.error(f"no receiver is named {name!r}{hint}"))
    return tuple(dict.fromkeys(every))


def _routes(
    entries: Sequence[RouteEntry], node: Node, parent: Route, known: Collection[str], errors: list[ConfigError]
) -> tuple[Route, ...]:
    routes = []
    for number, entry in enumerate(entries):
        here = find(node, number)
        route = _route(entry, here, parent, known, errors)
        routes.append(replace(route, routes=_routes(entry.routes, find(here, "routes"), route, known, errors)))
        last = number == len(entries) - 1
        if entry.match == MatchEntry() and not entry.goes_on and not last:
            errors.append(here.mark.error("this route matches everything: the routes after it are never tried (move it last)"))
        if entry.goes_on and last:
            errors.append(here.mark.error("`continue` on the last route leads nowhere (remove it)"))
    return tuple(routes)


def _route(
    entry: RouteEntry, here: Node, parent: Route, known: Collection[str], errors: list[ConfigError], key: str = "receiver"
) -> Route:
    """One route with what it inherits, without those below it."""
    return Route(
        compiled(entry.match),
        parent.receivers if entry.receiver is None else named(entry.receiver, find(here, key), known, errors),
        goes_on=entry.goes_on,
        quiet_hours=parent.quiet_hours if entry.quiet_hours is None else tuple(entry.quiet_hours),
        remind=parent.remind if entry.remind is None else _remind(entry.remind, find(here, "remind"), errors),
        group_wait=parent.group_wait if entry.group_wait is None else seconds(entry.group_wait),
        escalate=parent.escalate
        if entry.escalate is None
        else _escalate(entry.escalate, find(here, "escalate"), known, errors),
        place=f"{here.mark.file}:{here.mark.line}",
    )


def _remind(after: Sequence[str], node: Node, errors: list[ConfigError]) -> tuple[float, ...]:
    found = tuple(seconds(text) for text in after)
    if any(later <= earlier for earlier, later in pairwise((0.0, *found))):
        errors.append(node.mark.error("reminders are written in ascending order, the first after more than 0s: [1h, 4h, 1d]"))
    return found


def _escalate(entry: EscalateEntry, node: Node, known: Collection[str], errors: list[ConfigError]) -> Escalation | None:
    to = named(entry.to, find(node, "to"), known, errors)
    after = seconds(entry.after)
    if after <= 0.0:
        errors.append(find(node, "after").mark.error("`after` is more than 0s (or name them as receivers of the route)"))
    return Escalation(after, to) if to else None

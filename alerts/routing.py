"""Who is told: a tree of routes, matched from the top on severity, layer, rule, alert, run and labels.

As in Alertmanager: the deepest route that matches decides, the first matching sibling ends the search unless it says
`continue`, a route without receivers has its parent's, and an absent label is the empty text. Patterns are globs (`*`, `?`,
`[...]`) over the whole text, case-sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final

from alerts.muting.hours import Hours
from alerts.timing import Escalation, Timing
from rules.model import AlertEvent, Severity

Patterns = tuple[re.Pattern[str], ...]
"""Alternatives; one that matches is enough."""


@dataclass(frozen=True, slots=True)
class Match:
    """Conditions of which all must hold; an empty one holds for everything."""

    severities: frozenset[Severity] = frozenset()
    layers: frozenset[int] = frozenset()
    rule: Patterns = ()
    """Over the rule's id."""
    alert: Patterns = ()
    """Over the alert's name."""
    run: Patterns = ()
    labels: Mapping[str, Patterns] = field(default_factory=dict)
    """By label name; the alert's own labels come before the run's."""

    def holds(self, event: AlertEvent) -> bool:
        return (
            (not self.severities or event.severity in self.severities)
            and (not self.layers or event.layer in self.layers)
            and _any(self.rule, event.id)
            and _any(self.alert, event.alert)
            and _any(self.run, event.run)
            and all(_any(patterns, _label(event, name)) for name, patterns in self.labels.items())
        )


@dataclass(frozen=True, slots=True)
class Route:
    """A node of the tree."""

    match: Match
    receivers: tuple[str, ...]
    """Its own or inherited ones; none at all means that nobody is told."""
    routes: tuple[Route, ...] = ()
    goes_on: bool = False
    """`continue`: later siblings are tried as well."""
    quiet_hours: tuple[Hours, ...] = ()
    """Its own or inherited ones."""
    remind: tuple[float, ...] = ()
    """Its own or inherited: seconds after which an open incident is called to mind, ascending."""
    group_wait: float = 0.0
    """Its own or inherited: for how many seconds what pages nobody waits for others."""
    escalate: Escalation | None = None
    """Its own or inherited."""
    place: str = ""
    """`alerts.yaml:12`; empty for the root and for routes that no file has."""


ALL: Final = Match()


class Router:
    """`router(event)` gives the names of the receivers, each once, in the order of the tree."""

    def __init__(self, root: Route) -> None:
        self.root = root
        self._escalates = any(route.escalate is not None for route in _all(root))
        self._reminds = any(route.remind for route in _all(root))

    def __call__(self, event: AlertEvent) -> Sequence[str]:
        return list(dict.fromkeys(name for route in self._deciding(event) for name in route.receivers))

    def quiet_hours(self, event: AlertEvent) -> Sequence[Sequence[Hours]]:
        """Those of each route that decides and tells somebody."""
        return [route.quiet_hours for route in self._deciding(event) if route.receivers]

    def remind(self, event: AlertEvent, name: str) -> Sequence[float]:
        """After how many seconds a receiver is reminded: by the first route that decides and tells it."""
        if not self._reminds:
            return ()
        return next((route.remind for route in self._deciding(event) if name in route.receivers), ())

    def group_wait(self, event: AlertEvent, name: str) -> float:
        """For how long an alert that pages nobody waits for others before a receiver is told: by the same route."""
        return next((route.group_wait for route in self._deciding(event) if name in route.receivers), 0.0)

    def escalate(self, event: AlertEvent) -> Sequence[Escalation]:
        """Whom else to tell when nobody acknowledges: of each route that decides and tells somebody."""
        if not self._escalates:
            return ()
        found = [route.escalate for route in self._deciding(event) if route.receivers]
        return [each for each in dict.fromkeys(found) if each is not None]

    @property
    def timing(self) -> Timing:
        """For the incident book."""
        return Timing(self.remind, self.group_wait, self.escalate)

    def paths(self, event: AlertEvent) -> list[tuple[Route, ...]]:
        """The ways through the tree: each from the root to a route that decides."""
        return _paths(self.root, event)

    def _deciding(self, event: AlertEvent) -> list[Route]:
        return [path[-1] for path in self.paths(event)]


def patterns(globs: Sequence[str]) -> Patterns:
    """Compiled globs."""
    return tuple(re.compile(translate(glob)) for glob in globs)


def _all(route: Route) -> Iterator[Route]:
    """The route and those below it."""
    yield route
    for child in route.routes:
        yield from _all(child)


def _paths(route: Route, event: AlertEvent) -> list[tuple[Route, ...]]:
    """Below a route that matches already."""
    found: list[tuple[Route, ...]] = []
    for child in route.routes:
        if child.match.holds(event):
            found += [(route, *path) for path in _paths(child, event)]
            if not child.goes_on:
                break
    return found or [(route,)]


def _any(alternatives: Patterns, text: str) -> bool:
    return not alternatives or any(pattern.match(text) for pattern in alternatives)


def _label(event: AlertEvent, name: str) -> str:
    return event.labels.get(name) or event.run_labels.get(name, "")

"""What `match:` says in configuration, in silences and in maintenance windows, and the condition that it stands for."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from alerts.routing import Match, patterns
from rules.model import Severity

T = TypeVar("T")
Globs = str | list[str]


class MatchEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`match:` of a route, a silence, a window; a list means "one of these"."""

    severity: Severity | list[Severity] | None = None
    layer: int | list[int] | None = None
    rule: Globs | None = None
    alert: Globs | None = None
    run: Globs | None = None
    labels: dict[str, Globs] = {}


def compiled(entry: MatchEntry) -> Match:
    """The condition."""
    return Match(
        severities=frozenset(listed(entry.severity)),
        layers=frozenset(listed(entry.layer)),
        rule=patterns(listed(entry.rule)),
        alert=patterns(listed(entry.alert)),
        run=patterns(listed(entry.run)),
        labels={name: patterns(listed(globs)) for name, globs in entry.labels.items()},
    )


def says_nothing(entry: MatchEntry) -> bool:
    """Whether it holds for everything because no condition was written."""
    return entry == MatchEntry() or compiled(entry) == Match()


def told(entry: MatchEntry) -> str:
    """One line for people: `alert NanLoss, run ablate-*, label team = vision or robots`."""
    parts = [
        f"{name} {' or '.join(str(each) for each in listed(value))}"
        for name, value in (
            ("severity", entry.severity),
            ("layer", entry.layer),
            ("rule", entry.rule),
            ("alert", entry.alert),
            ("run", entry.run),
        )
        if listed(value)
    ]
    parts += [f"label {name} = {' or '.join(listed(globs))}" for name, globs in entry.labels.items()]
    return ", ".join(parts) or "everything"


def listed(value: T | list[T] | None) -> list[T]:
    """What may be written as one or as a list, as a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]

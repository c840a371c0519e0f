"""What somebody is told about one run, in record numbers: the common form of Tocsin's alerts and of other tools' findings."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rules.model import AlertEvent, Severity
from service.episodes import episodes

_LOUDNESS: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Grade(enum.StrEnum):
    """Which alarms are looked at."""

    PAGE = "page"
    """Those that wake somebody: page and stop (other tools: critical)."""
    ANY = "any"
    """Those that are sent at all: warnings as well."""

    def holds(self, severity: Severity) -> bool:
        least = Severity.PAGE if self is Grade.PAGE else Severity.WARNING
        return _LOUDNESS[severity] >= _LOUDNESS[least]


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alert from its beginning to its end."""

    name: str
    severity: Severity
    record: int
    """At which it began."""
    sent: int | None
    """At which it was first sent; None when it never was (explained by another all the time)."""
    end: int | None = None
    """At which it ended; None: it lasts until the log ends."""


def alarms(events: Iterable[AlertEvent]) -> list[Alarm]:
    """The alarms of one run's events, in the order in which they began."""
    return [Alarm(each.alert, each.severity, each.record, each.sent_record, each.end_record) for each in episodes(events)]


def incidents(found: Sequence[Alarm]) -> list[list[Alarm]]:
    """The alarms by incident: from the first that fires until none does, as `alerts.incidents` has it.

    One that begins at the very record at which the last other one ends belongs to the same incident.
    """
    groups: list[list[Alarm]] = []
    until: float = -1.0
    for alarm in sorted(found, key=lambda each: each.record):
        end = float("inf") if alarm.end is None else float(alarm.end)
        if not groups or alarm.record > until:
            groups.append([])
            until = end
        groups[-1].append(alarm)
        until = max(until, end)
    return groups

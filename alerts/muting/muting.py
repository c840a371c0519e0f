"""Whether an alert is muted now: one answer out of silences, maintenance windows and quiet hours.

Who is told what stays with the incident book; it asks here. Of several mutes the one that ends last is the answer, as looking
again before would find the others. Severity page and stop are never delayed by quiet hours, which are for what can wait until
the morning. The canary and what is said when it does not get through are muted by nothing: a test alert that a silence
swallows would be missed as lost, and its loss would be told to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from alerts.canary import CANARY, LOST
from alerts.matching import compiled
from alerts.muting.hours import Hours, end_of
from alerts.muting.model import Mute, Silence, Window
from alerts.routing import Match
from rules.model import AlertEvent

QUIET: Final = "quiet hours"
_UNMUTED: Final = frozenset({CANARY, LOST})

Quiet = Callable[[AlertEvent], Sequence[Sequence[Hours]]]
"""The quiet hours of each route that decides on an event (`Router.quiet_hours`)."""


class Declared(NamedTuple):
    """What people have declared, in files or while the collector runs."""

    silences: Sequence[Silence] = ()
    windows: Sequence[Window] = ()


NOTHING_DECLARED: Final = Declared()


@dataclass(frozen=True, slots=True)
class _Rules:
    silences: tuple[tuple[Silence, Match], ...]
    windows: tuple[tuple[Window, Match], ...]


def _nothing(_event: AlertEvent) -> Sequence[Sequence[Hours]]:
    return ()


class Muting:
    """`muting(event, now)`. What it knows is replaced as a whole, by the thread that owns the incident book."""

    def __init__(
        self, in_files: Declared = NOTHING_DECLARED, quiet: Quiet = _nothing, made: Declared = NOTHING_DECLARED
    ) -> None:
        self._quiet = quiet
        self._in_files = _rules(in_files)
        self._made = _rules(made)

    def configure(self, in_files: Declared, quiet: Quiet) -> None:
        """Go by another configuration from now on."""
        self._in_files, self._quiet = _rules(in_files), quiet

    def use(self, made: Declared) -> None:
        """What was made while the collector ran is now this."""
        self._made = _rules(made)

    def declared(self) -> Declared:
        """All of it: what stands in files (with its place), then what was made while the collector ran. Any thread may ask."""
        both = (self._in_files, self._made)
        return Declared(
            tuple(silence for rules in both for silence, _ in rules.silences),
            tuple(window for rules in both for window, _ in rules.windows),
        )

    def __call__(self, event: AlertEvent, now: float) -> Mute | None:
        """Why this alert is told to nobody at `now`, or None."""
        return max(self.mutes(event, now), key=_end, default=None)

    def mutes(self, event: AlertEvent, now: float) -> list[Mute]:
        """All that mute it, in the order silences, windows, quiet hours."""
        if event.id in _UNMUTED:
            return []
        found: list[Mute] = []
        for rules in (self._in_files, self._made):
            found += [
                Mute(f"silence {silence.id}", silence.expires_at)
                for silence, match in rules.silences
                if silence.starts_at <= now < silence.expires_at and match.holds(event)
            ]
        for rules in (self._in_files, self._made):
            for window, match in rules.windows:
                if (end := end_of(window.hours, now)) is not None and match.holds(event):
                    found.append(Mute(f"maintenance {window.name}", end))
        if not event.severity.pages and (end := self._quiet_until(event, now)) is not None:
            found.append(Mute(QUIET, end))
        return found

    def _quiet_until(self, event: AlertEvent, now: float) -> float | None:
        """An alert that several routes take waits while all of them are quiet: until the first has had its night."""
        ends = [_latest(hours, now) for hours in self._quiet(event)]
        known = [end for end in ends if end is not None]
        return min(known) if known and len(known) == len(ends) else None


def _latest(hours: Sequence[Hours], now: float) -> float | None:
    return max((end for each in hours if (end := end_of(each, now)) is not None), default=None)


def _end(mute: Mute) -> float:
    return float("inf") if mute.until is None else mute.until


def _rules(declared: Declared) -> _Rules:
    return _Rules(
        tuple((silence, compiled(silence.match)) for silence in declared.silences),
        tuple((window, compiled(window.match)) for window in declared.windows),
    )

"""What another bundle of rules changes on recorded runs: alert by alert, and in pages per run-day.

Alerts of the two replays are the same one when run, rule id and own labels are the same and they overlap in time: a renamed
rule stays what it is, and an alert that fires when the other one is long over is another one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.episodes import Episode, episodes
from service.replay import Replayed

DAY: Final = 86_400.0
"""Seconds."""


class Kind(enum.StrEnum):
    """How an alert differs."""

    NEW = "new"
    GONE = "gone"
    EARLIER = "earlier"
    LATER = "later"
    SEVERITY = "severity"
    SENT = "sent"
    """Was explained by another alert all the time, and is sent now."""
    EXPLAINED = "explained"
    """Was sent, and is explained by another alert all the time now."""
    SENT_EARLIER = "sent earlier"
    SENT_LATER = "sent later"
    ENDS_EARLIER = "ends earlier"
    ENDS_LATER = "ends later"


@dataclass(frozen=True, slots=True)
class Change:
    """One alert that is not what it was."""

    kinds: tuple[Kind, ...]
    before: Episode | None
    after: Episode | None

    @property
    def episode(self) -> Episode:
        """The alert as it is after the change, or as it was."""
        found = self.after or self.before
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class RunDifference:
    """One log under both bundles."""

    runs: tuple[str, ...]
    records: int
    days: float
    """Event time of its runs; 0 where the log has no times."""
    pages_before: int
    pages_after: int
    unchanged: int
    """Alerts that are the same."""
    changes: tuple[Change, ...]

    @property
    def name(self) -> str:
        return ", ".join(self.runs)


@dataclass(frozen=True, slots=True)
class Totals:
    """All logs together."""

    logs: int
    records: int
    days: float
    pages_before: int
    pages_after: int
    changes: int
    unchanged: int

    @property
    def per_day_before(self) -> float | None:
        """Pages per run-day; None where no log has times."""
        return self.pages_before / self.days if self.days else None

    @property
    def per_day_after(self) -> float | None:
        return self.pages_after / self.days if self.days else None


def difference(before: Replayed, after: Replayed) -> RunDifference:
    """What changes on one log; the changes are in the order in which the alerts begin."""
    old, new = episodes(before.events), episodes(after.events)
    changes: list[Change] = []
    unchanged = 0
    for identity in dict.fromkeys(episode.identity for episode in (*old, *new)):
        pairs = _pairs(
            [episode for episode in old if episode.identity == identity],
            [episode for episode in new if episode.identity == identity],
        )
        for one, other in pairs:
            kinds = _kinds(one, other)
            unchanged += not kinds
            if kinds:
                changes.append(Change(kinds, one, other))
    return RunDifference(
        runs=tuple(run.run for run in before.runs),
        records=before.records,
        days=before.seconds / DAY,
        pages_before=sum(episode.pages for episode in old),
        pages_after=sum(episode.pages for episode in new),
        unchanged=unchanged,
        changes=tuple(sorted(changes, key=_place)),
    )


def totals(differences: Sequence[RunDifference]) -> Totals:
    return Totals(
        logs=len(differences),
        records=sum(each.records for each in differences),
        days=sum(each.days for each in differences),
        pages_before=sum(each.pages_before for each in differences),
        pages_after=sum(each.pages_after for each in differences),
        changes=sum(len(each.changes) for each in differences),
        unchanged=sum(each.unchanged for each in differences),
    )


def _place(change: Change) -> tuple[str, int, str, str]:
    begins = min(episode.record for episode in (change.before, change.after) if episode is not None)
    return change.episode.run, begins, change.episode.id, change.episode.name


def _pairs(old: Sequence[Episode], new: Sequence[Episode]) -> list[tuple[Episode | None, Episode | None]]:
    """Episodes of one alert beside each other: those that overlap are the same, in order."""
    pairs: list[tuple[Episode | None, Episode | None]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        if _over_before(old[i], new[j]):
            pairs.append((old[i], None))
            i += 1
        elif _over_before(new[j], old[i]):
            pairs.append((None, new[j]))
            j += 1
        else:
            pairs.append((old[i], new[j]))
            i, j = i + 1, j + 1
    return [*pairs, *((episode, None) for episode in old[i:]), *((None, episode) for episode in new[j:])]


def _over_before(one: Episode, other: Episode) -> bool:
    return one.end_record is not None and one.end_record < other.record


def _kinds(before: Episode | None, after: Episode | None) -> tuple[Kind, ...]:
    if before is None:
        return (Kind.NEW,)
    if after is None:
        return (Kind.GONE,)
    kinds: list[Kind] = []
    if after.record != before.record:
        kinds.append(Kind.EARLIER if after.record < before.record else Kind.LATER)
    if after.severity is not before.severity:
        kinds.append(Kind.SEVERITY)
    if before.sent_step is None and after.sent_step is not None:
        kinds.append(Kind.SENT)
    elif before.sent_step is not None and after.sent_step is None:
        kinds.append(Kind.EXPLAINED)
    elif before.sent_step is not None and after.sent_step is not None and after.record == before.record:
        if after.sent_step != before.sent_step:
            kinds.append(Kind.SENT_EARLIER if after.sent_step < before.sent_step else Kind.SENT_LATER)
    if after.end_record != before.end_record:
        sooner = before.end_record is None or (after.end_record is not None and after.end_record < before.end_record)
        kinds.append(Kind.ENDS_EARLIER if sooner else Kind.ENDS_LATER)
    return tuple(kinds)

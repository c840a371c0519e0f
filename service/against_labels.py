"""A replayed log beside what its label says: delays from the onset, what is missing, and who was woken for nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rules.model import AlertEvent, EventState, Severity
from service.episodes import Episode, episodes
from service.labels import Label
from service.replay import Replayed

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One log and its alerts."""

    run: str
    records: int
    days: float
    """Event time of its runs; 0 where the log has no times."""
    label: Label | None
    episodes: tuple[Episode, ...]

    @property
    def pages(self) -> int:
        return sum(episode.pages for episode in self.episodes)

    @property
    def warnings(self) -> int:
        """Sent as a warning."""
        return sum(each.severity is Severity.WARNING and each.sent_step is not None for each in self.episodes)

    @property
    def explained(self) -> int:
        """Never sent, because another alert explained them."""
        return sum(episode.sent_step is None for episode in self.episodes)

    @property
    def first(self) -> Episode | None:
        """The first page, or the first alert that was sent."""
        sent = [episode for episode in self.episodes if episode.sent_step is not None]
        return next((episode for episode in sent if episode.pages), sent[0] if sent else None)

    @property
    def detected_by(self) -> Episode | None:
        """The first page at or after the onset; None for a log without a fault."""
        onset = None if self.label is None else self.label.onset
        if onset is None:
            return None
        return next((each for each in self.episodes if each.pages and (each.sent_step or 0) >= onset), None)

    @property
    def differences(self) -> list[str]:
        """What the label says and what did not happen so; empty without a label."""
        return [] if self.label is None else _differences(self.label, self.episodes)


@dataclass(frozen=True, slots=True)
class Summary:
    """All logs together."""

    logs: int
    records: int
    days: float
    pages: int
    faults: int
    """Logs that are labelled with an onset."""
    paged: int
    """Of these, with a page at or after it."""
    median_delay: float | None
    """Steps from the onset to that page."""
    differences: int
    """Labelled logs on which something is not as labelled."""
    labelled: int

    @property
    def per_day(self) -> float | None:
        """Pages per run-day; None where no log has times."""
        return self.pages / self.days if self.days else None


def seen(replayed: Replayed) -> Seen:
    return Seen(
        run=", ".join(run.run for run in replayed.runs),
        records=replayed.records,
        days=replayed.seconds / _DAY,
        label=replayed.recording.label,
        episodes=tuple(episodes(replayed.events)),
    )


def summary(logs: Sequence[Seen]) -> Summary:
    faults = [(log, log.label.onset) for log in logs if log.label is not None and log.label.onset is not None]
    delays = [(page.sent_step or 0) - onset for log, onset in faults if (page := log.detected_by) is not None]
    return Summary(
        logs=len(logs),
        records=sum(log.records for log in logs),
        days=sum(log.days for log in logs),
        pages=sum(log.pages for log in logs),
        faults=len(faults),
        paged=len(delays),
        median_delay=statistics.median(delays) if delays else None,
        differences=sum(bool(log.differences) for log in logs),
        labelled=sum(log.label is not None for log in logs),
    )


def delay(label: Label | None, step: int) -> int | None:
    """Steps from the labelled onset; negative before it, None without one."""
    return None if label is None or label.onset is None else step - label.onset


def event_delay(label: Label | None, event: AlertEvent) -> int | None:
    """The delay of what begins with an event; None for a resolved one."""
    return None if event.state is EventState.RESOLVED else delay(label, event.step)


def _differences(label: Label, found: Sequence[Episode]) -> list[str]:
    wrong = []
    for window in label.must_fire:
        first, last = window.within
        if not any(each.alert in window.any_of and first <= each.step <= last for each in found):
            wrong.append(f"{' or '.join(window.any_of)} not within {first} to {last}")
    wrong += [f"{each.alert} at {each.step} must not fire" for each in found if each.alert in label.must_not_fire]
    for alert in sorted(label.must_resolve):
        own = [each for each in found if each.alert == alert]
        if not own or own[-1].end_step is None:
            wrong.append(f"{alert} is not resolved")
    for each in found:
        early = label.kind in ("healthy", "control") or (label.onset is not None and (each.sent_step or 0) < label.onset)
        if each.pages and early and each.alert not in label.allowed:
            wrong.append(f"{each.alert} pages at {each.sent_step}")
    return wrong

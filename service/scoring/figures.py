"""Figures of one tool over all labelled runs, and of each rule. What they mean is said in docs/rules/score.md.

A delay is counted in records: 0 is the record of the onset itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rules.model import Severity
from service.labels import Window
from service.scoring.alarms import Alarm, Grade, incidents
from service.scoring.watched import TOCSIN, Watched

NEAR = (2, 5, 10)
"""Records from the onset within which a detection is counted."""


@dataclass(frozen=True)
class FaultFigure:
    """One fault as one tool met it."""

    run: str
    onset: int
    """Step."""
    alarm: str
    """The first that was sent at or after the onset; empty when none was."""
    delay: int | None
    """Records from the onset to it; None when it is missed."""
    incidents: int
    """Incidents in which an alarm was sent at or after the onset."""


@dataclass(frozen=True)
class Total:
    """One tool at one grade."""

    tool: str
    grade: Grade
    faults: tuple[FaultFigure, ...]
    healthy_records: int
    false: tuple[tuple[str, str, int], ...]
    """Run, alarm and record of each that was sent on a healthy stretch."""
    allowed: int
    """Sent on a healthy stretch where the label allows it or asks for it."""

    @property
    def delays(self) -> list[int]:
        """Of the faults that were found, ascending."""
        return sorted(fault.delay for fault in self.faults if fault.delay is not None)

    @property
    def missed(self) -> int:
        return len(self.faults) - len(self.delays)

    def within(self, records: int) -> int:
        return sum(delay <= records for delay in self.delays)

    @property
    def false_per_1000(self) -> float | None:
        """False alarms per 1,000 healthy records; None where there are no such records."""
        return 1_000 * len(self.false) / self.healthy_records if self.healthy_records else None

    @property
    def incidents_per_fault(self) -> float | None:
        """Mean over the faults that were found; None when none was."""
        found = [fault.incidents for fault in self.faults if fault.delay is not None]
        return statistics.fmean(found) if found else None

    def delay(self, share: float) -> int | None:
        """The delay that this share of the found faults does not exceed (nearest rank); None when none was found."""
        return _ranked(self.delays, share)


@dataclass
class RuleFigure:
    """One rule against the windows that name it."""

    alert: str
    severity: Severity | None
    """None: the labels name it, and no rule of the bundle has the name."""
    delays: list[int] = field(default_factory=list)
    """From the first step of the window, one for each window of a fault that it answered: a control has no onset."""
    expected: int = 0
    """Windows that asked for it."""
    answered: int = 0
    in_window: int = 0
    false: int = 0
    """Sent on a healthy stretch."""
    also: int = 0
    """Further faults on which it fired, unasked."""

    def within(self, records: int) -> int:
        return sum(delay <= records for delay in self.delays)

    @property
    def missed(self) -> int:
        return self.expected - self.answered

    def delay(self, share: float) -> int | None:
        return _ranked(sorted(self.delays), share)


def total(tool: str, grade: Grade, runs: Sequence[Watched], severities: Mapping[str, Severity]) -> Total:
    """All runs with one tool. At the grade "page" only faults count that a rule of the bundle is to page for."""
    faults, false, allowed, healthy = [], [], 0, 0
    for run in runs:
        found = [alarm for alarm in run.alarms.get(tool, ()) if alarm.sent is not None and grade.holds(alarm.severity)]
        healthy += run.healthy
        for alarm in found:
            assert alarm.sent is not None
            if alarm.sent > run.healthy:
                continue
            if alarm.name in run.excused:
                allowed += 1
            else:
                false.append((run.run, alarm.name, alarm.sent))
        if run.onset is not None and (grade is Grade.ANY or _pages(run, severities)):
            faults.append(_fault(run, run.onset, tool, found))
    return Total(tool, grade, tuple(faults), healthy, tuple(false), allowed)


def _pages(run: Watched, severities: Mapping[str, Severity]) -> bool:
    return any(severities[alert].pages for alert in run.asked if alert in severities)


def _fault(run: Watched, onset: int, tool: str, found: Sequence[Alarm]) -> FaultFigure:
    assert run.label.onset is not None
    after = {alarm: alarm.sent for alarm in found if alarm.sent is not None and alarm.sent >= onset}
    first = min(after, key=lambda alarm: after[alarm]) if after else None
    return FaultFigure(
        run=run.run,
        onset=run.label.onset,
        alarm=first.name if first else "",
        delay=after[first] - onset if first else None,
        incidents=sum(any(alarm in after for alarm in group) for group in incidents(run.alarms.get(tool, ()))),
    )


# ---- rule by rule


def rules(runs: Sequence[Watched], severities: Mapping[str, Severity]) -> list[RuleFigure]:
    """Each rule of the bundle and each that a label names; by name."""
    figures = {alert: RuleFigure(alert, severity) for alert, severity in severities.items()}
    for run in runs:
        for alert in run.asked - severities.keys():
            figures.setdefault(alert, RuleFigure(alert, None))
        found = run.alarms.get(TOCSIN, ())
        _answers(figures, found, run)
        for alert in {alarm.name for alarm in found}:
            mine = [alarm for alarm in found if alarm.name == alert]
            figure = figures.setdefault(alert, RuleFigure(alert, mine[0].severity))
            if alert not in run.excused:
                figure.false += sum(
                    alarm.sent is not None and alarm.sent <= run.healthy and Grade.ANY.holds(alarm.severity) for alarm in mine
                )
            if run.onset is not None and alert not in run.asked:
                figure.also += any(alarm.record >= run.onset for alarm in mine)
    return sorted(figures.values(), key=lambda figure: figure.alert)


class _Span(NamedTuple):
    """A window of the label in record numbers."""

    names: frozenset[str]
    first: int
    last: int


def _answers(figures: Mapping[str, RuleFigure], found: Sequence[Alarm], run: Watched) -> None:
    """Put what the label's windows asked, and what answered, into the figures.

    The first rule of a window that fires has answered it; when none does, all of them that exist have missed it. A rule that
    is asked for twice is to come again: what came before the second window answers the first. Two windows that begin at the
    same step ask the same thing of a rule once, in the tighter one.
    """
    windows: list[Window] = sorted((*run.label.must_fire, *run.label.later), key=lambda each: each.within)
    spans = [_Span(frozenset(each.any_of), run.record_of(each.within[0]), run.record_of(each.within[1])) for each in windows]
    counted: set[tuple[str, int]] = set()
    for span in spans:
        akin = [other.first for other in spans if other.names & span.names]
        begin = span.first if min(akin) < span.first else min(span.first, run.onset or span.first)
        until = min((first for first in akin if first > span.first), default=math.inf)
        answers = [alarm for alarm in found if alarm.name in span.names and begin <= alarm.record < until]
        answer = min(answers, key=lambda alarm: alarm.record, default=None)
        existing = {name for name in span.names if figures[name].severity is not None}
        for name in [answer.name] if answer else sorted(existing or span.names):
            if (name, span.first) in counted:
                continue
            counted.add((name, span.first))
            figures[name].expected += 1
            if answer:
                figures[name].answered += 1
                figures[name].delays += [max(0, answer.record - span.first)] if run.onset else []
                figures[name].in_window += answer.record <= span.last


def _ranked(ascending: Sequence[int], share: float) -> int | None:
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)] if ascending else None

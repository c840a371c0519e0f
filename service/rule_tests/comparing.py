"""What was expected against what happened: one verdict per case, with every difference.

Every firing, explained and resolved of a watched alert must be listed, and at its step; pending and keeping where the case
lists one for the alert. An alert under `quiet:` must have been judged OK at least once: silence without data proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from rules.engine import Engine
from rules.model import SHADOW, AlertEvent
from service.rule_tests.files import PHASES, Case, Change, Expected
from service.rule_tests.notation import format_value
from service.rule_tests.telling import Happened, Told, tell

Route = Callable[[AlertEvent], Sequence[str]]
_COMPARED: Final = ("severity", "summary", "reason", "explained_by", "verdict", "value", "limit")
_RELATIVE: Final = 1e-4
"""Numbers are compared with four digits, as messages show them."""


class Difference(NamedTuple):
    """One thing that is not as expected."""

    alert: str
    step: int | None
    """None: of the whole case."""
    expected: str
    got: str
    line: int
    """Where in the test file."""

    def __str__(self) -> str:
        where = "" if self.step is None else f" at step {self.step}"
        return f"{self.alert}{where}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one case."""

    case: Case
    differences: Sequence[Difference]
    fired: frozenset[str]
    """Alerts that fired as expected."""
    told: Told
    """With a trace of the alerts that differ, if any does."""

    @property
    def passed(self) -> bool:
        return not self.differences


def run_case(case: Case, engine: Engine, route: Route | None = None) -> Outcome:
    """Tell one case and compare. A case that fails is told again with a trace of the alerts concerned.

    `route` gives the receivers of an event; it is asked only where a case expects receivers.
    """
    told = tell(case, engine)
    differences = compare(case, told, route)
    if differences:
        told = tell(case, engine, trace=frozenset(difference.alert for difference in differences))
    fired = frozenset(item.alert for item in case.expect if item.state in ("firing", "explained"))
    return Outcome(case, differences, fired, told)


def passes(case: Case, engine: Engine) -> bool:
    """Whether a case holds, in short."""
    return not compare(case, tell(case, engine), None)


def compare(case: Case, told: Told, route: Route | None) -> list[Difference]:
    """Every difference, by step."""
    left = [item for item in told.happened if _watched(case, item)]
    differences: list[Difference] = []
    for item, mark in zip(case.expect, case.expect_marks, strict=True):
        match = next((other for other in left if _same(item, other)), None)
        if match is None:
            differences.append(_missing(item, left, mark.line))
            continue
        left.remove(match)
        differences += _details(item, match, route, mark.line)
    for other in left:
        got = f"{other.state}" + (f" ({other.event.reason})" if other.event and other.event.reason else "")
        differences.append(Difference(other.alert, other.step, "nothing", got, case.mark.line))
    for alert in case.quiet:
        if alert not in told.judged_ok and not any(difference.alert == alert for difference in differences):
            why = told.reasons.get(alert, "none of its metrics came")
            differences.append(Difference(alert, None, "quiet after being judged", f"no verdict: {why}", case.mark.line))
    return sorted(differences, key=lambda difference: (difference.step is None, difference.step or 0))


def _watched(case: Case, item: Happened) -> bool:
    if item.state in PHASES:
        return any(other.alert == item.alert and other.state == item.state for other in case.expect)
    return not case.watch or item.alert in case.watch


def _same(item: Expected, other: Happened) -> bool:
    at = item.step == other.step if item.step is not None else item.record == other.record
    labels = not item.labels or item.labels == dict(other.labels)
    return at and labels and item.alert == other.alert and item.state in _names(other)


def _names(item: Happened) -> tuple[Change, ...]:
    """What a case may call it. A rule in shadow is `explained` by its stage alone: its tests may say `firing`, as they have to
    on the next stage."""
    hidden = item.state == "explained" and item.event is not None and item.event.explained_by == SHADOW
    return (item.state, "firing") if hidden else (item.state,)


def _missing(item: Expected, left: Sequence[Happened], line: int) -> Difference:
    """What came instead, if anything did: the same change elsewhere, or another change there."""
    place = item.step if item.step is not None else None
    elsewhere = [f"step {other.step}" for other in left if other.alert == item.alert and other.state == item.state]
    there = [other.state for other in left if other.alert == item.alert and other.step == item.step]
    got = ", ".join(there) or (f"it at {', '.join(elsewhere[:3])}" if elsewhere else "nothing")
    where = f" at record {item.record}" if item.record is not None else ""
    return Difference(item.alert, place, f"{item.state}{where}", got, line)


def _details(item: Expected, other: Happened, route: Route | None, line: int) -> list[Difference]:
    event = other.event
    if event is None:
        return []
    found: list[Difference] = []
    for key in _COMPARED:
        wanted, got = getattr(item, key), getattr(event, key)
        if wanted is not None and not _equal(wanted, got):
            found.append(Difference(item.alert, other.step, f"{key} {_shown(wanted)}", _shown(got), line))
    if item.receivers is not None:
        told = list(route(event)) if route is not None else []
        if sorted(told) != sorted(item.receivers):
            wanted = ", ".join(item.receivers) or "nobody"
            found.append(Difference(item.alert, other.step, f"receivers {wanted}", ", ".join(told) or "nobody", line))
    return found


def _equal(wanted: object, got: object) -> bool:
    if isinstance(wanted, float):
        return isinstance(got, float | int) and math.isclose(wanted, got, rel_tol=_RELATIVE, abs_tol=1e-12)
    return wanted == got


def _shown(value: object) -> str:
    if isinstance(value, float | int):
        return format_value(value)
    return "none" if value is None else repr(str(value))


def expects_receivers(cases: Sequence[Case]) -> Case | None:
    """The first case that asks who is told."""
    return next((case for case in cases if any(item.receivers is not None for item in case.expect)), None)


def as_builtins(outcome: Outcome) -> object:
    """For JSON."""
    return {
        "file": outcome.case.mark.file,
        "line": outcome.case.mark.line,
        "test": outcome.case.name,
        "passed": outcome.passed,
        "differences": [msgspec.to_builtins(difference._asdict()) for difference in outcome.differences],
    }

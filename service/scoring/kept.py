"""The figures that a committed report holds, and whether others are worse. Of every figure less is better.

In the report they stand in two blocks, one figure a line. `Kept figures` is written by the command:

    page.missed 0
    fault.tiny-hang-s1.page 0

`Accepted` is written by people, and says up to what a figure may be worse than the kept one, and why:

    any.false 40 the new rule of entropy warns on a control as well

Errors:

    NoReport    the file holds no such blocks, or a line of them cannot be read; the text names the line
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from service.scoring.alarms import Grade
from service.scoring.figures import NEAR
from service.scoring.watched import TOCSIN
from service.scoring.work import Score

KEPT: Final = "Kept figures"
ACCEPTED: Final = "Accepted"
MISSED: Final = "missed"
"""Written for an infinite delay."""
SAME: Final = frozenset({"corpus.runs", "corpus.faults", "corpus.records"})
"""Figures of the runs themselves: with other ones nothing can be compared."""


class NoReport(Exception):
    """The text says what is wrong."""


class Accepted(NamedTuple):
    """A figure that may be worse than the kept one."""

    up_to: float
    why: str


class Report(NamedTuple):
    """What a committed report says."""

    kept: Mapping[str, float]
    accepted: Mapping[str, Accepted]


class Worse(NamedTuple):
    """A figure that is worse than it may be; infinite where a fault is missed or the figure is gone."""

    figure: str
    kept: float
    now: float | None
    """None: there is no such figure any more."""

    def __str__(self) -> str:
        now = "gone" if self.now is None else spelled(self.now)
        if self.figure in SAME:
            return f"{self.figure}: {spelled(self.kept)} in the report, {now} now: the report is of other runs, write it anew"
        return f"{self.figure}: {spelled(self.kept)} in the report, {now} now"


def keep(score: Score) -> dict[str, float]:
    """The figures of Tocsin that a report keeps."""
    found: dict[str, float] = {}
    for total in score.totals:
        if total.tool != TOCSIN:
            continue
        grade = total.grade.value
        if total.grade is Grade.ANY:
            found["corpus.runs"] = len(score.runs)
            found["corpus.faults"] = len(total.faults)
            found["corpus.records"] = sum(run.records for run in score.runs)
        found[f"{grade}.missed"] = total.missed
        for near in NEAR:
            found[f"{grade}.later_than_{near}"] = len(total.faults) - total.within(near)
        found[f"{grade}.false"] = len(total.false)
        found[f"{grade}.incidents_per_fault"] = round(total.incidents_per_fault or 0.0, 4)
        for name, share in (("median", 0.5), ("p90", 0.9), ("max", 1.0)):
            delay = total.delay(share)
            found[f"{grade}.delay_{name}"] = math.inf if delay is None else delay
        for fault in total.faults:
            found[f"fault.{fault.run}.{grade}"] = math.inf if fault.delay is None else fault.delay
    for rule in score.rules:
        if rule.expected or rule.false:
            found[f"rule.{rule.alert}.missed"] = rule.missed
            found[f"rule.{rule.alert}.false"] = rule.false
    return found


def worse(now: Mapping[str, float], report: Report) -> list[Worse]:
    """The figures that are worse than the report keeps and accepts, in the order of the report.

    A figure that is new (a rule that was not there) is judged when it has been kept once; until then its false alarms count in
    those of all.
    """
    found = []
    for figure, kept in report.kept.items():
        value = now.get(figure)
        limit = max(kept, report.accepted[figure].up_to) if figure in report.accepted else kept
        differs = value != kept if figure in SAME else (math.inf if value is None else value) > limit
        if differs or (value is None and figure not in report.accepted):
            found.append(Worse(figure, kept, value))
    return found


def advice(found: Worse) -> str:
    """How to accept it."""
    value = MISSED if found.now is None else spelled(found.now)
    return f"{found.figure} {value} <why this is acceptable>"


def read(text: str) -> Report:
    """The blocks of a report. Raises NoReport."""
    kept: dict[str, float] = {}
    for line in _block(text, KEPT):
        figure, value, _ = _line(line)
        kept[figure] = value
    if not kept:
        raise NoReport(f"the block `{KEPT}` is empty")
    accepted: dict[str, Accepted] = {}
    for line in _block(text, ACCEPTED):
        figure, value, why = _line(line)
        if not why:
            raise NoReport(f"`{line}` does not say why (write: figure, value, reason)")
        if figure not in kept:
            raise NoReport(f"`{line}` accepts a figure that the report does not keep")
        accepted[figure] = Accepted(value, why)
    return Report(kept, accepted)


def written(kept: Mapping[str, float], accepted: Mapping[str, Accepted]) -> str:
    """The two blocks, as `read` reads them."""
    figures = "\n".join(f"{figure} {spelled(value)}" for figure, value in kept.items())
    lines = "\n".join(f"{figure} {spelled(each.up_to)} {each.why}" for figure, each in accepted.items() if figure in kept)
    return f"## {KEPT}\n\n```text\n{figures}\n```\n\n## {ACCEPTED}\n\n```text\n{lines}{chr(10) if lines else ''}```\n"


def spelled(value: float) -> str:
    return MISSED if math.isinf(value) else f"{value:g}" if value % 1 else str(int(value))


def _block(text: str, title: str) -> list[str]:
    found = re.search(rf"^## {title}$.*?^```text$\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise NoReport(f"there is no block `{title}`")
    return [line.strip() for line in found[1].splitlines() if line.strip()]


def _line(line: str) -> tuple[str, float, str]:
    figure, _, rest = line.partition(" ")
    value, _, why = rest.partition(" ")
    try:
        number = math.inf if value == MISSED else float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise NoReport(f"`{line}` holds no number (write: figure and value)")
    return figure, number, why.strip()

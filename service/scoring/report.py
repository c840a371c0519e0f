"""A score as text, as Markdown for the repository, and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from service.scoring.alarms import Grade
from service.scoring.figures import NEAR, FaultFigure, RuleFigure, Total
from service.scoring.kept import Accepted, keep, written
from service.scoring.watched import TOCSIN
from service.scoring.work import Score
from service.tables import markdown_table, plain_table, plural

_GRADES: Final = {Grade.PAGE: "page, stop", Grade.ANY: "warnings too"}
_NONE: Final = "–"
_INTRO: Final = """# Detection report

What the shipped rules say on recorded runs, and when. The words are explained in [rules/score.md](rules/score.md); a test
computes the figures anew and fails when one is worse than what is kept at the end of this page. Written by

    tocsin rules score --runs DIR --peers --format markdown --against docs/detection.md -o docs/detection.md
"""


class _Section(NamedTuple):
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int]
    note: str = ""


def text(score: Score) -> str:
    """For a terminal."""
    return "\n\n".join(_body(section, plain_table, "") for section in _sections(score)) + "\n"


def markdown(score: Score, accepted: Mapping[str, Accepted] | None = None) -> str:
    """For the repository, with the kept figures at its end; `accepted` are the lines that people wrote."""
    tables = "\n\n".join(_body(section, markdown_table, "## ") for section in _sections(score))
    return f"{_INTRO}\n{tables}\n\n{written(keep(score), accepted or {})}"


def as_json(score: Score) -> str:
    """One object; a delay of null is a missed fault."""
    document = {
        "runs": len(score.runs),
        "records": sum(run.records for run in score.runs),
        "totals": [_total_json(total) for total in score.totals],
        "rules": [_rule_json(rule) for rule in score.rules],
        "figures": {figure: None if math.isinf(value) else value for figure, value in keep(score).items()},
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


# ---- tables


def _body(section: _Section, table: Callable[..., str], mark: str) -> str:
    body = table(section.headings, section.rows, section.right) if section.rows else "none"
    return f"{mark}{section.title}\n\n{body}" + (f"\n\n{section.note}" if section.note else "")


def _sections(score: Score) -> list[_Section]:
    tools = list(dict.fromkeys(total.tool for total in score.totals))
    return [_in_all(score), *(_faults(score, tool) for tool in tools), _rules(score), _false(score)]


def _in_all(score: Score) -> _Section:
    headings = ["tool", "alarms", "faults", *(f"within {near}" for near in NEAR), "missed", "false", "per 1,000 records",
                "incidents per fault", "delay: median", "p90", "max"]  # fmt: skip
    rows = [
        [
            total.tool,
            _GRADES[total.grade],
            str(len(total.faults)),
            *(str(total.within(near)) for near in NEAR),
            str(total.missed),
            str(len(total.false)),
            _number(total.false_per_1000),
            _number(total.incidents_per_fault),
            *(_number(total.delay(share)) for share in (0.5, 0.9, 1.0)),
        ]
        for total in score.totals
    ]
    healthy = sum(run.healthy for run in score.runs)
    note = f"{len(score.runs)} runs, {sum(run.records for run in score.runs):,} records, {healthy:,} of them healthy."
    return _Section("In all", headings, rows, frozenset(range(2, len(headings))), note)


def _faults(score: Score, tool: str) -> _Section:
    paged, sent = ({fault.run: fault for fault in _total(score, tool, grade).faults} for grade in Grade)
    rows = [
        [run, str(fault.onset), *_fault_cells(paged.get(run)), *_fault_cells(fault), str(fault.incidents)]
        for run, fault in sent.items()
    ]
    headings = ["run", "onset (step)", "first page", "delay", "first of all", "delay", "incidents"]
    note = "Dashes without a delay: no page is called for."
    return _Section(f"Fault by fault: {tool}", headings, rows, frozenset((1, 3, 5, 6)), note)


def _fault_cells(fault: FaultFigure | None) -> list[str]:
    if fault is None:
        return [_NONE, _NONE]
    return [fault.alarm or "missed", _number(fault.delay)]


def _total(score: Score, tool: str, grade: Grade) -> Total:
    return next(total for total in score.totals if total.tool == tool and total.grade is grade)


def _rules(score: Score) -> _Section:
    told = [rule for rule in score.rules if rule.expected or rule.false or rule.also]
    headings = ["rule", "severity", "asked for", "answered", "in its window", *(f"within {near}" for near in NEAR),
                "delay: median", "max", "false", "other faults"]  # fmt: skip
    rows = [
        [
            rule.alert,
            rule.severity.value if rule.severity else "not in the bundle",
            *map(str, (rule.expected, rule.answered, rule.in_window, *(rule.within(near) for near in NEAR))),
            *(_number(rule.delay(share)) for share in (0.5, 1.0)),
            str(rule.false),
            str(rule.also),
        ]
        for rule in told
    ]
    silent = [rule.alert for rule in score.rules if rule not in told]
    note = f"Neither asked for nor heard: {', '.join(silent)}." if silent else ""
    return _Section("Rule by rule", headings, rows, frozenset(range(2, len(headings))), note)


def _false(score: Score) -> _Section:
    """Of Tocsin run by run, of other tools all runs together: they are shown for the size of it."""
    kinds = {run.run: run.label.kind or "" for run in score.runs}
    rows = []
    for tool in dict.fromkeys(total.tool for total in score.totals):
        sent, paged = (
            Counter((run, alarm) for run, alarm, _ in _total(score, tool, grade).false) for grade in (Grade.ANY, Grade.PAGE)
        )
        if tool == TOCSIN:
            rows += [[tool, run, kinds[run], alarm, str(times), str(paged[run, alarm])] for (run, alarm), times in sent.items()]
            continue
        for alarm in dict.fromkeys(alarm for _, alarm in sent):
            runs = [run for run, other in sent if other == alarm]
            times, pages = (sum(counts[run, alarm] for run in runs) for counts in (sent, paged))
            rows.append([tool, plural(len(runs), "run"), _NONE, alarm, str(times), str(pages)])
    headings = ["tool", "run", "kind", "alarm", "times", "of them pages"]
    return _Section("False alarms", headings, rows, frozenset((4, 5)))


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


# ---- JSON


def _total_json(total: Total) -> dict[str, object]:
    return {
        "tool": total.tool,
        "grade": total.grade.value,
        "within": {str(near): total.within(near) for near in NEAR},
        "missed": total.missed,
        "delays": total.delays,
        "healthy_records": total.healthy_records,
        "false_per_1000": total.false_per_1000,
        "allowed": total.allowed,
        "incidents_per_fault": total.incidents_per_fault,
        "faults": [
            {
                "run": fault.run,
                "onset": fault.onset,
                "alarm": fault.alarm or None,
                "delay": fault.delay,
                "incidents": fault.incidents,
            }
            for fault in total.faults
        ],
        "false": [{"run": run, "alarm": alarm, "record": record} for run, alarm, record in total.false],
    }


def _rule_json(rule: RuleFigure) -> dict[str, object]:
    return {
        "alert": rule.alert,
        "severity": rule.severity.value if rule.severity else None,
        "asked_for": rule.expected,
        "answered": rule.answered,
        "in_window": rule.in_window,
        "delays": sorted(rule.delays),
        "false": rule.false,
        "other_faults": rule.also,
    }

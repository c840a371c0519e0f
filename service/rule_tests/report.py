"""What the tests found, for people, programs, GitHub and JUnit readers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from service.annotations import annotation
from service.rule_tests.comparing import Difference, Outcome, as_builtins
from service.rule_tests.coverage import Gap
from service.rule_tests.files import Case
from service.rule_tests.notation import format_value

_AROUND = 2
"""Steps that are shown before and after one that differs."""
_MOST_ROWS = 40


def text(outcome: Outcome) -> str:
    """A case that failed: its differences, and a table of the steps around them."""
    case = outcome.case
    lines = [f"FAILED {case.mark.file}:{case.mark.line}: {case.name}"]
    lines += [f"  {difference}" for difference in outcome.differences]
    strangers = [difference.alert for difference in outcome.differences if difference.alert not in case.alerts]
    if strangers and not case.watch:
        # Every alert of the bundle has its say then, those of the packs too, which surprises whoever writes a first test.
        own = ", ".join(sorted(case.alerts)) or "..."
        lines.append(f"  Is {strangers[0]} no matter of these tests? Name at the head of the file what is: watch: [{own}]")
    return "\n".join([*lines, "", *("  " + line for line in _table(outcome))])


def _table(outcome: Outcome) -> list[str]:
    """step, inputs, alert, verdict, state, value, limit, and what was expected and got there."""
    differing = {(item.alert, item.step): item for item in outcome.differences if item.step is not None}
    last = outcome.case.steps[-1]
    steps = sorted({step for _, at in differing for step in range((at or 0) - _AROUND, (at or 0) + _AROUND + 1)})
    wanted = set(steps) if steps else set(range(max(1, last - _AROUND), last + 1))
    rows = [("step", "inputs", "alert", "verdict", "state", "value", "limit", "expected", "got")]
    for seen in outcome.told.seen:
        if seen.step not in wanted:
            continue
        difference: Difference | None = differing.get((seen.alert, seen.step))
        labels = ",".join(f"{key}={value}" for key, value in seen.labels.items())
        rows.append(
            (
                str(seen.step),
                _inputs(outcome.case, seen.row),
                f"{seen.alert}{{{labels}}}" if labels else seen.alert,
                seen.verdict.value,
                seen.phase.value,
                format_value(seen.value) if seen.value is not None else "-",
                format_value(seen.limit) if seen.limit is not None else "-",
                difference.expected if difference else "",
                difference.got if difference else "",
            )
        )
    if len(rows) == 1:
        return ["no rule was judged around these steps"]
    cut = len(rows) - 1 - _MOST_ROWS
    rows = rows[: _MOST_ROWS + 1]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*shown, f"... {cut} rows more"] if cut > 0 else shown


def _inputs(case: Case, row: int) -> str:
    series = {**case.metrics, **case.signals}
    pairs = [f"{key}={format_value(values[row] if row < len(values) else None)}" for key, values in series.items()]
    if case.groups and (groups := case.groups[row]) is not None:
        pairs.insert(0, f"groups={len(groups.prompt)}")
    return " ".join(pairs[:4]) + (f" and {len(pairs) - 4} more" if len(pairs) > 4 else "")


def as_json(outcomes: Sequence[Outcome], missing: Sequence[Gap]) -> str:
    """One object: the tests and the gaps of their coverage."""
    body = {
        "passed": sum(outcome.passed for outcome in outcomes),
        "failed": sum(not outcome.passed for outcome in outcomes),
        "tests": [as_builtins(outcome) for outcome in outcomes],
        "uncovered": [{"alert": gap.rule.name, "id": gap.rule.id, "missing": list(gap.missing)} for gap in missing],
    }
    return json.dumps(body, ensure_ascii=False, indent=1, allow_nan=False)


def github(outcomes: Sequence[Outcome], missing: Sequence[Gap]) -> Iterator[str]:
    """Workflow commands, which GitHub shows as annotations at their lines."""
    for outcome in outcomes:
        for difference in outcome.differences:
            yield annotation("error", outcome.case.mark.file, difference.line, outcome.case.name, str(difference))
    for gap in missing:
        yield annotation("error", gap.mark.file, gap.mark.line, "not covered", str(gap))


def junit(outcomes: Sequence[Outcome], missing: Sequence[Gap], *, coverage: bool) -> str:
    """A JUnit file: a suite per test file; with `coverage` one more, whose failures are rules that lack a kind of case."""
    by_file: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_file.setdefault(outcome.case.mark.file, []).append(outcome)
    failures = sum(not outcome.passed for outcome in outcomes) + len(missing)
    root = ElementTree.Element("testsuites", tests=str(len(outcomes) + len(missing)), failures=str(failures))
    for file, group in by_file.items():
        failed = sum(not outcome.passed for outcome in group)
        suite = ElementTree.SubElement(root, "testsuite", name=file, tests=str(len(group)), failures=str(failed))
        for outcome in group:
            case = ElementTree.SubElement(
                suite, "testcase", name=_xml(outcome.case.name), classname=file, file=file, line=str(outcome.case.mark.line)
            )
            if not outcome.passed:
                said = _xml("; ".join(map(str, outcome.differences)))
                ElementTree.SubElement(case, "failure", message=said, type="difference").text = _xml(text(outcome))
    if coverage:
        count = str(len(missing))
        suite = ElementTree.SubElement(root, "testsuite", name="coverage", tests=count, failures=count)
        for gap in missing:
            case = ElementTree.SubElement(suite, "testcase", name=gap.rule.name, classname="coverage")
            ElementTree.SubElement(case, "failure", message=str(gap), type="coverage")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(value: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(char if char in "\t\n\r" or ord(char) >= 0x20 else "\ufffd" for char in value)

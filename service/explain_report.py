"""An explanation as text with a small chart, or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from rules.model import AlertEvent, EventState
from service.evidence import moment
from service.evidence.moment import Evidence
from service.explaining import Explanation
from service.tables import plain_table
from service.tracing import Labels, Point
from tocsin.wire import spell

_HEIGHT: Final = 8
_LOG_SPAN: Final = 100.0
"""From this ratio on between the largest and the smallest value the chart is logarithmic."""


def text(found: Explanation, remarks: Sequence[str] = ()) -> str:
    """The verdict, why, the chart, the history, and where everything comes from."""
    point, rule, run = found.point, found.trace.rule, found.trace.live.run
    name = rule.name + _labels(found.labels)
    parts = [
        f"{name} on {found.trace.run} at step {point.step} (record {point.record}, attempt {point.attempt})",
        f"  verdict  {_verdict(point)}\n"
        f"  reason   {point.reason}\n"
        f"  value    {number(point.value)}\n"
        f"  limit    {number(point.limit)}\n"
        f"  state    {_state(point)}",
        f"  {rule.expr.strip()}\n" + "\n".join(_sides(found)) if found.sides else f"  {rule.expr.strip()}",
    ]
    if picture := chart(found.chart, point.step):
        parts.append(picture)
    parts.append("history\n" + _indented(_history(found)))
    if found.trace.events:
        parts.append("events\n" + _indented(_events(found)))
    if found.evidence is not None:
        parts.append("evidence\n" + "\n".join(_evidence(found.evidence)))
    if found.inputs:
        parts.append("inputs\n" + _indented(_inputs(found)))
    rows = [[each.key, each.value, each.place] for each in found.fields]
    parts.append("rule\n" + _indented(plain_table(("field", "value", "written in"), rows)))
    if run.labels:
        parts.append("run labels\n" + "\n".join(f"  {key}: {value}" for key, value in sorted(run.labels.items())))
    parts += [f"note: {remark}" for remark in remarks]
    return "\n\n".join(parts) + "\n"


def as_json(found: Explanation, remarks: Sequence[str] = ()) -> str:
    """The same for scripts; its keys are a contract. Numbers that JSON does not have are spelled as on the wire."""
    rule = found.trace.rule
    document = {
        "run": found.trace.run,
        "alert": rule.name,
        "id": rule.id,
        "labels": dict(found.labels),
        **_point(found.point),
        "comparisons": [{**side._asdict(), "left": spell(side.left), "right": spell(side.right)} for side in found.sides],
        "inputs": [
            {**item._asdict(), **{key: spell(getattr(item, key)) for key in ("value", "baseline", "recorded")}}
            for item in found.inputs
        ],
        "fields": [item._asdict() for item in found.fields],
        "history": [_point(point) for point in found.history],
        "events": [
            {"state": event.state.value, "step": event.step, "severity": event.severity.value, "reason": event.reason}
            for event in _own_events(found)
        ],
        "evidence": None if found.evidence is None else moment.fields(found.evidence),
        "notes": list(remarks),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def chart(points: Sequence[Point], step: int) -> str:
    """The values as stars over the limit's line, one column per record; an arrow under the step. Empty without values.

    `x` is a value that breaches, `!` in the top row one that is not finite.
    """
    finite = [value for point in points for value in (point.value, point.limit) if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    logarithmic = low > 0 and high / low >= _LOG_SPAN

    def row(value: float) -> int:
        if high == low:
            return _HEIGHT // 2
        at = math.log(value / low) / math.log(high / low) if logarithmic else value / 2 - low / 2
        share = at if logarithmic else at / (high / 2 - low / 2)
        return round((1 - min(1.0, max(0.0, share))) * (_HEIGHT - 1))

    grid = [[" "] * len(points) for _ in range(_HEIGHT)]
    for column, point in enumerate(points):
        if point.limit is not None and math.isfinite(point.limit):
            grid[row(point.limit)][column] = "-"
        if point.value is None:
            continue
        breach = point.verdict.value in ("breach", "non_finite")
        if math.isfinite(point.value):
            grid[row(point.value)][column] = "x" if breach else "*"
        else:
            grid[0][column] = "!"
    ends = {0: number(high), _HEIGHT - 1: number(low)}
    width = max(map(len, ends.values()))
    lines = [f"  {ends.get(at, '').rjust(width)} |{''.join(line).rstrip()}" for at, line in enumerate(grid)]
    first, last = points[0].step, points[-1].step
    here = next((column for column, point in enumerate(points) if point.step == step), 0)
    key = f"steps {first} to {last}; * value, x breach, - limit" + (", logarithmic" if logarithmic else "")
    return "\n".join([*lines, f"  {' ' * width} +{' ' * here}^ step {step}", f"  {' ' * width}  {key}"])


def number(value: float | None) -> str:
    """Four significant digits; a dash for none."""
    return "–" if value is None else f"{value:.4g}"


def _labels(labels: Labels) -> str:
    return "{" + ", ".join(f"{key}={value}" for key, value in labels) + "}" if labels else ""


def _verdict(point: Point) -> str:
    return point.verdict.value + ("" if point.judged else " (not judged at this record)")


def _state(point: Point) -> str:
    return point.phase.value + (f", explained by {point.explained_by}" if point.explained_by else "")


def _sides(found: Explanation) -> list[str]:
    lines = []
    for side in found.sides:
        numbers = f", {number(side.left)} against {number(side.right)}" if (side.left, side.right) != (None, None) else ""
        lines.append(f"    {side.text}: {side.result}{numbers}" + (f" ({side.why})" if side.why else ""))
    return lines


def _history(found: Explanation) -> str:
    rows = [
        [
            ">" if point.record == found.point.record else "",
            str(point.step),
            point.verdict.value if point.judged else f"({point.verdict.value})",
            number(point.value),
            number(point.limit),
            _state(point),
            point.reason,
        ]
        for point in found.history
    ]
    return plain_table(("", "step", "verdict", "value", "limit", "state", "reason"), rows, right=(1, 3, 4))


def _own_events(found: Explanation) -> list[AlertEvent]:
    return [event for event in found.trace.events if tuple(sorted(event.labels.items())) == found.labels]


def _events(found: Explanation) -> str:
    rows = [
        [str(event.step), event.state.value, event.severity.value, why]
        for event in _own_events(found)
        for why in [event.reason if event.state is EventState.RESOLVED else event.summary or event.reason]
    ]
    return plain_table(("step", "state", "severity", "why"), rows, right=(0,))


def _evidence(found: Evidence) -> list[str]:
    hint = [f"  next: {found.triage.hint}"] if found.triage.hint else []
    return [f"  {line}" for line in moment.lines(found)] + hint + [f"  not known: {each}" for each in found.triage.missing]


def _inputs(found: Explanation) -> str:
    rows = [
        [
            item.series,
            item.provenance,
            number(item.value),
            "–" if item.last_step is None else str(item.last_step),
            str(item.samples),
            number(item.baseline),
            number(item.recorded),
        ]
        for item in found.inputs
    ]
    headings = ("series", "provenance", "value", "last at step", "samples", "baseline", "recorded")
    return plain_table(headings, rows, right=range(2, 7))


def _point(point: Point) -> dict[str, Any]:
    return {
        "attempt": point.attempt,
        "step": point.step,
        "record": point.record,
        "judged": point.judged,
        "verdict": point.verdict.value,
        "reason": point.reason,
        "value": spell(point.value),
        "limit": spell(point.limit),
        "state": point.phase.value,
        "explained_by": point.explained_by,
    }


def _indented(table: str) -> str:
    return "\n".join(f"  {line}" for line in table.splitlines())

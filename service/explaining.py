"""Why a rule said what it said at one step: its sides in numbers, its inputs, and where every field of it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rules.bundle import AlertRule, Bundle, RecordRule
from rules.compile import Compiler
from rules.frame import Frame
from rules.strict_yaml import Mark
from rules.syntax import Compare, Metric, Node, Variable, render, walk
from service.tracing import Labels, Point, Trace, frame, metrics, scope

_AROUND = 10


class Side(NamedTuple):
    """One comparison of the condition with the numbers on both sides; None is UNKNOWN, with the reason in `why`."""

    text: str
    left: float | None
    right: float | None
    why: str


class Input(NamedTuple):
    """A series that the rule reads."""

    series: str
    provenance: str
    """exact, convert, proxy, raw, signal, recorded; `absent` when the run has no such series."""
    value: float | None
    """At this step; None when the step does not carry it."""
    last_step: int | None
    """Newest step up to this one that carries it."""
    samples: int
    baseline: float | None
    recorded: float | None


class Field(NamedTuple):
    """A leaf of the rule and where it is written."""

    key: str
    value: str
    place: str
    """`file:line:column`, or `default`."""


class Explanation(NamedTuple):
    """Everything about one rule, one run and one step."""

    trace: Trace
    labels: Labels
    point: Point
    history: Sequence[Point]
    """The records around it."""
    chart: Sequence[Point]
    """More of them, for the picture."""
    sides: Sequence[Side]
    inputs: Sequence[Input]
    fields: Sequence[Field]


def chosen_step(trace: Trace, labels: Labels | None) -> int | None:
    """Where to look when nobody says: where it first fires, else its last breach, else the last record. None without points."""
    points = [point for point in trace.points if labels is None or point.labels == labels]
    for found in (
        next((point for point in points if point.phase.fires), None),
        next((point for point in reversed(points) if point.judged and point.verdict.value in ("breach", "non_finite")), None),
    ):
        if found is not None:
            return found.step
    return points[-1].step if points else None


def explain(whole: Trace, until: Trace, step: int, labels: Labels | None) -> Explanation | None:
    """The explanation of `step`; `until` is the trace that stopped there, `whole` the one to the end. None without it."""
    at = [point for point in until.points if point.step == step and (labels is None or point.labels == labels)]
    if not at:
        return None
    point = next((each for each in at if each.phase.fires), at[0])
    # A stall behind the record is known only to the trace that read on.
    point = next((each for each in whole.points if each.record == point.record and each.labels == point.labels), point)
    own = [each for each in whole.points if each.labels == point.labels]
    here = own.index(point)
    view = frame(until.live, until.rule, point.labels)
    return Explanation(
        trace=whole,
        labels=point.labels,
        point=point,
        history=own[max(0, here - _AROUND) : here + _AROUND + 1],
        chart=own[max(0, here - 3 * _AROUND) : here + 3 * _AROUND + 1],
        sides=_sides(until, view),
        inputs=_inputs(until, view),
        fields=_fields(until.bundle, until.rule),
    )


def _sides(trace: Trace, view: Frame) -> list[Side]:
    found = []
    for node in walk(trace.rule.node):
        if not isinstance(node, Compare):
            continue
        compiler = Compiler(scope(trace.bundle, trace.rule))
        left, right = compiler.quantity(node.left), compiler.quantity(node.right)
        if left is None or right is None:
            continue  # texts are compared: the run's labels are shown anyway
        view.why = ""
        found.append(Side(render(node), left(view), right(view), view.why))
    return found


def _inputs(trace: Trace, view: Frame) -> list[Input]:
    run = trace.live.run
    found = []
    nodes = [*metrics(trace.rule), *(node for rule in _records(trace.bundle, trace.rule) for node in _metrics(rule.node))]
    for key in dict.fromkeys(view.resolved(node.key) for node in nodes):
        series = run.series.get(key)
        if series is None:
            found.append(Input(key, "absent", None, None, 0, None, run.recorded.get(key)))
            continue
        pairs = [(step, value) for step, value in zip(series.steps, series.values, strict=True) if step <= run.step]
        last = pairs[-1] if pairs else None
        baseline = run.baselines.get(key)
        found.append(
            Input(
                series=key,
                provenance=str(series.provenance),
                value=last[1] if last is not None and last[0] == run.step else None,
                last_step=last[0] if last is not None else None,
                samples=len(pairs),
                baseline=None if baseline is None else baseline.centre,
                recorded=run.recorded.get(key),
            )
        )
    return found


def _fields(bundle: Bundle, rule: AlertRule) -> list[Field]:
    values = {
        "expr": rule.expr,
        "for": str(rule.hold),
        "leave": rule.leave,
        "keep": str(rule.keep),
        "severity": str(rule.severity),
        "warmup": f"{rule.warmup} records",
        "on_gap": str(rule.on_gap),
        "on_non_finite": str(rule.on_non_finite),
        "requires_exact": ", ".join(rule.requires_exact),
        "independent": str(rule.independent).lower(),
        "stage": str(rule.stage),
        "runbook": rule.runbook,
    }
    always = {"expr", "for", "severity"}
    found = [
        Field(key, " ".join(value.split()), _place(rule.marks.get(key)))
        for key, value in values.items()
        if key in always or key in rule.marks
    ]
    group = bundle.group(rule.group)
    nodes = [rule.node, *([rule.leave_node] if rule.leave_node is not None else [])]
    found += _variables(bundle, rule.group, nodes)
    for record in _records(bundle, rule):
        found.append(Field(record.name, " ".join(record.expr.split()), _place(record.marks.get("expr"))))
        found += [each for each in _variables(bundle, record.group, [record.node]) if each not in found]
    found.append(Field("layer", str(rule.layer), _near(group.file)))
    return found


def _variables(bundle: Bundle, group: str, nodes: Sequence[Node]) -> list[Field]:
    known = bundle.group(group).vars
    found = []
    for name in dict.fromkeys(node.name for each in nodes for node in walk(each) if isinstance(node, Variable)):
        mark = known[name].marks.get("value", known[name].mark)
        found.append(Field(f"${name}", f"{known[name].value:g} {known[name].unit}", _place(mark)))
    return found


def _records(bundle: Bundle, rule: AlertRule) -> list[RecordRule]:
    """The record rules that the rule reads, and those that they read, each once."""
    by_name = {record.name: record for record in bundle.records}
    waiting = [node.name for node in metrics(rule)]
    found: dict[str, RecordRule] = {}
    while waiting:
        name = waiting.pop(0)
        if name in by_name and name not in found:
            found[name] = by_name[name]
            waiting += [node.name for node in _metrics(by_name[name].node)]
    return list(found.values())


def _metrics(node: Node) -> list[Metric]:
    return [each for each in walk(node) if isinstance(each, Metric)]


def _place(mark: Mark | None) -> str:
    return "default" if mark is None else f"{_near(mark.file)}:{mark.line}:{mark.column}"


def _near(file: str) -> str:
    """A path as short as it can be written from here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else file

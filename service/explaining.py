"""Why a rule said what it said at one step: its sides in numbers, its inputs, and where every field of it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from collector.model import Provenance
from collector.signals.triage import Raised
from rules.bundle import AlertRule, Bundle
from rules.compile import Compiler
from rules.config_errors import Mark
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Frame
from rules.model import Phase, Verdict
from rules.named import CONDITIONS
from rules.run_states import StateKey
from rules.syntax import Call, Compare, Node, Variable, render, walk
from service.evidence.moment import Evidence, evidence
from service.tracing import Labels, Point, Trace, frame, reads, scope

_AROUND: Final = 10
_FROM_RULE: Final = "record rule"
"""Said of a series that a `record:` rule makes: beside recorded baselines "recorded" would be read as one of these."""
_RESULTS: Final = {FALSE: "false", UNKNOWN: "unknown", NON_FINITE: "not finite", TRUE: "true"}


class Side(NamedTuple):
    """One comparison of the condition, or one question such as `firing(Other)`."""

    text: str
    result: str
    """true, false, unknown, or not finite."""
    left: float | None
    """The numbers on both sides; None is UNKNOWN, or no number at all."""
    right: float | None
    why: str
    """Why the result is unknown."""


class Input(NamedTuple):
    """A series that the rule reads."""

    series: str
    provenance: str
    """exact, convert, proxy, raw, signal, `record rule`; `absent` when the run has no such series."""
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
    evidence: Evidence | None = None
    """What moved first, and what it may be; None where the rule neither breaches nor fires."""


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
    view = frame(until.live, until.rule, reads(until.bundle, until.rule), point.labels)
    return Explanation(
        trace=whole,
        labels=point.labels,
        point=point,
        history=own[max(0, here - _AROUND) : here + _AROUND + 1],
        chart=own[max(0, here - 3 * _AROUND) : here + 3 * _AROUND + 1],
        sides=_sides(until, view),
        inputs=_inputs(until, view),
        fields=_fields(until.bundle, until.rule),
        evidence=_evidence(until, point),
    )


def _evidence(until: Trace, point: Point) -> Evidence | None:
    """On the run as it was at the step; the alerts of the incident are those that fire then."""
    live = until.live
    if not point.phase.fires and point.verdict not in (Verdict.BREACH, Verdict.NON_FINITE):
        return None
    alerts = {rule.id: rule for rule in until.bundle.alerts}
    firing = [alerts[key.rule_id] for key in live.states.firing if key.rule_id in alerts]
    raised = {Raised(rule.name, rule.layer, rule.severity.pages) for rule in (*firing, until.rule)}
    state = live.states.states.get(StateKey(until.rule.id, point.labels))
    held = state is not None and state.phase is not Phase.INACTIVE
    since = min(state.pending_step, point.step) if state is not None and held else point.step
    return evidence(live.run, since, raised)


def _sides(trace: Trace, view: Frame) -> list[Side]:
    found = []
    for node in walk(trace.rule.node):
        if not isinstance(node, Compare) and not (isinstance(node, Call) and node.function in CONDITIONS):
            continue
        compiler = Compiler(scope(trace.bundle, trace.rule))
        condition = compiler.condition(node)
        assert condition is not None, "the bundle was checked when it was loaded"
        view.why = ""
        result = _RESULTS[condition(view)]
        left = right = None
        if isinstance(node, Compare) and (one := compiler.quantity(node.left)) and (other := compiler.quantity(node.right)):
            left, right = one(view), other(view)
        found.append(Side(render(node), result, left, right, view.why if result == "unknown" else ""))
    return found


def _inputs(trace: Trace, view: Frame) -> list[Input]:
    run = trace.live.run
    found = []
    for key in dict.fromkeys(map(view.resolved, reads(trace.bundle, trace.rule).series)):
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
                provenance=_FROM_RULE if series.provenance is Provenance.RECORDED else str(series.provenance),
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
    for record in reads(bundle, rule).records:
        found.append(Field(record.name, " ".join(record.expr.split()), _place(record.marks.get("expr"))))
        found += [each for each in _variables(bundle, record.group, [record.node]) if each not in found]
    found.append(Field("layer", str(rule.layer), _near(group.file)))
    return found


def _variables(bundle: Bundle, group: str, nodes: Sequence[Node]) -> list[Field]:
    known = bundle.group(group).vars
    found = []
    for name in dict.fromkeys(node.name for each in nodes for node in walk(each) if isinstance(node, Variable)):
        mark = known[name].marks.get("value", known[name].mark)
        unit = "" if known[name].unit == "1" else f" {known[name].unit}"
        found.append(Field(f"${name}", f"{known[name].value:g}{unit}", _place(mark)))
    return found


def _place(mark: Mark | None) -> str:
    return "default" if mark is None else f"{_near(mark.file)}:{mark.line}:{mark.column}"


def _near(file: str) -> str:
    """A path as short as it can be written from here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else file

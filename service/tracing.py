"""One rule on one run, record by record: the same fold and the same judging as live, with what the rule saw written down.

The condition is evaluated once more after the engine has judged the record, on the same run with the same states, because the
engine keeps only its last result. The phase, and what a warm-up or a proxy forbids, are the engine's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from collector.model import RawRecord
from collector.run_state import DEPTH, RecordedFor
from collector.runs import Runs
from rules.bundle import AlertRule, Bundle, RecordRule
from rules.compile import Compiler
from rules.engine import Engine
from rules.events import reason
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Frame
from rules.model import AlertEvent, EventState, Phase, Verdict
from rules.operands import Scope
from rules.overrides import effective
from rules.program import instances
from rules.rule_state import RuleState
from rules.run_states import RunStates, StateKey
from service.judging import judge
from service.live import ClockKind, Live
from tocsin import wire

Labels = tuple[tuple[str, str], ...]
_VERDICTS: Final = {FALSE: Verdict.OK, TRUE: Verdict.BREACH, NON_FINITE: Verdict.NON_FINITE}


class Point(NamedTuple):
    """What the rule made of one record."""

    labels: Labels
    attempt: int
    step: int
    record: int
    event_time: float
    judged: bool
    """Whether this record brought a verdict: it brings an input, and nothing was missing."""
    verdict: Verdict
    reason: str
    value: float | None
    limit: float | None
    phase: Phase
    explained_by: str


@dataclass(slots=True)
class Trace:
    """A rule on a run."""

    run: str
    rule: AlertRule
    """As it holds for this run's labels."""
    bundle: Bundle
    live: Live
    """The run as it was after the last record that was read."""
    points: list[Point] = field(default_factory=list)
    """In the order of the records; one per step and set of own labels."""
    events: list[AlertEvent] = field(default_factory=list)
    """Of this rule."""
    rejected: int = 0

    @property
    def condition_labels(self) -> list[Labels]:
        """The sets of own labels that were judged, in the order in which they appeared."""
        return list(dict.fromkeys(point.labels for point in self.points))


def trace(
    rows: Iterable[RawRecord],
    engine: Engine,
    name: str,
    *,
    run: str,
    clock: ClockKind = "event",
    until: int | None = None,
    recorded_for: RecordedFor | None = None,
) -> Trace | None:
    """Follows the rule (by id or alert name) through the rows of `run`; up to and with the step `until`.
    `recorded_for` gives the run its recorded clean baseline.

    None when there is no record of the run. Raises KeyError for a rule that the bundle does not have.
    """
    rule = engine.bundle.alert(name)
    live = Live(Runs(depth=max(engine.depth, DEPTH), recorded_for=recorded_for).make(run), RunStates(), "")
    found = Trace(run, rule, engine.bundle, live)
    watch: _Watch | None = None
    known: object = None
    seen = False
    for raw in rows:
        try:
            record = wire.decode(raw.value, raw.content_type).record
        except wire.WireError:
            found.rejected += 1
            continue
        if record.run != run:
            continue
        same_step = isinstance(record, wire.StepRecord) and record.step == until
        if until is not None and live.run.step == until and not same_step:
            break
        seen = True
        judged = judge(live, raw, record, engine, clock=clock, now=raw.received_at, silence=True)
        if watch is None or known != live.run.labels:
            known = dict(live.run.labels)
            found.bundle = effective(engine.bundle, live.run.labels)
            found.rule = found.bundle.alert(rule.id)
            watch = _Watch(found.bundle, found.rule)
        mine = [event for event in judged.events if event.id == rule.id]
        found.events += mine
        _revise(found.points, mine, live.run.step)
        if isinstance(record, wire.StepRecord) and judged.applied.outcome.changed:
            _drop(found.points, live)
            found.points += watch.points(live)
    return found if seen else None


def runs_in(rows: Iterable[RawRecord]) -> Iterator[str]:
    """The runs of a log, each once."""
    seen: set[str] = set()
    for raw in rows:
        try:
            run = wire.decode(raw.value, raw.content_type).record.run
        except wire.WireError:
            continue
        if run not in seen:
            seen.add(run)
            yield run


class Reads(NamedTuple):
    """What a rule reads."""

    series: tuple[str, ...]
    """Series keys or bare names, in order, each once; recorded names, then what they are computed from."""
    bare: tuple[str, ...]
    """Names of metrics without label, recorded names not among them."""
    records: tuple[RecordRule, ...]
    """Record rules behind it, each once."""


def reads(bundle: Bundle, rule: AlertRule) -> Reads:
    """What `expr` and `leave` read, and the record rules that they read."""
    compiler = Compiler(scope(bundle, rule))
    compiler.condition(rule.node)
    if rule.leave_node is not None:
        compiler.condition(rule.leave_node)
    by_name = {record.name: record for record in bundle.records}
    waiting = [*compiler.uses.inputs, *compiler.uses.mentions]
    series: dict[str, None] = {}
    records: dict[str, RecordRule] = {}
    while waiting:
        key = waiting.pop(0)
        name = key.partition("{")[0]
        series[key] = None
        if (record := by_name.get(name)) is not None and name not in records:
            records[name] = record
            behind = Compiler(Scope(bundle.group(record.group).values))
            behind.quantity(record.node)
            waiting += [*behind.uses.inputs, *behind.uses.mentions]
    bare = tuple(key for key in series if not key.endswith("}") and key not in records)
    return Reads(tuple(series), bare, tuple(records.values()))


def frame(live: Live, rule: AlertRule, read: Reads, labels: Labels) -> Frame:
    """The run as an expression of the rule sees it, for one set of own labels."""
    view = Frame(live.run, live.states)
    recorded = [record.name for record in read.records]
    for instance in instances(rule.id, read.bare, recorded, live.run.members)[0]:
        if instance.key.labels == labels:
            view.fan = instance.fan
    return view


class _Watch:
    """The condition of a rule, compiled for one run."""

    def __init__(self, bundle: Bundle, rule: AlertRule) -> None:
        self._rule = rule
        self._reads = reads(bundle, rule)
        compiled = Compiler(scope(bundle, rule)).condition(rule.node)
        assert compiled is not None, "the bundle was checked when it was loaded"
        self._condition = compiled

    def points(self, live: Live) -> list[Point]:
        """One point per instance at the record that was judged last."""
        keys = [key for key in live.states.states if key.rule_id == self._rule.id]
        return [self._point(live, key) for key in keys or [StateKey(self._rule.id)]]

    def _point(self, live: Live, key: StateKey) -> Point:
        run = live.run
        state = live.states.states.get(key) or RuleState()
        view = frame(live, self._rule, self._reads, key.labels)
        truth = self._condition(view)
        judged = state.evaluated == (run.attempt, run.step)
        value, limit, _ = view.decisive if view.decisive is not None else (None, None, "")
        forbidden = state.verdict in (Verdict.WARMUP, Verdict.ERROR) or state.reason.startswith("proxy: ")
        if forbidden and not judged:
            verdict, why = state.verdict, state.reason
        elif truth == UNKNOWN:
            verdict, why = Verdict.NO_DATA, view.why
        else:
            verdict, why = _VERDICTS[truth], _words(self._rule, view, truth)
            why = why if judged else f"{why}, not judged here: this record brings none of its inputs"
        return Point(
            labels=key.labels,
            attempt=run.attempt,
            step=run.step,
            record=run.record,
            event_time=run.event_time,
            judged=judged,
            verdict=verdict,
            reason=why,
            value=value,
            limit=limit,
            phase=state.phase,
            explained_by=state.explained_by,
        )


def scope(bundle: Bundle, rule: AlertRule) -> Scope:
    """What the names in the rule's expressions mean."""
    return Scope(bundle.group(rule.group).values, {each.name: each.id for each in bundle.alerts})


def _words(rule: AlertRule, view: Frame, truth: int) -> str:
    text = reason(view.decisive, rule.expr)
    return f"not {text}" if truth == FALSE else text


def _drop(points: list[Point], live: Live) -> None:
    """Points of this very step go: a later row of it says more."""
    here = (live.run.attempt, live.run.step)
    if points and (points[-1].attempt, points[-1].step) >= here:
        points[:] = [point for point in points if (point.attempt, point.step) != here]


def _revise(points: list[Point], events: Iterable[AlertEvent], step: int) -> None:
    """What began to fire after its record, when the silence behind it became a stall."""
    for event in events:
        if event.state is EventState.RESOLVED or event.step == step:
            continue
        labels = tuple(sorted(event.labels.items()))
        for place in range(len(points) - 1, -1, -1):
            if points[place].labels == labels and points[place].step == event.step:
                points[place] = points[place]._replace(
                    judged=True,
                    verdict=event.verdict,
                    reason=event.reason,
                    value=event.value,
                    limit=event.limit,
                    phase=Phase.FIRING,
                    explained_by=event.explained_by,
                )
                break

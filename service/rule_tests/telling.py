"""One test case, told: every step goes as a wire record through `service.judging.judge`, as it does live and in a replay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from collector.model import RawRecord
from collector.run_state import DEPTH
from collector.told_run import ToldRun
from rules.engine import Engine
from rules.model import AlertEvent, Phase, Verdict
from rules.rule_state import RuleState
from rules.run_states import RunStates, StateKey
from service.judging import Judged, judge, stall
from service.live import Live
from service.rule_tests.files import Case, Change
from tocsin import wire

RUN: Final = "test"
_LABELLED: Final = re.compile(r'(\w+)\{\w+="(.*)"\}')


class Happened(NamedTuple):
    """One change of an alert."""

    alert: str
    state: Change
    labels: Mapping[str, str]
    step: int
    record: int
    event: AlertEvent | None
    """None for the two phases that make no event."""


class Seen(NamedTuple):
    """A rule after one row: a line of the table that a failure shows."""

    row: int
    """From 0; the last one also for what comes after it."""
    step: int
    alert: str
    labels: Mapping[str, str]
    verdict: Verdict
    phase: Phase
    value: float | None
    limit: float | None


@dataclass(slots=True)
class Told:
    """What a case led to."""

    happened: list[Happened] = field(default_factory=list)
    judged_ok: set[str] = field(default_factory=set)
    """Alerts that were found OK at least once: their silence means something."""
    reasons: dict[str, str] = field(default_factory=dict)
    """By alert, why it was not judged, as of last."""
    seen: list[Seen] = field(default_factory=list)
    """Only where a trace was asked for."""


def tell(case: Case, engine: Engine, *, trace: frozenset[str] = frozenset()) -> Told:
    """Tell a case to the rules; `trace` names alerts whose states are noted after every step."""
    run = ToldRun(RUN, case.run.recorded, max(DEPTH, engine.depth))
    telling = _Telling(engine, Live(run, RunStates(), RUN), case.alerts, trace)
    telling.take(wire.RunRecord(run=RUN, time=0.0, labels=case.run.labels, config=case.run.config))
    attempt = 1
    for row, (step, time) in enumerate(zip(case.steps, case.times, strict=True)):
        telling.row = row
        for said in case.declared:
            if said.before == row + 1:
                attempt = said.attempt
                opens = wire.RunRecord(run=RUN, time=time, attempt=attempt, labels=dict(said.labels), config=dict(said.config))
                telling.take(opens)
        run.told = {key: value for key, value in _row(case.signals, row) if value is not None}
        record = wire.StepRecord(
            run=RUN,
            step=step,
            time=time,
            attempt=attempt,
            names=case.run.names,
            metrics=_metrics(_row(case.metrics, row)),
            groups=case.groups[row] if case.groups else None,
        )
        telling.take(record)
    run.told = {}
    last = case.times[-1]
    if case.silence is not None:
        telling.pass_time(last + case.silence)
    if case.end:
        telling.take(wire.EndRecord(run=RUN, time=last, attempt=attempt, step=case.steps[-1], status=case.end))
    return telling.told


class _Telling:
    """The run so far, and what has happened on it."""

    def __init__(self, engine: Engine, live: Live, about: frozenset[str], trace: frozenset[str]) -> None:
        self.told: Final = Told()
        self.row = 0
        self._engine: Final = engine
        self._live: Final = live
        self._about: Final = about | trace
        self._trace: Final = trace
        self._names: Final = {rule.id: rule.name for rule in engine.bundle.alerts}
        self._phases: Final[dict[StateKey, Phase]] = {}
        self._known = 0
        self._states: Sequence[tuple[StateKey, str]] = ()
        """The states of the alerts that the case is about; looked up anew when there are more states."""

    def take(self, record: wire.Record) -> None:
        """One record, judged as a replay does: the event time is the clock."""
        raw = RawRecord(b"", RUN, 0, 0, record.time)
        judged: Judged = judge(self._live, raw, record, self._engine, clock="event", now=record.time, silence=True)
        self._note(judged.events)

    def pass_time(self, now: float) -> None:
        """Nothing comes until `now`."""
        deadline = self._live.run.stall_at
        if deadline is not None and now > deadline:
            self._note(stall(self._live, self._engine, deadline).events)

    def _note(self, events: Sequence[AlertEvent]) -> None:
        run = self._live.run
        for event in events:
            self.told.happened.append(Happened(event.alert, event.state.value, event.labels, event.step, event.record, event))
        table = self._live.states.states
        if len(table) != self._known:
            self._known = len(table)
            named = ((key, self._names[key.rule_id]) for key in table)
            self._states = [(key, alert) for key, alert in named if alert in self._about]
        for key, alert in self._states:
            state = table[key]
            if state.verdict is Verdict.OK:
                self.told.judged_ok.add(alert)
            elif state.reason:
                self.told.reasons[alert] = state.reason
            before = self._phases.get(key, Phase.INACTIVE)
            if state.phase is not before:
                self._phases[key] = state.phase
                if state.phase in (Phase.PENDING, Phase.KEEPING):
                    change: Change = "pending" if state.phase is Phase.PENDING else "keeping"
                    self.told.happened.append(Happened(alert, change, dict(key.labels), run.step, run.record, None))
            if alert in self._trace:
                self.told.seen.append(_seen(self.row, key, alert, state, run.step))


def _seen(row: int, key: StateKey, alert: str, state: RuleState, step: int) -> Seen:
    return Seen(row, step, alert, dict(key.labels), state.verdict, state.phase, state.value, state.limit)


def _row(series: Mapping[str, Sequence[float | None]], index: int) -> Iterator[tuple[str, float | None]]:
    """The values of one row; a series that is over carries nothing any more."""
    return ((key, values[index] if index < len(values) else None) for key, values in series.items())


def _metrics(row: Iterator[tuple[str, float | None]]) -> dict[str, Any]:
    """As a trainer sends them: values of a labelled metric are an object."""
    metrics: dict[str, Any] = {}
    for key, value in row:
        if value is None:
            continue
        if match := _LABELLED.fullmatch(key):
            metrics.setdefault(match[1], {})[match[2]] = value
        else:
            metrics[key] = value
    return metrics

"""What a rule said at earlier records is what it said: against the events of recorded runs, and record by record."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from collector.run import Run
from rules.conditions import Condition
from rules.engine import Engine
from rules.loader import load_text
from rules.model import AlertEvent, EventState
from rules.run_states import RunStates
from service.evidence.history import read
from service.live import Live
from service.recordings import Recording
from service.replay import replay
from tests.collector.records import apply, row
from tests.kit import recorded
from tests.kit.pipelines import shipped

RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: High, id: high, expr: grad_norm > 10, for: 2 records, severity: page, summary: "x"}
  - {alert: Rising, id: rising, expr: "grad_norm > 2 * mean(grad_norm[3])", severity: page, summary: "x"}
"""


def played(*values: float) -> tuple[Run, Engine, RunStates, list[AlertEvent]]:
    engine, run, states = Engine(load_text(RULES)), Run("r"), RunStates()
    events: list[AlertEvent] = []
    for step, value in enumerate(values, start=1):
        apply(run, row(step, grad_norm=value))
        events += engine.evaluate(run, states, 0.0).events
    return run, engine, states, events


def said(rule: str, *values: float) -> list[tuple[int, str, float | None, float | None]]:
    run, engine, states, events = played(*values)
    program = engine.program(run.labels, rule)
    assert program is not None
    event = next(event for event in events if event.id == rule)
    return [(each.step, each.verdict, each.value, each.limit) for each in read(run, states, program, event).said]


def test_each_record_of_a_threshold() -> None:
    assert said("high", 1.0, 11.0, math.inf, 12.0, 13.0) == [
        (1, "ok", 1.0, 10.0),
        (2, "breach", 11.0, 10.0),
        (3, "non_finite", math.inf, 10.0),
    ]


def test_windows_end_at_their_record_and_short_ones_are_no_data() -> None:
    assert said("rising", 1.0, 1.0, 1.0, 1.0, 13.0) == [
        (1, "no_data", None, None),
        (2, "no_data", None, None),
        (3, "ok", 1.0, 2.0),
        (4, "ok", 1.0, 2.0),
        (5, "breach", 13.0, 10.0),
    ]


def test_it_reaches_no_further_than_it_is_asked_and_no_further_than_the_event() -> None:
    run, engine, states, events = played(*[1.0] * 50, 11.0, 11.0, 11.0)
    program = engine.program(run.labels, "high")
    assert program is not None
    event = next(event for event in events if event.id == "high")
    assert [each.step for each in read(run, states, program, event, records=3).said] == [50, 51, 52]


def test_a_rule_that_raises_says_so() -> None:
    run, engine, states, events = played(11.0, 11.0)
    program = engine.program(run.labels, "high")
    assert program is not None

    broken = replace(program, condition=Condition())  # the bare base class: it raises
    event = next(event for event in events if event.id == "high")
    assert [each.verdict for each in read(run, states, broken, event).said] == ["error", "error"]


@pytest.mark.parametrize(
    "name", ["tiny-lr_blowup-s1", "tiny-nan-s1", "tiny-verifier_zero-s1", "nips-rho100-s42-dip-recover-collapse"]
)
def test_on_recorded_runs_it_says_what_the_alert_said(name: str) -> None:
    recorded.need()
    label = next(label for label in recorded.labels() if label.run == name)
    engine, checked = shipped(), 0

    def see(live: Live, events: object) -> None:
        nonlocal checked
        assert isinstance(events, list | tuple)
        for event in events:
            program = engine.program(live.run.labels, event.id)
            # An end is told after the record at which it ended; silence is no condition of a record.
            if event.state is EventState.RESOLVED or program is None or program.clocked or event.step != live.run.step:
                continue
            found = read(live.run, live.states, program, event)
            last = found.said[-1]
            assert last.step == event.step
            if program.rule.hold.amount <= 1:  # else a verdict of before may be what it fires by
                assert last.verdict in ("breach", "non_finite"), event.alert
                assert (last.value, last.limit) == pytest.approx((event.value, event.limit), nan_ok=True)
                checked += 1
            assert all(key in live.run.series for key in found.metrics)

    replay(Recording(label.path, label.format, run=name), engine, see=see)
    assert checked > 0

"""The verdicts of the engine: numbers and reasons, missing and non-finite input, and which step a row judges."""

from __future__ import annotations

import math

import pytest

from collector.model import Baseline, Provenance
from rules.model import EventState, Verdict
from rules.run_states import RunStates, StateKey
from tests.kit.engines import NAN, engine, rule, run_of
from tests.kit.view import FakeRun, drive, judge, timeline


@pytest.mark.parametrize(
    ("severity", "override", "fires"),
    [
        ("info", "", False),
        ("warning", "", False),
        ("page", "", True),
        ("stop", "", True),
        ("warning", "breach", True),
        ("page", "hold", False),
    ],
)
@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize(
    "expr", ["x > 10", "x < -10", "x == 3", "x != 3", "10 < x", "not x < 10", "mean(x[1]) > 10", "x > 5 and x > 3"]
)
def test_nan_never_slips_through(severity: str, override: str, fires: bool, value: float, expr: str) -> None:
    fields = {"severity": severity} | ({"on_non_finite": override} if override else {})
    states = RunStates()
    events = drive(engine(rule("A", expr, **fields)), FakeRun(), [{"x": value}], states)
    assert bool(events) is fires
    state = states.get(StateKey("a"))
    assert state.verdict is Verdict.NON_FINITE
    assert "not finite" in state.reason
    if fires:
        assert events[0].verdict is Verdict.NON_FINITE


def test_a_non_finite_value_that_is_held_changes_nothing() -> None:
    assert run_of("x > 1", [{"x": 2.0}, {"x": NAN}, {"x": 2.0}], for_="2 records") == [(3, "A", "firing")]


def test_no_data_holds_the_state_and_says_why() -> None:
    states, run = RunStates(), FakeRun()
    assert timeline(
        drive(engine(rule("A", "x > 1 and y > 1")), run, [{"x": 2.0, "y": 2.0}, {"x": 2.0}, {"x": 0.0, "y": 0.0}], states)
    ) == [
        (1, "A", "firing"),
        (3, "A", "resolved"),
    ]
    drive(engine(rule("A", "mean(x[5]) > 1")), FakeRun(), [{"x": 1.0}], states := RunStates())
    assert states.get(StateKey("a")).verdict is Verdict.NO_DATA
    assert states.get(StateKey("a")).reason == "x has 1 of 5 records"


def test_degenerate_is_no_data() -> None:
    states = RunStates()
    drive(engine(rule("A", "x / y > 1", severity="page")), FakeRun(), [{"x": 1.0, "y": 0.0}], states)
    state = states.get(StateKey("a"))
    assert state.verdict is Verdict.NO_DATA
    assert state.reason == "degenerate: x / y divides by zero"


def test_warm_up() -> None:
    rows: list[dict[str, float] | None] = [{"x": 2.0}] * 4
    assert run_of("x > 1", rows, warmup="2 records") == [(3, "A", "firing")]


def test_only_exact_input_where_it_is_required() -> None:
    run, states = FakeRun(), RunStates()
    run.provenances["x"] = Provenance.PROXY
    subject = engine(rule("A", "x > 1", requires_exact="[x]", severity="stop"))
    assert not drive(subject, run, [{"x": 2.0}], states)
    assert states.get(StateKey("a")).reason.startswith("proxy: x")
    run.fakes["x"].provenance = Provenance.CONVERT
    assert drive(subject, run, [{"x": 2.0}], states, first_step=2)


def test_a_rule_that_fails_is_a_verdict_and_stops_nobody() -> None:
    class Broken(FakeRun):
        @property
        def baselines(self) -> dict[str, Baseline]:
            raise RuntimeError("no baselines today")

        @baselines.setter
        def baselines(self, value: dict[str, Baseline]) -> None: ...

    run, states = Broken(), RunStates()
    subject = engine(rule("A", "x > baseline(x)"), rule("B", "x > 1"))
    run.row(1, x=2.0)
    found = judge(subject, run, states)
    assert timeline(found.events) == [(1, "B", "firing")]
    assert [(health.alert, health.verdict, health.reason) for health in found.health] == [
        ("A", Verdict.ERROR, "RuntimeError: no baselines today")
    ]
    run.row(2, x=2.0)
    assert not judge(subject, run, states).health  # said once


@pytest.mark.parametrize(
    ("expr", "value", "limit", "reason"),
    [
        ("x > 3", 5.0, 3.0, "5 > 3"),
        ("3 < x", 5.0, 3.0, "5 > 3"),
        ("x > y", 5.0, 2.0, "5 > 2"),
        ("x > max($two, 3 * recorded(x))", 5.0, 4.5, "5 > 4.5"),
        ("x > 4 and y > 1", 5.0, 4.0, "5 > 4"),
        ("x > 9 or y > 1", 2.0, 1.0, "2 > 1"),
        ("config(group_size) > 1 and y > 1", 2.0, 1.0, "2 > 1"),
        ('label(algorithm) == "grpo" and y > 1', 2.0, 1.0, "2 > 1"),
        ("y > 1 and not (x < 4)", 2.0, 1.0, "2 > 1"),
        ("not absent(x[1 steps])", None, None, "not absent(x[1 steps])"),
    ],
)
def test_the_decisive_comparison(expr: str, value: float | None, limit: float | None, reason: str) -> None:
    run = FakeRun(labels={"algorithm": "grpo"}, config={"group_size": 8})
    run.recorded["x"] = 1.5
    (event,) = drive(engine(rule("A", expr.replace("'", '"'))), run, [{"x": 5.0, "y": 2.0}])
    assert (event.value, event.limit, event.reason) == (value, limit, reason)


def test_the_message_is_rendered_and_never_stops_an_alert() -> None:
    subject = engine(rule("A", "x > 1").replace("'A'", "'{{ value | sig(2) }} over {{ limit }} on {{ run }}'"))
    (event,) = drive(subject, FakeRun("r1"), [{"x": 5.123}])
    assert event.summary == "5.1 over 1.0 on r1"
    faulty = engine(rule("A", "x > 1").replace("'A'", "'{% if config.zero == 0 %}{{ 1 / 0 }}{% endif %}x'"))
    run = FakeRun(config={"zero": 0})
    (event,) = drive(faulty, run, [{"x": 5.0}])
    assert event.state is EventState.FIRING
    assert "5 > 1" in event.summary
    assert "its message failed" in event.summary


def test_a_step_is_judged_when_the_row_comes_that_completes_it() -> None:
    subject, run, states = engine(rule("A", "x > 1 and y > 1", for_="2 records")), FakeRun(), RunStates()
    for step in (1, 2):
        run.row(step, x=2.0)
        assert not judge(subject, run, states).events
        run.row(step, y=2.0)
        found = judge(subject, run, states)
        assert bool(found.events) is (step == 2)
        run.row(step, x=2.0, y=2.0)  # a duplicate
        assert not judge(subject, run, states).events
    assert states.get(StateKey("a")).breaches == 2


def test_a_definite_result_is_final_for_its_step() -> None:
    subject, run, states = engine(rule("A", "x > 1 or y > 1")), FakeRun(), RunStates()
    run.row(1, x=2.0)
    assert judge(subject, run, states).events
    run.row(1, y=0.0)
    assert not judge(subject, run, states).events
    run.row(2, x=0.0, y=0.0)
    assert judge(subject, run, states).events


def test_metrics_of_another_cadence_do_not_touch_a_hold() -> None:
    rows: list[dict[str, float] | None] = [{"x": 2.0}, {"y": 0.0}, {"y": 0.0}, {"x": 2.0}, {"y": 0.0}, {"x": 2.0}]
    assert run_of("x > 1", rows, for_="3 records") == [(6, "A", "firing")]


def test_gaps_reset_or_count_on_request() -> None:
    rows: list[dict[str, float] | None] = [{"x": 2.0}, {"y": 0.0}, {"x": 2.0}, {"x": 2.0}, {"x": 2.0}]
    assert run_of("x > 1", rows, for_="3 records") == [(4, "A", "firing")]
    assert run_of("x > 1", rows, for_="3 records", on_gap="reset") == [(5, "A", "firing")]
    assert run_of("x > 1", rows, for_="3 records", on_gap="count") == [(3, "A", "firing")]
    assert run_of("x > 1", [{"x": 2.0}, {"y": 0.0}, {"y": 0.0}, {"y": 0.0}], for_="3 records", on_gap="count") == [
        (4, "A", "firing")
    ]


def test_a_late_row_fires_what_needs_no_hold_and_ends_nothing() -> None:
    subject = engine(rule("Now", "x > 1"), rule("Hold", "x > 1", for_="2 records"))
    run, states = FakeRun(), RunStates()
    drive(subject, run, [{"x": 2.0}, {"x": 2.0}, {"y": 0.0}, {"x": 2.0}], states)
    run.row(3, x=0.0)
    assert not judge(subject, run, states).events  # an OK from the past resolves nothing
    run.row(5, x=0.0)
    assert timeline(judge(subject, run, states).events) == [(5, "Now", "resolved"), (5, "Hold", "resolved")]
    run.row(7, x=0.0)
    judge(subject, run, states)
    run.row(6, x=9.0)
    assert timeline(judge(subject, run, states).events) == [(6, "Now", "firing")]
    run.row(8, x=0.0)
    assert timeline(judge(subject, run, states).events) == [(8, "Now", "resolved")]


def test_a_resume_keeps_what_fires_and_judges_the_steps_again() -> None:
    subject, run, states = engine(rule("A", "x > 1")), FakeRun(), RunStates()
    drive(subject, run, [{"x": 2.0}] * 10, states)
    run.cut(4)
    assert not drive(subject, run, [{"x": 2.0}], states, first_step=4)
    assert states.fires("a")
    assert timeline(drive(subject, run, [{"x": 0.0}], states, first_step=5)) == [(5, "A", "resolved")]
    run.cut(3)
    run.attempt -= 1  # the same attempt, a drop larger than the reorder window
    assert timeline(drive(subject, run, [{"x": 2.0}], states, first_step=3)) == [(3, "A", "firing")]


def test_records_keep_a_state_clean_while_nothing_happens() -> None:
    subject, run, states = engine(rule("A", "x > 1"), rule("B", "x > 1 and y > 1")), FakeRun(), RunStates()
    drive(subject, run, [{"x": 0.0, "y": 0.0}] * 5, states)
    assert not states.dirty
    drive(subject, run, [{"x": 2.0, "y": 0.0}], states, first_step=6)
    assert states.dirty == {StateKey("a")}
    states.dirty.clear()
    drive(subject, run, [{"x": 2.0, "y": 0.0}] * 3, states, first_step=7)
    assert not states.dirty  # firing on is no change

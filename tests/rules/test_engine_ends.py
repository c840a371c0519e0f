"""What ends without a breach ending: silence, the end of a run, a rule that is gone; and a restart at any row."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rules.judging import STALE_AFTER
from rules.model import EventState, Phase, Verdict
from rules.run_states import RunStates, StateKey
from tests.kit.engines import NAN, engine, rule
from tests.kit.view import FakeRun, drive, judge, timeline


def test_silence_is_judged_by_the_tick_and_ended_by_a_record() -> None:
    subject, run, states = engine(rule("Stalled", "silence >= stall_after", severity="page"), layer=0), FakeRun(), RunStates()
    run.row(1, {"stall_after": 300.0}, time=1000.0)
    assert not judge(subject, run, states).events
    assert not subject.tick(run, states, 1299.0).events
    (event,) = subject.tick(run, states, 1300.0).events
    assert (event.event_time, event.value, event.limit, event.record) == (1300.0, 300.0, 300.0, 1)
    assert not subject.tick(run, states, 1400.0).events
    run.row(1, {"late_metric": 1.0}, time=1500.0)  # even one more row of the same step
    assert timeline(judge(subject, run, states).events) == [(1, "Stalled", "resolved")]


def test_rules_without_silence_do_not_tick() -> None:
    subject, run, states = engine(rule("A", "x > 1")), FakeRun(), RunStates()
    run.row(1, x=2.0)
    assert not subject.tick(run, states, 1e9).events


def test_the_end_of_a_run_drops_holds_and_resolves_what_fires() -> None:
    subject, run, states = engine(rule("A", "x > 1"), rule("B", "x > 1", for_="9 records")), FakeRun(), RunStates()
    drive(subject, run, [{"x": 2.0}], states)
    states.dirty.clear()
    (event,) = subject.finish(run, states, 5.0, "run_failed").events
    assert (event.alert, event.state, event.reason, event.evaluated_at) == ("A", EventState.RESOLVED, "run_failed", 5.0)
    assert states.dirty == {StateKey("a"), StateKey("b")}
    assert {state.phase for state in states.states.values()} == {Phase.INACTIVE}
    assert not subject.finish(run, states, 6.0, "run_failed").events


def test_what_the_end_closed_stays_closed_and_what_it_brings_is_judged() -> None:
    """The end's own row is judged after it: a rule on its signal stands, one that needs no metric does not come back."""
    subject = engine(rule("Lost", "absent(x[1])"), rule("Failed", "run_failed > 0", severity="page"), layer=0)
    run, states = FakeRun(), RunStates()
    run.row(1, y=1.0)
    assert timeline(judge(subject, run, states).events) == [(1, "Lost", "firing")]
    run.arrived = []
    run.add({"run_failed": 1.0})
    assert timeline(subject.finish(run, states, 5.0, "run_failed").events) == [(1, "Lost", "resolved")]
    assert timeline(subject.evaluate(run, states, 5.0).events) == [(1, "Failed", "firing")]
    run.row(2, y=1.0)  # it goes on after all
    assert timeline(judge(subject, run, states).events) == [(2, "Lost", "firing")]


def test_a_leave_that_fails_is_a_verdict_too() -> None:
    class Broken(FakeRun):
        fails = False

        @property
        def recorded(self) -> dict[str, float]:
            if self.fails:
                raise RuntimeError("no file")
            return {}

        @recorded.setter
        def recorded(self, value: dict[str, float]) -> None: ...

    run, states = Broken(), RunStates()
    subject = engine(rule("A", "x > 1", leave="x < recorded(x)"), "  - {record: r, expr: x + recorded(x)}\n")
    run.row(1, x=2.0)
    assert subject.record(run) == [("r", 2.0)]
    judge(subject, run, states)
    run.fails = True
    run.row(2, x=0.0)
    assert subject.record(run) == []
    found = judge(subject, run, states)
    assert [health.verdict for health in found.health] == [Verdict.ERROR]
    assert states.fires("a")


def test_a_rule_that_is_removed_while_it_fires_is_resolved() -> None:
    before, after = engine(rule("A", "x > 1"), rule("B", "x > 1")), engine(rule("B", "x > 1"))
    run, states = FakeRun(), RunStates()
    drive(before, run, [{"x": 2.0}], states)
    (event,) = after.retire(run, states, 9.0).events
    assert (event.id, event.state, event.reason) == ("a", EventState.RESOLVED, "rule_removed")
    assert states.fires("b")
    assert not drive(after, run, [{"x": 2.0}], states, first_step=2)


def test_another_engine_takes_the_states_over() -> None:
    """Rules have other numbers in another bundle, or in the variant of a bundle for other runs; states go by id."""
    first, second = (
        engine(rule("A", "x > 1"), rule("B", "x > 9")),
        engine(rule("B", "x > 1"), rule("C", "x > 9"), rule("A", "x > 3")),
    )
    run, states = FakeRun(), RunStates()
    drive(first, run, [{"x": 2.0}], states)
    assert timeline(drive(second, run, [{"x": 2.0}], states, first_step=2)) == [(2, "B", "firing"), (2, "A", "resolved")]


def test_a_firing_alert_that_nobody_judges_any_more_is_reported_once() -> None:
    subject, run, states = engine(rule("A", "x > 1")), FakeRun(), RunStates()
    run.row(1, x=2.0)
    judge(subject, run, states)
    reports = []
    for step in range(2, STALE_AFTER + 10):
        run.row(step, y=0.0)
        reports += [(step, health.verdict) for health in judge(subject, run, states).health]
    assert reports == [(STALE_AFTER + 1, Verdict.NO_DATA)]
    assert states.fires("a")


RESTART = engine(
    rule("A", "x > 1", for_="2 records", keep="2 records", severity="page"),
    rule("B", "x > 1 and y > 1", for_="2 of 3 records"),
    rule("C", "firing(A) and fired_within(B, 3)", severity="page"),
    rule("D", "mean(x[3]) > 1", leave="x < 0.5", on_gap="reset"),
    rule("E", "y > 1", for_="2m", severity="stop"),
    rule("F", "x > 1 or y > 1", for_="3 records"),
)


row = st.fixed_dictionaries({}, optional={"x": st.sampled_from([0.0, 1.0, 2.0, NAN]), "y": st.sampled_from([0.0, 2.0, 5.0])})


@given(st.lists(st.tuples(st.sampled_from([0, 1, 1, 2]), row), min_size=1, max_size=25), st.integers(0, 25))
@settings(max_examples=150)
def test_a_restart_at_any_row_changes_nothing(rows: list[tuple[int, dict[str, float]]], stop: int) -> None:
    """Only the states in `dirty` are kept, as the store does; rows may belong to one step (a move of 0)."""

    def play(stop_at: int | None) -> tuple[list[Any], dict[StateKey, Any]]:
        run, states, kept, step = FakeRun(), RunStates(), dict[StateKey, bytes](), 1
        events: list[Any] = []
        run.row(0, {"x": 0.0, "y": 0.0, "tick": 0.0})  # a metric of which a run has never heard may come as a surprise
        judge(RESTART, run, states)
        for index, (move, values) in enumerate(rows):
            if index == stop_at:
                states = RunStates()
                states.load(kept.items())
            step += move
            run.row(step, {**values, "tick": 0.0})
            events += judge(RESTART, run, states).events
            kept.update({key: states.dump(key) for key in states.dirty})
            states.dirty.clear()
        machine = {
            key: (state.phase, state.breaches, state.history, state.cleared, state.fired_record, state.episodes)
            for key, state in states.states.items()
            if state.phase is not Phase.INACTIVE or state.episodes
        }
        return [(*entry, event.episode, event.reason) for entry, event in zip(timeline(events), events, strict=True)], machine

    assert play(stop) == play(None)


@given(st.lists(st.tuples(st.sampled_from([-2, -1, 0, 0, 1, 1, 2, "resume"]), row), min_size=1, max_size=25))
@settings(max_examples=150)
def test_what_the_engine_remembers_between_rows_decides_nothing(rows: list[tuple[int | str, dict[str, float]]]) -> None:
    """Plans, the states they hold and the step that was judged last are caches: without them, after late rows, second rows of
    a step and resumes, everything is as with them."""
    run, kept = FakeRun(), RunStates()
    step = newest = 3
    for move, values in [(0, {"x": 0.0, "y": 0.0, "tick": 0.0}), *rows]:
        if isinstance(move, str):
            step = max(1, newest - 2)
            run.cut(step)
            newest = step
        else:
            step = max(1, newest + move)
            newest = max(newest, step)
        run.row(step, {**values, "tick": 0.0})
        run.add(RESTART.record(run))
        fresh = RunStates()
        fresh.load([(key, kept.dump(key)) for key in kept.states])
        expected, found = RESTART.evaluate(run, fresh, 0.0), RESTART.evaluate(run, kept, 0.0)
        assert repr(found.events) == repr(expected.events)
        assert found.breaching == expected.breaching
        assert {key: kept.dump(key) for key in kept.states} == {key: fresh.dump(key) for key in fresh.states}

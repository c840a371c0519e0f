"""The engine on small runs: verdicts, candidates, fan-out, layers, rows of one step, late rows, restarts, silence, the end."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Baseline, Provenance
from rules.engine import Engine
from rules.judging import STALE_AFTER
from rules.loader import load_text
from rules.model import EventState, Phase, Verdict
from rules.run_states import RunStates, StateKey
from tests.kit.view import FakeRun, drive, judge, timeline

NAN = math.nan


def rule(name: str, expr: str, **fields: Any) -> str:
    """One alert in flow style; a field named for_ is `for`."""
    given = {"severity": "warning", "summary": f"'{name}'"} | {key.rstrip("_"): text for key, text in fields.items()}
    return (
        f"  - {{alert: {name}, id: {name.lower()}, expr: '{expr}', " + ", ".join(f"{k}: {v}" for k, v in given.items()) + "}\n"
    )


def engine(*rules: str, layer: int = 1, more: str = "") -> Engine:
    text = f"group: g\nlayer: {layer}\nquestion: q\nvars:\n  two: {{value: 2, unit: nats, doc: d}}\nrules:\n" + "".join(rules)
    return Engine(load_text(text + more))


def layered(*groups: tuple[int, str], tmp: Any) -> Engine:
    """A bundle of one file per (layer, rules)."""
    from rules.loader import load_bundle

    for index, (layer, rules) in enumerate(groups):
        head = f"group: g{index}\nlayer: {layer}\nquestion: q\nrules:\n"
        (tmp / f"{index}.yaml").write_text(head + rules, encoding="utf-8")
    return Engine(load_bundle([tmp]))


def run_of(expr: str, rows: list[dict[str, float] | None], **fields: Any) -> list[tuple[int, str, str]]:
    return timeline(drive(engine(rule("A", expr, **fields)), FakeRun(), rows))


# ---- verdicts -----------------------------------------------------------------------------------------------------------


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


# ---- value, limit, reason -----------------------------------------------------------------------------------------------


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


# ---- candidates and steps -----------------------------------------------------------------------------------------------


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


# ---- composition, fan-out, record rules ---------------------------------------------------------------------------------


def test_confirmation_is_composition() -> None:
    subject = engine(
        rule("Confirmed", "firing(Early) and fired_within(Spike, 3)", severity="page"),
        rule("Early", "ess < 0.5"),
        rule("Spike", "grad > 10", severity="info"),
    )
    spike_alone = [{"ess": 1.0, "grad": 20.0}, {"ess": 1.0, "grad": 1.0}]
    assert "Confirmed" not in {alert for _, alert, _ in timeline(drive(subject, FakeRun(), spike_alone))}
    both = [{"ess": 0.4, "grad": 20.0}, {"ess": 0.4, "grad": 1.0}, *[{"ess": 0.4, "grad": 1.0}] * 4]
    events = timeline(drive(subject, FakeRun(), both))
    # In the same record, although the rule stands before those it asks about; three records after the spike it is over.
    assert [event for event in events if event[1] == "Confirmed"] == [(1, "Confirmed", "firing"), (4, "Confirmed", "resolved")]


def test_a_labelled_metric_makes_one_alert_per_label_value() -> None:
    subject = engine(rule("A", "part > 1").replace("'A'", "'{{ labels.component }}'"))
    run, states = FakeRun(), RunStates()
    run.row(1, {'part{component="a"}': 2.0, 'part{component="b \\"q\\""}': 0.0})
    (event,) = judge(subject, run, states).events
    assert event.labels == {"component": "a"}
    assert event.summary == "a"
    run.row(2, {'part{component="a"}': 2.0, 'part{component="b \\"q\\""}': 3.0, 'part{component="new"}': 3.0})
    assert [event.labels["component"] for event in judge(subject, run, states).events] == ['b "q"', "new"]
    assert len(states.firing) == 3
    assert [(sample.alert, sample.state) for sample in subject.samples(states)] == [("A", "firing")]
    key = StateKey("a", (("component", 'b "q"'),))
    assert key in states.states
    assert StateKey.from_text("a", key.labels_text) == key


def test_labelled_metrics_are_joined_on_their_label() -> None:
    subject, run, states = engine(rule("A", 'up > 1 and down{component="x"} < 1 and level < 5')), FakeRun(), RunStates()
    keys = {'up{component="x"}': 2.0, 'up{component="y"}': 2.0, 'level{component="x"}': 1.0, 'level{component="y"}': 9.0}
    run.row(1, {**keys, 'down{component="x"}': 0.0})
    assert [event.labels for event in judge(subject, run, states).events] == [{"component": "x"}]


def test_metrics_with_different_labels_in_one_rule_are_reported() -> None:
    subject, run, states = engine(rule("A", "up > 1 and size > 1")), FakeRun(), RunStates()
    run.row(1, {'up{component="x"}': 2.0, 'size{domain="math"}': 2.0})
    found = judge(subject, run, states)
    assert not found.events
    assert [health.verdict for health in found.health] == [Verdict.ERROR]


def test_record_rules_read_each_other_in_the_same_record() -> None:
    subject = engine(
        rule("A", "smooth > 2"),
        "  - {record: smooth, expr: 'mean(twice[2])'}\n  - {record: twice, expr: 2 * x}\n",
    )
    run, states = FakeRun(), RunStates()
    run.row(1, x=1.0)
    assert subject.record(run) == [("twice", 2.0)]
    run.add(subject.record(run))
    run.row(2, x=2.0)
    assert subject.record(run) == [("twice", 4.0), ("smooth", 3.0)]
    found = judge(subject, run, states)
    assert timeline(found.events) == [(2, "A", "firing")]
    assert found.breaching == {"x"}  # what is behind the recorded names
    assert subject.record(run) == []  # once per step


def test_record_rules_over_a_labelled_metric_give_a_labelled_series() -> None:
    subject = engine(rule("A", "smooth > 2"), "  - {record: smooth, expr: 'mean(part[1])'}\n")
    run, states = FakeRun(), RunStates()
    run.row(1, {'part{component="a"}': 3.0, 'part{component="b"}': 1.0})
    assert subject.record(run) == [('smooth{component="a"}', 3.0), ('smooth{component="b"}', 1.0)]
    assert [event.labels for event in judge(subject, run, states).events] == [{"component": "a"}]


def test_a_recorded_name_has_the_labels_of_its_metric_also_where_the_run_does_not_list_it() -> None:
    """The members of a run are those of its metrics; a chain of record rules hands their labels on."""
    chain = "  - {record: smooth, expr: 'mean(part[1])'}\n  - {record: twice, expr: 2 * smooth}\n"
    subject, run, states = engine(rule("A", "twice > 4"), chain), FakeRun(), RunStates()
    run.row(1, {'part{component="a"}': 3.0, 'part{component="b"}': 1.0})
    run.add(subject.record(run))
    run.members = {"part": run.members["part"]}
    assert run.fakes['twice{component="b"}'].values[-1] == 2.0
    found = subject.evaluate(run, states, 0.0)
    assert [event.labels for event in found.events] == [{"component": "a"}]
    assert found.breaching == {'part{component="a"}'}


def test_raw_keys() -> None:
    assert run_of("`timing_s/gen` > 1", [{"timing_s/gen": 2.0}]) == [(1, "A", "firing")]


def test_breaching_series_are_named_for_the_baseline() -> None:
    subject, run, states = engine(rule("A", "part > 1 and y > 1")), FakeRun(), RunStates()
    run.row(1, {'part{component="a"}': 2.0, "y": 2.0})
    assert judge(subject, run, states).breaching == {'part{component="a"}', "y"}


# ---- layers -------------------------------------------------------------------------------------------------------------


def test_an_earlier_layer_explains_until_it_clears(tmp_path: Any) -> None:
    subject = layered(
        (5, rule("Reward", "reward < 1", severity="page") + rule("Broken", "bad > 0", severity="page", independent="true")),
        (1, rule("Gap", "gap > 1", severity="stop")),
        (0, rule("Stalled", "stall > 0", severity="page")),
        tmp=tmp_path,
    )
    rows: list[dict[str, float] | None] = [
        {"gap": 0.0, "reward": 0.0, "bad": 0.0, "stall": 1.0},  # layer 0 explains nothing
        {"gap": 2.0, "reward": 0.0, "bad": 1.0, "stall": 1.0},  # Gap takes Reward, not Broken and not Stalled
        {"gap": 0.0, "reward": 0.0, "bad": 1.0, "stall": 0.0},  # Reward is told again
        {"gap": 2.0, "reward": 2.0, "bad": 1.0, "stall": 0.0},  # Reward ends as Gap comes
        {"gap": 2.0, "reward": 0.0, "bad": 0.0, "stall": 0.0},  # a new one is explained at once
        {"gap": 2.0, "reward": 2.0, "bad": 0.0, "stall": 0.0},  # and ends without having been sent
    ]
    states = RunStates()
    events = drive(subject, FakeRun(), rows, states)
    assert [(*entry, event.explained_by) for entry, event in zip(timeline(events), events, strict=True)] == [
        (1, "Stalled", "firing", ""),
        (1, "Reward", "firing", ""),
        (2, "Gap", "firing", ""),
        (2, "Reward", "explained", "Gap"),
        (2, "Broken", "firing", ""),
        (3, "Reward", "firing", ""),
        (3, "Gap", "resolved", ""),
        (3, "Stalled", "resolved", ""),
        (4, "Gap", "firing", ""),
        (4, "Reward", "resolved", ""),
        (5, "Reward", "explained", "Gap"),
        (5, "Broken", "resolved", ""),
        (6, "Reward", "resolved", "Gap"),
    ]
    assert [event.episode for event in events if event.alert == "Reward"] == [1, 1, 1, 1, 2, 2]


def test_the_exporter_sees_the_state_of_every_rule(tmp_path: Any) -> None:
    subject = layered(
        (1, rule("Gap", "gap > 1", severity="page") + rule("Slow", "gap > 1", for_="5 records")),
        (5, rule("Reward", "reward < 1") + rule("Fine", "reward > 9") + rule("Unseen", "other > 1")),
        tmp=tmp_path,
    )
    states = RunStates()
    drive(subject, FakeRun(), [{"gap": 2.0, "reward": 0.0}], states)
    assert {sample.alert: (sample.state, sample.value, sample.limit) for sample in subject.samples(states)} == {
        "Gap": ("firing", 2.0, 1.0),
        "Slow": ("pending", 2.0, 1.0),
        "Reward": ("explained", 0.0, 1.0),
        "Fine": ("inactive", 0.0, 9.0),
    }


# ---- clocks and ends ----------------------------------------------------------------------------------------------------


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


# ---- restarts -----------------------------------------------------------------------------------------------------------

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

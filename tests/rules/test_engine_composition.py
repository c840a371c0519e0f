"""Rules that stand on other rules: confirmation, labels, record rules, layers, and the state of each for the exporter."""

from __future__ import annotations

from typing import Any

import pytest

from collector.model import Baseline
from rules.model import Verdict
from rules.run_states import RunStates, StateKey
from tests.kit.engines import engine, layered, rule, run_of
from tests.kit.view import FakeRun, drive, judge, timeline


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
    shown = subject.exposed(states)
    assert [alert.name for alert in shown.alerts] == ["A"] and shown.states == ["firing"]
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


def test_a_record_rule_that_fails_stops_nobody_and_is_logged_once_per_run(caplog: pytest.LogCaptureFixture) -> None:
    """It may fail at each of thousands of records a second."""

    class Broken(FakeRun):
        @property
        def baselines(self) -> dict[str, Baseline]:
            raise RuntimeError("no baselines today")

        @baselines.setter
        def baselines(self, value: dict[str, Baseline]) -> None: ...

    subject = engine(rule("A", "x > 1"), "  - {record: ratio, expr: 'x / baseline(x)'}\n  - {record: twice, expr: 2 * x}\n")
    runs = [Broken(), Broken()]
    runs[1].run = "another"
    for step in (1, 2, 3):
        for run in runs:
            run.row(step, x=1.0)
            assert subject.record(run) == [("twice", 2.0)]
    logged = [record.getMessage().partition(";")[0] for record in caplog.records]
    assert logged == [f"record rule ratio failed on run {run.run}" for run in runs]
    assert "no baselines today" in caplog.text


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
    shown = subject.exposed(states)
    found = zip(shown.alerts, shown.states, shown.values, shown.limits, strict=True)
    assert {alert.name: tuple(rest) for alert, *rest in found} == {
        "Gap": ("firing", 2.0, 1.0),
        "Slow": ("pending", 2.0, 1.0),
        "Reward": ("explained", 0.0, 1.0),
        "Fine": ("inactive", 0.0, 9.0),
    }

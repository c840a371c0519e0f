"""From raw records to the committed transaction: what is in it, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event as sqlalchemy_event

from collector import health
from collector.exporter import Exporter
from collector.model import Batch, RawRecord, RunStatus, SourceFault
from rules.model import EventState
from service.own_alerts import QUIET_SECONDS
from service.store.model import Advance, Commit, PositionLost, StateRow
from tests.kit.pipelines import RULES, Bench, a_record_raises, begin, end, engine, step, steps, told


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.shut()


def test_a_record_goes_all_the_way(bench: Bench) -> None:
    bench.push(begin("r", team="a"), *steps("r", [1.0] * 5 + [20.0] * 3))
    assert told(bench.read()) == [("r", "High", "firing", 7)]
    assert bench.store.position("memory/0") == 9
    (row,) = bench.store.runs()
    assert (row.run, row.status, row.step, row.record, row.sequence) == ("r", RunStatus.RUNNING, 8, 8, 9)
    assert row.labels == {"team": "a"}
    (fired,) = bench.store.firing()
    assert (fired.run_labels, fired.links) == ({"team": "a"}, {"board": "x"})
    (waiting,) = bench.store.deliveries.due("console", 1e9, 10)
    assert (waiting.incident, waiting.event.summary) == ("r#1", "Gradient norm 20")
    assert [incident.id for incident in bench.store.open_incidents()] == ["r#1"]
    assert bench.health.values(health.RECORDS)[("step",)] == 8


def test_the_end_of_a_run_ends_its_alerts(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 3 + [20.0] * 2), end("r", 5))
    assert told(bench.read()) == [("r", "High", "firing", 5), ("r", "High", "resolved", 5)]
    assert bench.store.firing() == []
    (row,) = bench.store.runs()
    assert row.status is RunStatus.FINISHED
    restored = bench.store.restore("r")
    assert restored is not None and restored.records == [], "an ended run is saved"


def test_what_is_no_record_is_a_dead_letter_and_stops_nothing(bench: Bench) -> None:
    bench.push(b"garbage", step(number=1, grad_norm=1.0), b'{"v":9}', step(number=2, grad_norm=1.0))
    bench.log.damage("checksum", value=b"??")
    bench.push(step(number=3, grad_norm=1.0))
    bench.read()
    assert [(letter.offset, letter.reason) for letter in bench.letters.letters] == [
        (4, "unreadable"),
        (0, "not_json"),
        (2, "unknown_version"),
    ]
    assert bench.store.runs()[0].step == 3
    assert bench.store.position("memory/0") == 6
    assert bench.health.values(health.REJECTED) == {("unreadable",): 1, ("not_json",): 1, ("unknown_version",): 1}


def test_too_many_rejected_values_raise_an_alert_that_ends(bench: Bench) -> None:
    bench.push(*[step(number=number, grad_norm=1.0) for number in range(1, 20)], b"bad")
    assert told(bench.read()) == [], "5 % is not more than 5 %"
    bench.push(b"bad")
    (fired,) = bench.read()
    assert (fired.id, fired.run, fired.state) == ("tocsin-rejected-records", "tocsin", EventState.FIRING)
    assert [row.event.id for row in bench.store.deliveries.due("console", 1e9, 10)] == ["tocsin-rejected-records"]
    bench.now += 61.0
    (ended,) = bench.tick()
    assert ended.state is EventState.RESOLVED
    assert bench.store.firing() == []
    assert (ended.value, ended.reason) == (None, "nothing came in during the last minute (limit 5.0%)")


def test_own_alerts_go_on_after_a_restart(bench: Bench) -> None:
    bench.push(b"bad")
    assert len(bench.read()) == 1
    after = bench.restart()
    after.push(b"bad")
    assert after.read() == []
    after.now += 100.0
    assert [found.state for found in after.tick()] == [EventState.RESOLVED]


def test_a_run_with_the_name_of_the_collector_stops_nothing_and_is_told(bench: Bench) -> None:
    bench.push(b"bad")
    bench.read()
    after = bench.restart()
    after.push(*steps("tocsin", [1.0] * 3 + [20.0] * 3), *steps("other", [1.0]))
    assert [(found.id, found.run) for found in after.read()] == [("tocsin-limits-reached", "tocsin")]
    assert [row.run for row in after.store.runs()] == ["other"]
    assert {(letter.reason, "rename the run" in letter.detail) for letter in after.letters.letters} == {("reserved_run", True)}
    assert len(after.letters.letters) == 6


def test_a_stored_state_that_cannot_be_read_costs_itself_only(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 3 + [20.0] * 2))
    bench.read()
    broken = [
        StateRow("r", "gone", "{}", b"\xff"),
        StateRow("r", "gone", "no labels", b"\x80"),
        StateRow("r", "tocsin-own", "", b""),
    ]
    bench.store.commit(Commit(advances=[], committed_at=0.0, states=broken))
    after = bench.restart()
    after.push(*steps("r", [20.0, 1.0, 1.0, 1.0], first=6))
    assert told(after.read()) == [("r", "High", "resolved", 7)], "the state of the other rule is there"


def test_silence_is_judged_at_its_deadline(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 4), every=60.0)
    bench.read()
    bench.now += 599.0
    assert bench.tick() == []
    bench.now += 100.0
    (fired,) = bench.tick()
    assert (fired.alert, fired.event_time) == ("Quiet", 240.0 + 600.0)
    assert bench.tick() == []
    bench.push(step(number=5, grad_norm=1.0))
    assert told(bench.read()) == [("r", "Quiet", "resolved", 5)]


def test_silence_is_judged_by_the_next_record_when_no_tick_came_first(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 4), every=60.0)
    bench.read()
    bench.now += 10_000.0
    bench.idle()
    bench.push(step(number=5, grad_norm=1.0))
    events = bench.read()
    assert told(events) == [("r", "Quiet", "firing", 4), ("r", "Quiet", "resolved", 5)]
    assert events[0].event_time == 840.0


def test_silence_is_not_judged_while_something_waits() -> None:
    bench = Bench(batch=2)
    bench.push(*steps("r", [1.0] * 4), every=60.0)
    bench.now += 10_000.0
    bench.pipeline.process(bench.source.poll(0.0), bench.now)
    assert bench.tick() == []
    bench.read()
    assert told(bench.tick()) == [("r", "Quiet", "firing", 4)]
    bench.shut()


def test_in_a_replay_the_clock_is_the_event_time() -> None:
    bench = Bench(clock="event")
    bench.push(*[step(number=number, time=60.0 * number, grad_norm=1.0) for number in (1, 2, 3)])
    bench.push(step(number=4, time=9_000.0, grad_norm=1.0))
    events = bench.read()
    assert told(events) == [("r", "Quiet", "firing", 3), ("r", "Quiet", "resolved", 4)]
    assert [event.evaluated_at for event in events] == [780.0, 9_000.0]
    assert bench.tick() == []
    bench.shut()


def test_a_record_that_raises_costs_itself_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    a_record_raises(monkeypatch, 4, RuntimeError("a bug, after the run was changed"))
    values = [1.0, 1.0, 20.0, 99.0, 20.0, 1.0]
    bench.push(*steps("r", values), *steps("other", [1.0, 20.0, 20.0]))
    events = bench.read()
    assert told(events) == [
        ("tocsin", "TocsinInternalError", "firing", 0),
        ("r", "High", "firing", 5),
        ("r", "High", "resolved", 6),
        ("other", "High", "firing", 3),
    ]
    assert [(letter.offset, letter.reason, letter.detail) for letter in bench.letters.letters] == [
        (3, "internal", "RuntimeError: a bug, after the run was changed")
    ]
    rows = {row.run: row for row in bench.store.runs()}
    assert (rows["r"].record, rows["r"].sequence) == (5, 5)
    live = bench.shelf.get("r", "memory/0")
    assert live is not None
    assert list(live.run.series["grad_norm"].values) == [1.0, 1.0, 20.0, 20.0, 1.0]
    bench.now += QUIET_SECONDS + 1
    assert ("tocsin", "TocsinInternalError", "resolved", 0) in told(bench.tick())


def test_rules_that_cannot_judge_are_counted_by_rule_and_verdict() -> None:
    fields = 'severity: warning, summary: "s"'
    rules = f"""
group: g
layer: 2
question: q
rules:
  - {{alert: Mixed, id: mixed, expr: "reward_component_mean > reward_domain_mean", {fields}}}
  - {{alert: Stays, id: stays, expr: "grad_norm > 10", {fields}}}
"""
    bench = Bench(rules=engine(rules))
    bench.push(step("r", 1, grad_norm=20.0, reward_component_mean={"a": 1.0}, reward_domain_mean={"maths": 1.0}))
    bench.push(*(step("r", number, policy_loss=0.0) for number in range(2, 40)))
    bench.read()
    assert bench.health.values(health.RULE_HEALTH) == {("mixed", "error"): 1.0, ("stays", "no_data"): 1.0}
    shown = Exporter(bench.shelf.runs.exposed, bench.shelf.exposed, bench.health).render().decode()
    assert 'tocsin_rule_health_total{rule="mixed",verdict="error"} 1.0' in shown
    bench.shut()


def test_a_record_that_raises_after_a_commit_brings_the_stored_run_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.push(*steps("r", [1.0, 20.0]))
    bench.read()
    a_record_raises(monkeypatch, 1, ZeroDivisionError("a bug"))
    bench.push(step(number=3, grad_norm=20.0))
    bench.read()
    monkeypatch.undo()
    bench.push(step(number=4, grad_norm=20.0))
    assert told(bench.read()) == [("r", "High", "firing", 4)]


def test_runs_beyond_the_limit_are_counted_and_told() -> None:
    bench = Bench(max_runs=2)
    bench.push(*[step(run, grad_norm=1.0) for run in ("a", "b", "c", "d")])
    (fired,) = bench.read()
    assert fired.id == "tocsin-limits-reached"
    assert {row.run for row in bench.store.runs()} == {"a", "b"}
    assert bench.health.values(health.OVER_LIMIT)[("runs",)] == 2
    assert bench.store.position("memory/0") == 4
    bench.push(end("a"))
    bench.read()
    bench.push(step("e", grad_norm=1.0))
    bench.read()
    assert {row.run for row in bench.store.runs()} == {"a", "b", "e"}, "an ended run makes room"
    bench.shut()


def test_series_beyond_the_limit_are_told() -> None:
    bench = Bench(max_series=3)
    bench.push(step(a=1.0, b=1.0, c=1.0, d=1.0, e=1.0))
    assert [event.id for event in bench.read()] == ["tocsin-limits-reached"]
    assert bench.health.values(health.OVER_LIMIT)[("series",)] == 2
    bench.shut()


def test_a_record_that_comes_again_is_passed_over(bench: Bench) -> None:
    bench.push(*steps("r", [1.0, 2.0]))
    bench.read()
    raw = RawRecord(step(number=1, grad_norm=1.0), "memory/0", 0, 1, 0.0)
    bench.pipeline.process(Batch([raw]), 0.0)
    assert bench.store.runs()[0].sequence == 2
    assert bench.store.position("memory/0") == 2


def test_a_collector_that_lost_its_partition_writes_nothing_and_begins_again(bench: Bench) -> None:
    bench.push(*steps("r", [1.0, 20.0]))
    bench.read()
    bench.store.commit(Commit([Advance("memory/0", 2, 3)], 0.0))  # somebody else read on
    bench.push(*steps("r", [20.0, 20.0], first=3))
    with pytest.raises(PositionLost):
        bench.read()
    assert bench.store.runs()[0].sequence == 2
    bench.pipeline.reset()
    bench.source.open(bench.store)
    bench.read()
    assert bench.store.position("memory/0") == 4
    assert bench.store.runs()[0].step == 4


def test_a_stall_is_not_raised_by_a_collector_that_lost_its_partition(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 4), every=60.0)
    bench.read()
    bench.store.commit(Commit([Advance("memory/0", 4, 5)], 0.0))
    bench.now += 10_000.0
    with pytest.raises(PositionLost):
        bench.tick()
    assert bench.store.alerts() == []


def test_a_failed_commit_leaves_nothing_behind(bench: Bench) -> None:
    bench.push(*steps("r", [1.0, 20.0]))
    bench.read()
    bench.push(*steps("r", [20.0, 20.0, 1.0], first=3))

    def fails(*_: object) -> None:
        raise OSError("disk full")

    sqlalchemy_event.listen(bench.store.database.engine, "commit", fails)
    with pytest.raises(OSError, match="disk full"):
        bench.read()
    sqlalchemy_event.remove(bench.store.database.engine, "commit", fails)
    bench.pipeline.reset()
    bench.source.open(bench.store)
    assert told(bench.read()) == [("r", "High", "firing", 3), ("r", "High", "resolved", 5)]
    assert len(bench.store.deliveries.due("console", 1e9, 10)) == 1, "a trigger, and behind it its resolve"


def test_revoked_runs_are_forgotten_and_come_back_with_their_partition(bench: Bench) -> None:
    bench.source.assign("memory/0", "memory/1")
    bench.push(*steps("a", [1.0, 20.0]))
    bench.push(*steps("b", [1.0, 1.0]), partition="memory/1")
    bench.read()
    bench.source.revoke("memory/0")
    bench.read()
    assert [live.run.run for live in bench.shelf.all()] == ["b"]
    bench.push(step("a", 3, grad_norm=20.0))
    assert bench.read() == []
    bench.source.assign("memory/0")
    assert told(bench.read()) == [("a", "High", "firing", 3)]


def test_running_runs_are_restored_at_assignment_so_that_their_silence_is_seen(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 4), every=60.0)
    bench.push(*steps("over", [1.0] * 4), end("over", 4), every=60.0)
    bench.read()
    after = bench.restart()
    after.now += 10_000.0
    after.read()
    assert told(after.tick()) == [("r", "Quiet", "firing", 4)]


def test_a_reload_keeps_states_and_resolves_what_is_gone(bench: Bench) -> None:
    bench.push(*steps("r", [1.0, 20.0, 20.0]))
    assert told(bench.read()) == [("r", "High", "firing", 3)]
    softer = engine(RULES.replace("severity: page", "severity: warning").replace("alert: High", "alert: VeryHigh"))
    assert bench.pipeline.reload(softer, 1.0).events == ()
    bench.push(step(number=4, grad_norm=20.0))
    assert bench.read() == [], "the same alert by another name and severity goes on firing"
    without = engine(RULES.replace("id: high", "id: other"))
    assert told(bench.pipeline.reload(without, 2.0).events) == [("r", "high", "resolved", 4)]
    bench.push(step(number=5, grad_norm=20.0), step(number=6, grad_norm=20.0))
    assert told(bench.read()) == [("r", "High", "firing", 6)]


def test_a_rule_that_is_gone_after_a_restart_is_resolved(bench: Bench) -> None:
    bench.push(*steps("r", [1.0, 20.0, 20.0]))
    bench.read()
    after = bench.restart(rules=engine(RULES.replace("id: high", "id: other")))
    after.push(step(number=4, grad_norm=1.0))
    assert told(after.read()) == [("r", "high", "resolved", 3)]
    assert after.store.firing() == []


def test_a_source_fault_alone_is_kept(bench: Bench) -> None:
    bench.pipeline.process(Batch(faults=[SourceFault("p", 3, "broken", b"x")]), 5.0)
    assert [(letter.partition, letter.rejected_at) for letter in bench.letters.letters] == [("p", 5.0)]
    assert bench.health.values(health.SOURCE_FAULTS)[()] == 1


def test_ended_and_long_silent_runs_leave_the_memory_saved(bench: Bench) -> None:
    bench.push(*steps("done", [1.0] * 3), end("done", 3), every=1.0)
    bench.push(*steps("silent", [1.0] * 3), every=1.0)
    bench.read()
    bench.now += 1_000.0
    bench.tick()
    assert [live.run.run for live in bench.shelf.all()] == ["silent"]
    bench.now += 200_000.0
    assert told(bench.tick()) == []
    assert bench.shelf.all() == []
    restored = bench.store.restore("silent")
    assert restored is not None and restored.records == [] and restored.checkpoint is not None
    assert bench.health.values(health.RUNS)[()] == 0


def test_a_collector_that_was_down_for_days_judges_silence_before_it_lets_go() -> None:
    before = Bench()
    before.push(*steps("r", [1.0] * 4), every=60.0)
    before.read()
    before.now += 1_000_000.0
    after = before.restart(batch=2)
    after.push(*steps("other", [1.0] * 4))
    after.pipeline.process(after.source.poll(0.0), after.now)
    assert after.tick() == [], "something waits to be read: it may be a record of r"
    assert told(after.read()) == []
    assert told(after.tick()) == [("r", "Quiet", "firing", 4)]
    before.shut()

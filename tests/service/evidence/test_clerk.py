"""From records to the evidence in the store: written with the incident, completed by the record behind, extended by others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from rules.model import EventState
from service.evidence import clerk, gather
from service.evidence.bundle import Bundle
from service.evidence.export import readme
from service.store.store import Store
from tests.kit.pages import RULES
from tests.kit.pipelines import Bench, begin, end, engine, step


def bench(**options: Any) -> Bench:
    return Bench(rules=engine(RULES), evidence=True, own=False, **options)


def rollouts(word: str, count: int = 3) -> list[dict[str, Any]]:
    return [{"prompt": f"{number} + 1 =", "response": f"{word} {number}", "reward": 0.0} for number in range(count)]


def sound(first: int, last: int) -> list[bytes]:
    return [
        step("r", number, grad_norm=1.0 + number % 3 / 10, reward_mean=0.5, rollouts=rollouts("fine"))
        for number in range(first, last + 1)
    ]


def sick(*numbers: int, reward: float = 0.5) -> list[bytes]:
    return [step("r", number, grad_norm=50.0, reward_mean=reward, rollouts=rollouts("sick")) for number in numbers]


def kept(of: Bench, incident: str = "r#1") -> Bundle:
    found = of.store.evidence.of(incident)
    assert found is not None
    return found


def test_the_bundle_is_written_with_the_incident() -> None:
    of = bench()
    of.push(begin("r", team="lab"), *sound(1, 40), *sick(41, 42))
    of.read()
    found = kept(of)
    assert (found.run, found.incident, found.step, found.since, found.onset) == ("r", "r#1", 42, 41, 41)
    assert found.normal is not None and found.abnormal is not None and found.after is not None
    assert (found.normal.step, found.abnormal.step, found.after.step) == (40, 41, 42)
    assert (found.normal.metrics["grad_norm"], found.abnormal.metrics["grad_norm"]) == (1.1, 50.0)
    assert found.normal.rollouts is not None and found.normal.rollouts.rollouts[0].response == "fine 0"
    assert found.abnormal.rollouts is not None and found.abnormal.rollouts.rollouts[0].response == "sick 0"
    assert found.labels == {"team": "lab"}
    assert found.movers.movers[0].key == "grad_norm"
    (rule,) = found.rules
    assert (rule.id, rule.expr, rule.hold, rule.since, rule.fired) == ("high", "grad_norm > 10", "2 records", 41, 42)
    assert [(each.step, each.verdict, each.value, each.limit) for each in rule.said[-3:]] == [
        (40, "ok", 1.1, 10.0),
        (41, "breach", 50.0, 10.0),
        (42, "breach", 50.0, 10.0),
    ]
    assert found.checks[-2:] == ("look at the gradient", "then at the mask")
    line = next(line for line in found.lines if line.key == "grad_norm")
    assert (line.steps[0], line.steps[-1], line.values[-1]) == (1, 42, 50.0) and line.centre == pytest.approx(1.1)
    assert found.left_out == ()


def test_it_waits_for_the_record_behind_and_for_all_of_its_rows() -> None:
    of = bench()
    of.push(*sound(1, 40), step("r", 41, grad_norm=1.0, reward_mean=-1.0))
    of.read()
    first = kept(of)
    assert (first.step, first.after, first.waits) == (41, None, True)
    assert of.store.evidence.waiting("r") == "r#1"
    of.push(step("r", 42, grad_norm=1.0, reward_mean=-1.0))
    of.read()
    second = kept(of)
    assert second.after is not None and (second.after.step, second.after.rollouts, second.waits) == (42, None, True)
    of.push(step("r", 42, rollouts=rollouts("late")))
    of.read()
    third = kept(of)
    assert third.after is not None and third.after.rollouts is not None
    assert third.after.rollouts.rollouts[0].response == "late 0"
    of.push(step("r", 43, grad_norm=1.0, reward_mean=-1.0))
    of.read()
    last = kept(of)
    assert not last.waits and last.after == third.after and of.store.evidence.waiting("r") == ""
    of.push(step("r", 44, grad_norm=2.0, reward_mean=-1.0))
    of.read()
    assert kept(of) == last, "it is closed"


def test_the_end_of_the_run_ends_the_waiting() -> None:
    of = bench()
    of.push(*sound(1, 40), step("r", 41, grad_norm=1.0, reward_mean=-1.0), end("r", 41))
    of.read()
    assert (kept(of).after, kept(of).waits) == (None, False)


@pytest.mark.parametrize("batch", [1, 500])
def test_a_restart_goes_on_waiting(batch: int) -> None:
    of = bench(batch=batch)
    of.push(*sound(1, 40), step("r", 41, grad_norm=1.0, reward_mean=-1.0))
    of.read()
    again = of.restart()
    again.push(step("r", 42, grad_norm=7.0, reward_mean=-1.0), step("r", 43, grad_norm=1.0, reward_mean=-1.0))
    again.read()
    found = kept(again)
    assert found.after is not None and (found.after.metrics["grad_norm"], found.waits) == (7.0, False)


def test_an_alert_that_joins_adds_its_rule_and_what_to_check() -> None:
    of = bench()
    of.push(*sound(1, 40), *sick(41, 42), *sick(43, 44, reward=-1.0))
    of.read()
    found = kept(of)
    assert [(rule.id, rule.fired) for rule in found.rules] == [("high", 42), ("low-reward", 43)]
    assert found.onset == 41 and found.abnormal is not None and found.abnormal.step == 41, "the states stay those of the onset"
    assert {"look at the gradient", "look at the verifier"} <= set(found.checks)
    assert {"grad_norm", "reward_mean"} <= {line.key for line in found.lines}


def warned(first: int, last: int) -> list[bytes]:
    """A warning fires on and on, for another reason."""
    return [
        step("r", number, grad_norm=1.0 + number % 3 / 10, reward_mean=-1.0, rollouts=rollouts("dull"))
        for number in range(first, last + 1)
    ]


@pytest.mark.parametrize("batch", [1, 500])
def test_the_evidence_of_a_page_is_not_that_of_a_warning_long_before_it(batch: int) -> None:
    of = bench(batch=batch)
    of.push(*sound(1, 40), *warned(41, 100), *sick(101, reward=-1.0), *sick(102, reward=-1.0))
    of.read()
    found = kept(of)
    assert [(rule.id, rule.fired) for rule in found.rules] == [("high", 102), ("low-reward", 41)]
    assert (found.step, found.since, found.onset, found.earlier) == (102, 101, 101, (41,))
    assert found.normal is not None and found.abnormal is not None and found.after is not None
    assert (found.normal.step, found.abnormal.step, found.after.step) == (100, 101, 102)
    assert found.normal.rollouts is not None and found.normal.rollouts.rollouts[0].response == "dull 0"
    assert found.abnormal.rollouts is not None and found.abnormal.rollouts.rollouts[0].response == "sick 0"
    assert found.movers.movers[0].key == "grad_norm"
    line = next(line for line in found.lines if line.key == "grad_norm")
    assert (line.steps[-1], line.values[-1]) == (102, 50.0)
    low = found.rules[1]
    assert low.said[-1].step == 41, "what the rules before it said stays"
    assert found.checks[-3:] == ("look at the gradient", "then at the mask", "look at the verifier")
    incident = of.store.incident("r#1")
    assert incident is not None
    told = readme(found, incident)
    assert (
        "Opened at step 41" in told and "This is of High, which joined at step 102" in told and "began with at step 41" in told
    )
    again = of.restart()
    again.push(*sick(103, reward=-1.0), *sick(104, reward=-1.0))
    again.read()
    assert not kept(again).waits and kept(again).earlier == (41,)


@pytest.mark.parametrize(("first", "onset"), [(42, 41), (50, 41), (51, 41), (53, 53)])
def test_what_joins_soon_or_goes_back_to_the_onset_leaves_the_states(first: int, onset: int) -> None:
    """Up to ten records after it; and later, while what moved first before the page is what the warning saw."""
    of = bench()
    of.push(*sound(1, 40), *warned(41, first - 1), *sick(first, first + 1, reward=-1.0))
    of.read()
    found = kept(of)
    assert (found.onset, bool(found.earlier)) == (onset, onset != 41)
    assert {rule.id for rule in found.rules} == {"low-reward", "high"}


def test_what_is_not_louder_or_is_explained_has_no_evidence_of_its_own() -> None:
    of = bench()
    of.push(*sound(1, 40), *sick(*range(41, 80)), *sick(80, 81, reward=-1.0))
    of.read()
    found = kept(of)
    assert (found.onset, found.earlier) == (41, ()) and [rule.id for rule in found.rules] == ["high", "low-reward"]
    loud = replace(found.rules[0], since=200, severity="stop")
    assert gather.louder(found, [loud]) == loud
    assert gather.louder(found, [replace(loud, explained_by="NanLoss")]) is None
    assert gather.louder(found, [replace(loud, severity="page")]) is None, "as loud as what there is"
    assert gather.louder(found, [replace(loud, since=found.step)]) is None, "it began before"
    hushed = replace(found, rules=tuple(replace(rule, explained_by="NanLoss") for rule in found.rules))
    assert gather.louder(hushed, [replace(loud, severity="warning")]) is not None, "of what is explained nobody was told"


def test_an_alert_that_begins_again_is_kept_as_it_was() -> None:
    of = bench()
    of.push(*sound(1, 40), *sick(41, 42, reward=-1.0), step("r", 43, grad_norm=1.0, reward_mean=-1.0))
    of.push(*sick(44, 45, reward=-1.0))
    of.read()
    found = kept(of)
    assert {rule.id: rule.fired for rule in found.rules} == {"low-reward": 41, "high": 42}


def test_the_rows_carry_briefs_and_the_incident_keeps_them() -> None:
    of = bench()
    of.push(begin("r"), *sound(1, 40), *sick(41, 42, reward=-1.0))
    of.now = 500.0
    of.read()
    rows = of.store.deliveries.due("console", 1_000.0, 10)
    told = {row.event.alert: row.brief for row in rows}
    assert set(told) == {"High", "LowReward"}
    brief = told["High"]
    assert brief is not None
    assert (brief.since, brief.onset_time, brief.event_time, brief.made_at) == (41, 60.0 * 41, 60.0 * 42, 500.0)
    assert [each.metric for each in brief.normals] == ["grad_norm"]
    assert brief.moved[0].metric in ("grad_norm", "reward_mean") and brief.moved[0].step == 41
    assert brief.rollouts.startswith("rollouts at steps 41 to 42")
    (incident,) = of.store.open_incidents()
    assert {told.alert: told.brief for told in incident.alerts.values()}["High"] == brief


def test_of_many_alerts_the_first_are_kept_and_the_rest_is_counted_once() -> None:
    rules = "group: test\nlayer: 2\nquestion: Is it well?\nrules:\n" + "".join(
        f'  - {{alert: High{number}, id: high-{number}, expr: grad_norm > {number}, severity: page, summary: "x"}}\n'
        for number in range(10, 25)
    )
    of = Bench(rules=engine(rules), evidence=True, own=False)
    of.push(*sound(1, 40), step("r", 41, grad_norm=10.5), step("r", 42, grad_norm=99.0))
    of.push(step("r", 43, grad_norm=10.5), step("r", 44, grad_norm=99.0))
    of.read()
    found = kept(of)
    assert [rule.alert for rule in found.rules] == [f"High{number}" for number in range(10, 22)] and found.more_rules == 3


@pytest.mark.parametrize("quotes", [True, False])
def test_messages_quote_model_output_only_where_they_may(quotes: bool) -> None:
    of = bench()
    of.clerk.use(clerk.UNKNOWN, quotes=quotes)
    loops = [{"prompt": "p", "response": "the " * 60, "reward": 0.0, "picked": "worst"} for _ in range(4)]
    of.push(*sound(1, 40), *[step("r", number, grad_norm=50.0, rollouts=loops) for number in (41, 42)])
    of.read()
    (row,) = of.store.deliveries.due("console", 1_000.0, 10)
    assert row.brief is not None and "garbled" in row.brief.rollouts
    assert row.brief.quote == ("the " * 40 if quotes else "")
    assert kept(of).abnormal is not None, "the evidence has them in any case"


def test_without_a_clerk_nothing_is_written_or_said() -> None:
    of = Bench(rules=engine(RULES), own=False)
    of.push(*sound(1, 40), *sick(41, 42))
    of.read()
    assert of.store.evidence.of("r#1") is None
    assert [row.brief for row in of.store.deliveries.due("console", 1_000.0, 10)] == [None]


@pytest.mark.parametrize("broken", ["read", "evidence", "brief"])
def test_a_fault_costs_no_alert(broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(clerk, broken, fails)
    of = bench()
    of.push(*sound(1, 40), *sick(41, 42))
    assert [event.state for event in of.read()] == [EventState.FIRING]
    assert [row.brief for row in of.store.deliveries.due("console", 1_000.0, 10)] == [None]
    assert "nothing could be said" in caplog.text


@pytest.mark.parametrize("broken", ["opened", "followed"])
def test_a_fault_in_gathering_costs_the_evidence_alone(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(gather, broken, fails)
    of = bench()
    of.push(*sound(1, 40), *sick(41, 42, 43))
    of.read()
    (row,) = of.store.deliveries.due("console", 1_000.0, 10)
    assert row.brief is not None and of.store.evidence.of("r#1") is None
    assert "could not be gathered" in caplog.text


def test_numbers_that_no_encoder_takes_cost_the_evidence_alone(caplog: pytest.LogCaptureFixture) -> None:
    of = bench()
    record = {"v": 1, "kind": "run", "run": "r", "time": 0.0, "config": {"seed": 2**80}}
    of.push(json.dumps(record).encode(), *sound(1, 40), *sick(41, 42))
    assert len(of.read()) == 1
    assert len(of.store.deliveries.due("console", 1_000.0, 10)) == 1


def test_a_bundle_of_another_version_is_none_and_a_new_one_takes_its_place(caplog: pytest.LogCaptureFixture) -> None:
    of = bench()
    of.push(*sound(1, 40), *sick(41, 42))
    of.read()
    with of.store.database.write() as connection:
        connection.exec_driver_sql("UPDATE evidence SET value = X'00'")
    assert of.store.evidence.of("r#1") is None and "cannot be read" in caplog.text
    of.push(*sick(43, reward=-1.0))
    of.read()
    assert [rule.id for rule in kept(of).rules] == ["low-reward"]


def test_info_has_evidence_and_no_brief() -> None:
    of = Bench(rules=engine(RULES.replace("severity: page", "severity: info")), evidence=True, own=False)
    of.push(*sound(1, 40), *sick(41, 42))
    of.read()
    assert kept(of).rules[0].severity == "info"
    (incident,) = of.store.open_incidents()
    assert [told.brief for told in incident.alerts.values()] == [None]


def test_of_an_incident_that_nobody_knows() -> None:
    with Store() as store:
        assert (store.evidence.of("r#1"), store.evidence.waiting("r")) == (None, "")

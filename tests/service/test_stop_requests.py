"""When a run is asked to stop, once; who has acknowledged; and the page when nobody does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from alerts.incidents import Reach
from alerts.model import Delivery, DeliveryStatus
from alerts.muting.model import Mute
from alerts.timing import StormLimit, Timing
from rules.engine import Engine
from rules.loader import load_bundle, load_text
from rules.model import AlertEvent
from service import stop_requests
from service.stop_requests import RECEIVER, Stop
from service.store.model import Commit, StateRow
from tests.kit.pipelines import Bench, a_record_raises, end, engine, told
from tocsin import control

RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - alert: Bad
    id: bad
    expr: grad_norm > 10
    severity: stop
    summary: "Gradient norm {{ value | sig(3) }}"
  - alert: Worse
    id: worse
    expr: reward_mean > 10
    severity: stop
    summary: "Something is wrong"
  - alert: Tried
    id: tried
    expr: policy_entropy > 10
    severity: stop
    summary: "Something is wrong"
    stage: notify
  - alert: Silent
    id: silent
    expr: policy_entropy > 10
    severity: stop
    summary: "Something is wrong"
    stage: shadow
  - alert: Loud
    id: loud
    expr: learning_rate > 10
    severity: page
    summary: "Something is wrong"
"""
GOOD_FOR = 3_600.0


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(rules=engine(RULES), stops=True)
    yield made
    made.shut()


def opened(run: str = "r", on_stop: str = "pause", attempt: int = 1, time: float = 0.0) -> bytes:
    record = {"v": 1, "kind": "run", "run": run, "time": time, "on_stop": on_stop, "attempt": attempt}
    return json.dumps(record).encode()


def row(number: int, *, run: str = "r", ack: str = "", attempt: int = 1, time: float | None = None, **metrics: Any) -> bytes:
    record = {"v": 1, "kind": "step", "run": run, "step": number, "time": 60.0 * number if time is None else time}
    return json.dumps({**record, "attempt": attempt, "stop_ack": ack, "metrics": metrics}).encode()


def bad(number: int, **more: Any) -> bytes:
    return row(number, grad_norm=20.0, **more)


def fine(number: int, **more: Any) -> bytes:
    return row(number, grad_norm=1.0, **more)


def requests(bench: Bench) -> list[Delivery]:
    return list(bench.store.deliveries.due(RECEIVER, 1e12, 100))


def kept(bench: Bench, run: str = "r") -> Stop:
    """As a restart finds it."""
    (found,) = [each.state for each in bench.store.states(run) if each.rule_id == stop_requests.STATE]
    assert found is not None
    return stop_requests.decode(found)


def asked(bench: Bench, on_stop: str = "pause") -> str:
    """A run whose first step is bad; the id of its request."""
    bench.push(opened(on_stop=on_stop), bad(1))
    bench.read()
    return kept(bench).request.id


def pages(bench: Bench) -> list[tuple[str, int]]:
    return [(event.state.value, event.step) for event in bench.events if event.alert == stop_requests.UNACKNOWLEDGED]


@pytest.mark.parametrize("on_stop", ["pause", "checkpoint_and_stop"])
def test_a_run_that_opted_in_is_asked_with_the_alert(bench: Bench, on_stop: str) -> None:
    bench.now = 500.0
    bench.push(opened(on_stop=on_stop, attempt=2), bad(7, attempt=2))
    processed = bench.pipeline.process(bench.source.poll(0.0), bench.now)
    assert RECEIVER in processed.receivers
    (waiting,) = requests(bench)
    stop = kept(bench)
    assert stop.request == control.StopRequest(
        run="r",
        id=waiting.id,
        rule="bad",
        step=7,
        reason="Bad: Gradient norm 20",
        action=on_stop,
        attempt=2,
        requested_at=500.0,
        expires_at=500.0 + GOOD_FOR,
    )
    assert (waiting.incident, waiting.event.alert) == (stop.incident, "Bad") == ("r#1", "Bad")
    assert control.decode(control.encode(stop.request)) == stop.request


@pytest.mark.parametrize("on_stop", ["ignore", "", "halt"])
def test_a_run_that_did_not_opt_in_is_not_asked(bench: Bench, on_stop: str) -> None:
    bench.push(opened(on_stop=on_stop), bad(1))
    assert told(bench.read()) == [("r", "Bad", "firing", 1)]
    assert requests(bench) == [] and bench.store.states("r")[0].rule_id == "bad"


def test_a_replay_asks_nothing() -> None:
    bench = Bench(rules=engine(RULES))
    bench.push(opened(), bad(1), bad(2))
    bench.read()
    assert requests(bench) == [] and [each.rule_id for each in bench.store.states("r")] == ["bad"]
    bench.shut()


def test_pages_and_rules_on_trial_ask_nothing(bench: Bench) -> None:
    bench.push(opened(), row(1, policy_entropy=20.0, learning_rate=20.0))
    fired = {(event.alert, event.state.value) for event in bench.read()}
    assert fired == {("Tried", "firing"), ("Silent", "explained"), ("Loud", "firing")}
    assert requests(bench) == []


def test_an_explained_stop_asks_when_it_fires_by_itself(tmp_path: Path) -> None:
    text = RULES.replace("layer: 2", "layer: 1").replace("bad", "root").replace("Bad", "Root").replace("stop", "page")
    (tmp_path / "1-root.yaml").write_text(text.split("  - alert: Worse")[0].replace("grad_norm", "value_loss"))
    (tmp_path / "2-test.yaml").write_text(RULES.replace("group: test", "group: later"))
    bench = Bench(rules=Engine(load_bundle([tmp_path])), stops=True)
    bench.push(opened(), bad(1, value_loss=20.0))
    assert [(event.alert, event.state.value) for event in bench.read()] == [("Root", "firing"), ("Bad", "explained")]
    assert requests(bench) == []
    bench.push(bad(2, value_loss=1.0))
    bench.read()
    assert [waiting.event.alert for waiting in requests(bench)] == ["Bad"]
    bench.shut()


class _Muted:
    def __init__(self, until: float) -> None:
        self.until = until

    def __call__(self, _event: AlertEvent, now: float) -> Mute | None:
        return Mute("silence s1", self.until) if now < self.until else None


def test_a_muted_stop_asks_nothing_also_when_the_mute_ends() -> None:
    bench = Bench(rules=engine(RULES), stops=True, mute=_Muted(100.0))
    bench.push(opened(), bad(1))
    bench.read()
    bench.now = 200.0
    bench.tick()
    bench.push(bad(2))
    bench.read()
    assert len(bench.store.deliveries.due("console", 1e12, 10)) == 1, "people are told"
    assert requests(bench) == []
    bench.push(fine(3), bad(4))
    bench.read()
    assert [waiting.event.step for waiting in requests(bench)] == [4]
    bench.shut()


def test_while_a_request_is_in_force_a_further_alert_adds_none(bench: Bench) -> None:
    first = asked(bench)
    bench.push(bad(2, reward_mean=20.0), fine(3), bad(4))
    bench.read()
    assert [waiting.id for waiting in requests(bench)] == [first]
    bench.push(row(5, ack=first, grad_norm=20.0), fine(6), bad(7))
    bench.read()
    assert [waiting.id for waiting in requests(bench)] == [first], "an acknowledged one is in force as well"


def test_what_fires_on_when_a_request_expires_asks_nothing_and_what_begins_does(bench: Bench) -> None:
    first = asked(bench)
    bench.now = GOOD_FOR
    bench.push(bad(2))
    bench.read()
    bench.tick()
    assert [waiting.id for waiting in requests(bench)] == [first]
    bench.push(bad(3, reward_mean=20.0))
    bench.read()
    assert kept(bench).request.rule == "worse"
    bench.now = 2 * GOOD_FOR
    bench.push(fine(4, reward_mean=20.0), bad(5, reward_mean=20.0))
    bench.read()
    assert (kept(bench).request.rule, kept(bench).request.step) == ("bad", 5), "a new episode of the first one"
    assert len({waiting.id for waiting in store_rows(bench)}) == 3
    earlier = kept(bench.restart()).earlier
    assert [(each.rule, each.step, each.over) for each in earlier] == [
        ("bad", 1, "it expired without an answer"),
        ("worse", 3, "it expired without an answer"),
    ]
    assert earlier[0].id == first and {each.incident for each in earlier} <= {"r#1", "r#2"}


def store_rows(bench: Bench) -> list[Delivery]:
    """Requests of all incidents: those behind an open one of their key are not due."""
    found = []
    while waiting := requests(bench):
        for each in waiting:
            bench.store.deliveries.begin(each)
            bench.store.deliveries.finish(replace(each, status=DeliveryStatus.SENT))
            found.append(each)
    return found


def test_one_episode_asks_once(bench: Bench) -> None:
    """A rule that an earlier layer explains for a while fires again in the same episode."""
    asked(bench)
    live = bench.shelf.get("r", "memory/0")
    assert live is not None
    (event,) = [event for event in bench.events if event.alert == "Bad"]
    stops = stop_requests.Stops(GOOD_FOR, lambda _event, _now: None)
    plan = bench.book.apply([replace(event, record=2, step=2)], 2 * GOOD_FOR)
    assert stops.ask(live.stop, live.run, [event], plan, 2 * GOOD_FOR) == (live.stop, ())
    assert stops.ask(None, live.run, [event], plan, 2 * GOOD_FOR)[1] != ()


def test_the_acknowledgement_outlives_a_restart_and_nothing_is_asked_again(bench: Bench) -> None:
    first = asked(bench)
    bench.now = 60.0
    bench.push(bad(2), bad(3, ack="another"), bad(4, ack=first), bad(5, ack=first))
    bench.read()
    stop = kept(bench)
    assert (stop.acknowledged_at, stop.acknowledged_step) == (60.0, 4)
    assert stop.over == "the job acknowledged at step 4"
    after = bench.restart()
    after.push(*[bad(number, ack=first) for number in range(6, 16)])
    after.read()
    assert kept(after) == stop
    assert [waiting.id for waiting in requests(after)] == [first]
    assert pages(after) == []


def test_three_steps_without_an_acknowledgement_are_a_page(bench: Bench) -> None:
    first = asked(bench)
    bench.now = 4.0
    bench.push(bad(2), bad(3), bad(4), bad(5))
    bench.read()
    assert pages(bench) == [], "nobody can have heard of it yet"
    bench.now = 5.0
    bench.push(bad(6), bad(6, other=1.0), bad(4, other=1.0), bad(7))
    bench.read()
    assert pages(bench) == [], "rows of one step are one"
    after = bench.restart()
    after.read()
    after.push(bad(8), bad(9))
    after.read()
    assert pages(after) == [("firing", 8)]
    (page,) = [event for event in after.events if event.alert == stop_requests.UNACKNOWLEDGED]
    assert page.reason == f"3 steps without an acknowledgement of stop request {first[:8]} (rule bad)"
    assert page.summary == "The job was asked to pause at step 1 and has not answered"
    (incident,) = after.store.open_incidents()
    assert [each.alert for each in incident.alerts.values()] == ["Bad", "StopUnacknowledged"]
    after.push(bad(10), bad(11, ack=first))
    after.read()
    assert pages(after) == [("firing", 8), ("resolved", 11)]
    assert after.events[-1].reason == "the job acknowledged at step 11"
    assert [event.alert for event in after.store.firing("r")] == ["Bad"]


def test_steps_that_waited_to_be_read_say_nothing(bench: Bench) -> None:
    """A collector that was away reads of a spool what a job wrote before it could be asked, and nothing says when."""
    asked(bench)
    after = bench.restart()
    after.now = 20.0
    after.push(*[bad(number) for number in range(2, 12)])
    after.read()
    assert kept(after).unanswered == 0
    after.push(bad(12), bad(13), bad(14))
    after.read()
    assert pages(after) == [("firing", 14)]


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (end("r", 5), "run finished"),
        (end("r", 5, "failed"), "run failed"),
        (opened(attempt=2, time=500.0), "the run was started again"),
        (fine(5), "the alert that asked is over"),
        (bad(2, attempt=2), "the run was started again"),
    ],
)
def test_the_page_ends_with_what_it_waits_for(bench: Bench, last: bytes, why: str) -> None:
    asked(bench)
    bench.now = 10.0
    bench.push(bad(2), bad(3), bad(4))
    bench.read()
    assert pages(bench) == [("firing", 4)]
    bench.push(last)
    bench.read()
    assert [state for state, _ in pages(bench)] == ["firing", "resolved"]
    assert kept(bench).over == why
    assert "StopUnacknowledged" not in [event.alert for event in bench.store.firing("r")]


def test_the_page_ends_with_a_rule_that_is_gone(bench: Bench) -> None:
    asked(bench)
    bench.now = 10.0
    bench.push(bad(2), bad(3), bad(4))
    bench.read()
    without = load_text(RULES.replace("id: bad", "id: other"))
    bench.events += bench.pipeline.reload(Engine(without), 11.0).events
    assert pages(bench) == [("firing", 4), ("resolved", 4)]
    assert bench.store.firing("r") == []


def test_an_end_that_acknowledges_is_an_acknowledgement(bench: Bench) -> None:
    first = asked(bench)
    record = json.loads(end("r", 2, "stopped")) | {"stop_ack": first}
    bench.push(json.dumps(record).encode())
    bench.read()
    stop = kept(bench)
    assert (stop.acknowledged_step, stop.void, stop.over) == (2, True, "the job acknowledged at step 2")
    assert pages(bench) == []


@pytest.mark.parametrize("restart", [[opened(attempt=2, time=600.0)], [end("r", 2), opened(time=600.0)]])
def test_a_further_attempt_voids_the_request_and_is_asked_when_the_alert_begins_anew(
    bench: Bench, restart: list[bytes]
) -> None:
    first = asked(bench)
    attempt = json.loads(restart[-1])["attempt"]
    bench.push(*restart, fine(3, attempt=attempt, time=601.0))
    bench.read()
    assert kept(bench).void and not kept(bench).in_force(1.0)
    over = kept(bench).over
    bench.push(bad(4, attempt=attempt, time=602.0))
    bench.read()
    stop = kept(bench)
    assert stop.request.id != first and stop.in_force(1.0) and stop.request.attempt == attempt
    assert stop.request.step == 4
    (before,) = stop.earlier
    assert (before.id, before.over) == (first, over) and over in ("the run was started again", "run finished")


def test_of_many_requests_the_last_are_remembered(bench: Bench) -> None:
    bench.push(opened())
    for number in range(1, 2 * (stop_requests.MAX_EARLIER + 3), 2):
        bench.now = number * GOOD_FOR
        bench.push(bad(number), fine(number + 1))
        bench.read()
    earlier = kept(bench).earlier
    assert len(earlier) == stop_requests.MAX_EARLIER
    steps = [*(each.step for each in earlier), kept(bench).request.step]
    assert steps == list(range(steps[0], steps[0] + 2 * len(steps), 2)) and steps[0] > 1, "oldest first, none left out"


def test_what_fires_through_a_restart_of_the_job_does_not_ask_it_again(bench: Bench) -> None:
    asked(bench)
    bench.push(opened(attempt=2, time=600.0), bad(2, attempt=2, time=601.0), bad(3, attempt=2, time=602.0))
    bench.read()
    assert len(store_rows(bench)) == 1 and kept(bench).void


def test_a_stored_request_that_cannot_be_read_costs_itself_only(bench: Bench) -> None:
    asked(bench)
    bench.store.commit(Commit([], 0.0, states=[StateRow("r", stop_requests.STATE, "", b"\xc1")]))
    after = bench.restart()
    after.push(bad(2))
    after.read()
    live = after.shelf.get("r", "memory/0")
    assert live is not None and live.stop is None and live.states.fires("bad")


def test_a_record_that_raises_leaves_the_request_as_it_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asked(bench)
    bench.now = 10.0
    a_record_raises(monkeypatch, 3, RuntimeError("planted"))
    bench.push(bad(2), bad(3), bad(4, ack=first), bad(5))
    bench.read()
    assert [letter.reason for letter in bench.letters.letters] == ["internal"]
    assert (kept(bench).unanswered, kept(bench).acknowledged_at) == (3, None)
    assert pages(bench) == [("firing", 5)]
    live = bench.shelf.get("r", "memory/0")
    assert live is not None and live.stop == kept(bench)


def test_in_a_storm_each_run_is_asked_and_people_are_told_once() -> None:
    bench = Bench(rules=engine(RULES), stops=True, timing=Timing(storm=StormLimit(1, 60.0)))
    for run in "abcd":
        bench.push(opened(run), bad(1, run=run))
    bench.read()
    told_of = [waiting.event.run for waiting in bench.store.deliveries.due("console", 1e12, 10)]
    assert told_of == ["a", "tocsin.storm"]
    assert [waiting.event.run for waiting in requests(bench)] == ["a", "b", "c", "d"]
    assert {kept(bench, run).incident for run in "abcd"} == {"a#1", "b#1", "c#1", "d#1"}
    bench.shut()


def test_the_thread_of_the_incident_hears_what_was_asked_and_answered(bench: Bench) -> None:
    bench.book.reconfigure(lambda _event: ["thread"], {"thread": Reach("thread")})
    first = asked(bench)
    bench.now = 60.0
    bench.push(bad(2), bad(3, ack=first), bad(4, ack=first), fine(5, ack=first))
    bench.read()
    found = []
    while waiting := bench.store.deliveries.due("thread", 1e12, 10):
        (each,) = waiting
        bench.store.deliveries.begin(each)
        bench.store.deliveries.finish(replace(each, status=DeliveryStatus.SENT))
        found.append((each.action.value, each.note))
    assert found == [
        ("trigger", ""),
        ("update", "the job is asked to pause, until 01:00 UTC"),
        ("update", "the job acknowledged at step 3"),
        ("resolve", ""),
    ]
    (incident,) = bench.store.incidents("r")
    assert incident.updates == 2

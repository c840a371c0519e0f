"""When a run is asked to stop, and that it is asked once. What becomes of the request is in test_stop_answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from alerts.incidents import Reach
from alerts.model import DeliveryStatus
from alerts.muting.model import Mute
from alerts.timing import StormLimit, Timing
from rules.engine import Engine
from rules.loader import load_bundle
from rules.model import AlertEvent
from service import stop_requests
from service.stop_requests import RECEIVER
from tests.kit.pipelines import Bench, engine, told
from tests.kit.stopping import GOOD_FOR, RULES, asked, bad, fine, kept, opened, requests, row, store_rows
from tocsin import control


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(rules=engine(RULES), stops=True)
    yield made
    made.shut()


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

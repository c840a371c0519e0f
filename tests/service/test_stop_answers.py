"""What becomes of a request to stop: an acknowledgement, silence, the end of the run, another attempt of the job."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rules.engine import Engine
from rules.loader import load_text
from service import stop_requests
from service.store.model import Commit, StateRow
from tests.kit.pipelines import Bench, a_record_raises, end, engine
from tests.kit.stopping import GOOD_FOR, RULES, asked, bad, fine, kept, opened, requests, store_rows


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(rules=engine(RULES), stops=True)
    yield made
    made.shut()


def pages(bench: Bench) -> list[tuple[str, int]]:
    return [(event.state.value, event.step) for event in bench.events if event.alert == stop_requests.UNACKNOWLEDGED]


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

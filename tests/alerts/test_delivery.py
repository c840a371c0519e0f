"""What the delivery worker does with a row, step by step, on a clock that the test moves."""

from __future__ import annotations

import pytest

from alerts.delivery import DeliveryWorker, RetryPolicy
from alerts.memory import MemoryQueue
from alerts.model import Action, DeliveryStatus, Outcome
from alerts.ports import DeliveryQueue
from rules.model import Severity
from tests.kit.delivering import LATER, OK, REFUSED, START, Bench, Script, row
from tests.kit.vectors import alerting


def limited(seconds: float | None) -> Outcome:
    return Outcome(ok=False, retry=True, reason="rate_limited", detail="HTTP 429", retry_after=seconds)


def test_a_row_is_sent_and_that_is_written_down() -> None:
    bench = Bench(Script(), row())
    assert bench.step() is None
    done = bench.row()
    assert (done.status, done.attempts, done.remote, done.error) == (DeliveryStatus.SENT, 1, "1.1", "")
    assert bench.seen == ["ok"] and not bench.failed


def test_the_attempt_is_durable_before_it_is_made() -> None:
    receiver = Script()
    bench = Bench(receiver, row())
    seen: list[tuple[DeliveryStatus, int]] = []
    receiver.meanwhile = lambda: seen.append((bench.row().status, bench.row().attempts))
    bench.step()
    assert seen == [(DeliveryStatus.SENDING, 1)]


def test_a_failure_is_tried_again_with_full_jitter() -> None:
    bench = Bench(Script(LATER, LATER, LATER), row(), jitter=0.5)
    waits = []
    while (again := bench.step()) is not None:
        waits.append(again - bench.now)
        bench.now = again
    assert waits == [0.5, 1.0, 2.0]
    assert bench.row().status is DeliveryStatus.SENT and bench.row().attempts == 4
    assert bench.seen == ["server_error"] * 3 + ["ok"]


def test_nothing_is_sent_before_its_time() -> None:
    bench = Bench(Script(LATER), row(), jitter=0.5)
    bench.step()
    bench.now += 0.4
    assert bench.step() == START + 0.5
    assert len(bench.receiver.sent) == 1


def test_the_backoff_has_a_ceiling_and_no_overflow() -> None:
    policy = RetryPolicy()
    assert [policy.backoff(attempt, 1.0) for attempt in (1, 2, 3, 7, 8, 100_000)] == [1.0, 2.0, 4.0, 60.0, 60.0, 60.0]
    assert policy.backoff(5, 0.0) == 0.0


def test_a_refusal_is_final_and_raises_an_alarm_elsewhere() -> None:
    bench = Bench(Script(REFUSED), row())
    assert bench.step() is None
    assert bench.row().status is DeliveryStatus.FAILED
    assert bench.row().error == "rejected: HTTP 400"
    assert [failed.id for failed in bench.failed] == [bench.row().id]


@pytest.mark.parametrize(("severity", "hours"), [(Severity.WARNING, 6), (Severity.PAGE, 24), (Severity.STOP, 24)])
def test_retries_end(severity: Severity, hours: int) -> None:
    bench = Bench(Script(*[LATER] * 10_000), row(severity=severity), jitter=0.9)
    while (again := bench.step()) is not None:
        bench.now = again
    assert hours * 3600 <= bench.now - START < hours * 3600 + 60
    failed = bench.row()
    assert failed.status is DeliveryStatus.FAILED
    assert failed.error.startswith("expired: gave up after") and "HTTP 503" in failed.error
    assert len(bench.failed) == 1 and bench.seen[-1] == "expired"


def test_a_row_that_is_too_old_gets_one_attempt() -> None:
    """The collector was down for two days: the page is late, which is no reason never to say it."""
    bench = Bench(Script(), row(created_at=START - 48 * 3600))
    bench.step()
    assert bench.row().status is DeliveryStatus.SENT


def test_retry_after_holds_the_whole_receiver() -> None:
    bench = Bench(Script(limited(30.0)), row("A"), row("B"))
    assert bench.step() == START + 30
    assert bench.receiver.said == [("A", "trigger")], "B goes to the same channel"
    bench.now = START + 29.9
    assert bench.step() == START + 30
    bench.now = START + 30
    assert bench.step() is None
    assert bench.receiver.said == [("A", "trigger"), ("A", "trigger"), ("B", "trigger")]


def test_a_shameless_retry_after_is_bounded() -> None:
    bench = Bench(Script(limited(1e9)), row())
    assert bench.step() == START + 3600


def test_a_clock_that_is_set_back_does_not_hold_a_receiver_for_ever() -> None:
    bench = Bench(Script(limited(30.0)), row("A"), row("B", not_before=-1e9))
    bench.step()
    bench.now -= 7 * 24 * 3600
    assert bench.step() == bench.now + 3600
    bench.now += 3600
    bench.step()
    assert bench.receiver.said[1:] == [("B", "trigger")]


def test_retry_after_is_a_floor_not_a_ceiling() -> None:
    bench = Bench(Script(*[LATER] * 9, limited(0.0)), row(), jitter=1.0)
    for _ in range(9):
        bench.now = bench.step() or 0.0
    assert (bench.step() or 0.0) - bench.now == 60.0


def test_another_alert_does_not_wait_for_one_that_fails() -> None:
    bench = Bench(Script(LATER), row("A"), row("A", Action.RESOLVE), row("B"))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("B", "trigger")]
    bench.now += 60
    bench.step()
    assert bench.receiver.said[2:] == [("A", "trigger"), ("A", "resolve")]


def test_pages_go_before_warnings_that_waited_longer() -> None:
    warnings = [row(f"W{n}", severity=Severity.WARNING) for n in range(30)]
    bench = Bench(Script(), *warnings, row("P"))
    bench.step()
    assert bench.receiver.said[0] == ("P", "trigger")
    assert [alert for alert, _ in bench.receiver.said[1:]] == [f"W{n}" for n in range(30)]


def test_a_paced_receiver_gets_one_message_a_second_and_the_first_at_once() -> None:
    bench = Bench(Script(), row("A"), row("B"), row("C"), pace=1.0)
    times = []
    bench.receiver.meanwhile = lambda: times.append(bench.now - START)
    while (again := bench.step()) is not None:
        bench.now = again
    assert times == [0.0, 1.0, 2.0]


def test_a_clock_that_was_set_back_before_a_start_holds_no_row() -> None:
    """The row says when it is due by a clock that was ahead."""
    bench = Bench(Script(LATER), row("A"))
    bench.step()
    bench.now -= 900.0
    bench.start()
    assert bench.step() == bench.now + 60.0
    bench.now += 60.0
    assert bench.step() is None
    assert bench.receiver.said == [("A", "trigger"), ("A", "trigger")]


def test_stored_errors_are_redacted() -> None:
    bench = Bench(Script(REFUSED._replace(detail="key hunter2hunter2")), row())
    bench.step()
    assert bench.row().error == "rejected: key [redacted]"


def drain(receiver: Script, queue: DeliveryQueue) -> None:
    """All that a worker does until nothing is left, on a clock that jumps to whatever is next."""
    clock = START
    worker = DeliveryWorker(receiver, queue, clock=lambda: clock, jitter=lambda: 0.9)
    while (again := worker.step(clock)) is not None:
        clock = max(clock, again)


def test_n03_a_failing_receiver_causes_no_resend_to_a_healthy_one() -> None:
    vector = alerting()["N03"]
    queue = MemoryQueue()
    assert vector["config"]["receivers"] == ["ok", "flaky"]
    queue.insert([row(receiver="ok"), row(receiver="flaky")])
    receivers = [Script(name="ok"), Script(LATER, LATER, name="flaky")]
    for receiver in receivers:
        drain(receiver, queue)
    assert [len(receiver.sent) for receiver in receivers] == [1, 3]


def test_n05_recoverable_and_final() -> None:
    cases = [case for case in alerting()["N05"]["cases"] if "first_attempt" in case]
    assert len(cases) == 2
    for case in cases:
        outcomes = {"recoverable_error": LATER, "unrecoverable_error": REFUSED, "ok": OK}
        bench = Bench(Script(*(outcomes[case[key]] for key in ("first_attempt", "second_attempt") if key in case)), row())
        while (again := bench.step()) is not None:
            bench.now = again
        wanted = DeliveryStatus.SENT if case["result"] == "success" else DeliveryStatus.FAILED
        assert (bench.row().status, bench.row().attempts) == (wanted, case["attempts"])

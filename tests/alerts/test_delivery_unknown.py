"""What becomes of an attempt of which nobody knows whether it arrived: looked for, repeated, or ended."""

from __future__ import annotations

from alerts.model import Action, DeliveryStatus
from tests.kit.delivering import LATER, LOST, OK, REFUSED, START, Bench, Script, row


def test_a_resolve_whose_trigger_may_have_arrived_is_sent() -> None:
    bench = Bench(Script(LOST, REFUSED), row(), row(action=Action.RESOLVE))
    bench.step()
    bench.now += 60
    bench.step()
    assert bench.row().status is DeliveryStatus.FAILED
    assert bench.row(action=Action.RESOLVE).status is DeliveryStatus.SENT


def test_an_ambiguous_attempt_that_arrived_is_not_repeated() -> None:
    bench = Bench(Script(LOST), row())
    bench.receiver.looks = [OK._replace(remote="found")]
    bench.step()
    assert bench.row().ambiguous
    bench.now += 60
    bench.step()
    assert len(bench.receiver.sent) == 1
    done = bench.row()
    assert (done.status, done.remote, done.ambiguous) == (DeliveryStatus.SENT, "found", False)
    assert bench.seen == ["timeout", "reconciled"]


def test_an_ambiguous_attempt_that_cannot_be_found_is_repeated_and_says_so() -> None:
    bench = Bench(Script(LOST), row())
    bench.step()
    bench.now += 60
    bench.step()
    assert [sent.ambiguous for sent in bench.receiver.sent] == [False, True]
    assert len(bench.receiver.looked) == 1
    assert bench.row().status is DeliveryStatus.SENT


def test_one_looks_three_times_and_then_speaks() -> None:
    bench = Bench(Script(LOST), row(), jitter=1.0)
    bench.receiver.looks = [LATER, LATER, LATER, LATER]
    while (again := bench.step()) is not None:
        bench.now = again
    assert (len(bench.receiver.looked), len(bench.receiver.sent)) == (3, 2)
    assert bench.row().status is DeliveryStatus.SENT


def test_a_crash_in_the_middle_of_an_attempt() -> None:
    bench = Bench(Script(), row(), row(action=Action.RESOLVE))
    bench.queue.begin(bench.queue.due("chat", START, 1)[0])  # and then the lights went out
    bench.start()
    bench.receiver.looks = [OK]
    bench.step()
    assert bench.receiver.said == [("A", "resolve")], "the trigger was found in the channel"
    assert bench.row().attempts == 2


def test_a_receiver_that_raises_costs_neither_the_row_nor_the_worker() -> None:
    bench = Bench(Script(RuntimeError("hunter2hunter2")), row("A"), row("B"))
    bench.step()
    assert bench.row("B").status is DeliveryStatus.SENT
    broken = bench.row("A")
    assert (broken.status, broken.ambiguous) == (DeliveryStatus.PENDING, True)
    assert broken.error == "bug: RuntimeError: [redacted]"

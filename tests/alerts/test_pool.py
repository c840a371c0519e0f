"""The workers together: isolation, waking, receivers that left, stopping. Real threads, no clocks that run."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from alerts.delivery import DeliveryWorker
from alerts.memory import MemoryQueue
from alerts.model import Delivery, DeliveryStatus, Outcome
from alerts.pool import REMOVED, DeliveryPool, Lane
from tests.kit.delivering import START, row
from tests.kit.services import PATIENCE

TIMEOUT = PATIENCE


class Gate:
    """A receiver that waits for `open` before it answers, and says when something has come in and when it is out."""

    scope = "alert"

    def __init__(self, name: str, *, is_open: bool = True) -> None:
        self.name = name
        self.open = threading.Event()
        if is_open:
            self.open.set()
        self.entered = threading.Event()
        self.sent: list[str] = []
        self.closed = False

    def send(self, delivery: Delivery) -> Outcome:
        self.entered.set()
        self.open.wait(TIMEOUT)
        self.sent.append(delivery.event.alert)
        return Outcome(ok=True, reason="ok")

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        self.closed = True


class Room:
    """A pool with its queue; `seen` wakes whoever waits for outcomes."""

    def __init__(self, *receivers: Gate, leftover: tuple[str, ...] = ()) -> None:
        self.queue = MemoryQueue()
        self.outcomes: list[tuple[str, str]] = []
        self.failed: list[str] = []
        self._news = threading.Condition()

        def observe(delivery: Delivery, outcome: Outcome, finished_at: float) -> None:
            with self._news:
                self.outcomes.append((delivery.receiver, outcome.reason))
                self._news.notify_all()

        self.pool = DeliveryPool(
            [Lane(receiver) for receiver in receivers],
            self.queue,
            clock=lambda: START,
            jitter=lambda: 0.5,
            observe=observe,
            on_failed=lambda delivery: self.failed.append(delivery.receiver),
            leftover=leftover,
        )

    def commit(self, *rows: Delivery) -> None:
        """As the pipeline does it."""
        self.queue.insert(rows)
        self.pool.notify({each.receiver for each in rows})

    def wait_for(self, *outcomes: tuple[str, str]) -> None:
        with self._news:
            assert self._news.wait_for(lambda: all(one in self.outcomes for one in outcomes), TIMEOUT), self.outcomes


@pytest.fixture
def rooms() -> Iterator[list[Room]]:
    made: list[Room] = []
    yield made
    for room in made:
        assert room.pool.stop(TIMEOUT)


def test_rows_that_wait_at_start_and_rows_that_come_later(rooms: list[Room]) -> None:
    chat = Gate("chat")
    room = Room(chat)
    rooms.append(room)
    room.queue.insert([row("A")])
    room.pool.start()
    room.wait_for(("chat", "ok"))
    room.outcomes.clear()
    room.commit(row("B"))
    room.wait_for(("chat", "ok"))
    assert chat.sent == ["A", "B"]


def test_a_receiver_that_hangs_delays_no_other(rooms: list[Room]) -> None:
    stuck, chat = Gate("stuck", is_open=False), Gate("chat")
    room = Room(stuck, chat)
    rooms.append(room)
    room.pool.start()
    room.commit(row("A", receiver="stuck"), row("A"))
    assert stuck.entered.wait(TIMEOUT)
    room.wait_for(("chat", "ok"))
    room.commit(row("B", receiver="stuck"), row("B"))
    room.wait_for(("chat", "ok"))
    assert stuck.sent == []
    stuck.open.set()
    room.wait_for(("stuck", "ok"))


def test_rows_of_a_receiver_that_left_fail_visibly(rooms: list[Room]) -> None:
    room = Room(Gate("chat"), leftover=("chat", "gone"))
    rooms.append(room)
    room.queue.insert([row("A", receiver="gone")])
    room.pool.start()
    room.wait_for(("gone", REMOVED))
    (left,) = room.queue.rows()
    assert left.status is DeliveryStatus.FAILED
    assert left.error == "receiver_removed: no receiver named 'gone' is configured any more"
    assert room.failed == ["gone"]


def test_a_name_that_nobody_knows_fails_as_well(rooms: list[Room]) -> None:
    room = Room(Gate("chat"))
    rooms.append(room)
    room.pool.start()
    room.commit(row("A", receiver="unheard-of"))
    room.wait_for(("unheard-of", REMOVED))


def test_a_pool_that_was_never_started_stops() -> None:
    chat = Gate("chat")
    room = Room(chat)
    room.pool.notify(["chat", "new"])
    assert room.pool.stop(TIMEOUT)
    assert chat.closed


def test_stop_waits_for_the_attempt_under_way() -> None:
    chat = Gate("chat", is_open=False)
    room = Room(chat)
    room.pool.start()
    room.commit(row("A"), row("B"))
    assert chat.entered.wait(TIMEOUT)
    opener = threading.Thread(target=chat.open.set)
    opener.start()
    assert room.pool.stop(TIMEOUT)
    opener.join()
    assert room.queue.rows()[0].status is DeliveryStatus.SENT
    assert chat.closed


def test_stop_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    stuck = Gate("stuck", is_open=False)
    room = Room(stuck)
    room.pool.start()
    room.commit(row("A", receiver="stuck"))
    assert stuck.entered.wait(TIMEOUT)
    assert not room.pool.stop(0.0)
    assert "deliver-stuck" in caplog.text
    assert room.queue.interrupted("stuck"), "the next start will find it and look"
    stuck.open.set()
    assert room.pool.stop(TIMEOUT)


class Late(Gate):
    """It took the message, and its answer is lost."""

    def send(self, delivery: Delivery) -> Outcome:
        super().send(delivery)
        return Outcome(ok=False, retry=True, reason="timeout", ambiguous=True)


def test_a_worker_that_outlasts_its_pool_does_not_have_its_message_sent_a_third_time() -> None:
    """A reload while a receiver hangs: the next pool looks into the row and sends it; then the first attempt comes back."""
    hanging = Late("chat", is_open=False)
    first = Room(hanging)
    first.queue.insert([row()])
    first.pool.start()
    assert hanging.entered.wait(TIMEOUT)
    assert not first.pool.stop(0.0)

    chat = Gate("chat")
    worker = DeliveryWorker(chat, first.queue, clock=lambda: START, jitter=lambda: 0.0)
    while worker.step(START) == START:
        continue
    assert [(found.status, found.attempts) for found in first.queue.rows()] == [(DeliveryStatus.SENT, 2)]
    hanging.open.set()
    first.wait_for(("chat", "timeout"))
    assert [(found.status, found.attempts) for found in first.queue.rows()] == [(DeliveryStatus.SENT, 2)]
    assert first.pool.stop(TIMEOUT)


def test_a_receiver_that_cannot_be_closed_keeps_no_other_open() -> None:
    class Broken(Gate):
        def close(self) -> None:
            raise OSError("no")

    chat = Gate("chat")
    room = Room(Broken("a"), chat)
    room.pool.start()
    assert room.pool.stop(TIMEOUT)
    assert chat.closed

"""The loop of a delivery worker's thread: how long it sleeps, a store that is away, the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from alerts.delivery import DeliveryWorker
from alerts.memory import MemoryQueue
from alerts.model import Delivery, DeliveryStatus, Root
from alerts.ports import DeliveryQueue
from tests.kit.delivering import OK, START, Script, row


class Flaky:
    """A queue whose store is away for the first calls."""

    def __init__(self, queue: MemoryQueue, broken: int) -> None:
        self._queue = queue
        self.broken = broken

    def _check(self) -> None:
        if self.broken:
            self.broken -= 1
            raise OSError("disk hunter2hunter2")

    def due(self, receiver: str, now: float, limit: int) -> Sequence[Delivery]:
        self._check()
        return self._queue.due(receiver, now, limit)

    def next_due_at(self, receiver: str) -> float | None:
        return self._queue.next_due_at(receiver)

    def begin(self, delivery: Delivery) -> None:
        self._queue.begin(replace(delivery))  # an implementation need not count on the object that it is given

    def finish(self, delivery: Delivery) -> None:
        self._check()
        self._queue.finish(delivery)

    def delivered(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        return self._queue.delivered(receiver, incident, fingerprint, episode)

    def ending(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        return self._queue.ending(receiver, incident, fingerprint, episode)

    def beginning(self, receiver: str, incident: str, fingerprint: str, episode: int) -> Delivery | None:
        return self._queue.beginning(receiver, incident, fingerprint, episode)

    def root(self, receiver: str, dedup_key: str, incident: str) -> Root | None:
        return self._queue.root(receiver, dedup_key, incident)

    def held(self, receiver: str) -> Sequence[Delivery]:
        return self._queue.held(receiver)

    def ended(self, receiver: str, since: float) -> Sequence[Delivery]:
        return self._queue.ended(receiver, since)

    def interrupted(self, receiver: str) -> Sequence[Delivery]:
        return self._queue.interrupted(receiver)


class Waits(threading.Event):
    """A wake-up whose waiting takes no time: it moves the clock, and stops the worker when nothing is left to wait for."""

    def __init__(self, stop: threading.Event, clock: list[float], limit: float) -> None:
        super().__init__()
        self._stop = stop
        self._clock = clock
        self._limit = limit
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        self._clock[0] += timeout or 0.0
        if self._clock[0] >= self._limit:
            self._stop.set()
        return False


def run(receiver: Script, queue: DeliveryQueue, seconds: float) -> list[float | None]:
    """The worker's loop for so many seconds of its clock; the pauses it made."""
    clock, stop = [START], threading.Event()
    wake = Waits(stop, clock, START + seconds)
    worker = DeliveryWorker(
        receiver,
        queue,
        clock=lambda: clock[0],
        jitter=lambda: 0.5,
        wake=wake,
        redact=lambda text: text.replace("hunter2hunter2", "[redacted]"),
    )
    worker.run(stop)
    return wake.pauses


def test_the_loop_sleeps_until_something_is_due_and_no_longer_than_a_minute() -> None:
    queue = MemoryQueue()
    queue.insert([row(), row("B", not_before=START + 90.0)])
    receiver = Script()
    pauses = run(receiver, queue, 200.0)
    assert pauses == [60.0, 30.0, 60.0, 60.0]
    assert receiver.said == [("A", "trigger"), ("B", "trigger")]


def test_a_store_that_is_away_pauses_the_loop_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    memory = MemoryQueue()
    memory.insert([row()])
    receiver = Script()
    run(receiver, Flaky(memory, 3), 100.0)
    assert len(receiver.sent) == 1
    assert (memory.rows()[0].status, memory.rows()[0].attempts) == (DeliveryStatus.SENT, 1)
    assert caplog.text.count("OSError: disk [redacted]") == 3


def test_an_outcome_that_could_not_be_written_is_unknown() -> None:
    memory = MemoryQueue()
    memory.insert([row()])
    queue = Flaky(memory, 0)
    receiver = Script()

    def break_the_store() -> None:
        queue.broken = 1
        receiver.meanwhile = lambda: None

    receiver.meanwhile = break_the_store
    receiver.looks = [OK]
    run(receiver, queue, 100.0)
    assert (len(receiver.sent), len(receiver.looked)) == (1, 1)
    assert memory.rows()[0].status is DeliveryStatus.SENT


def test_stop_ends_the_loop_between_two_rows() -> None:
    queue = MemoryQueue()
    queue.insert([row("A"), row("B")])
    receiver = Script()
    stop = threading.Event()
    receiver.meanwhile = stop.set
    DeliveryWorker(receiver, queue, clock=lambda: START, jitter=lambda: 0.5).run(stop)
    assert receiver.said == [("A", "trigger")]

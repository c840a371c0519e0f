"""What /metrics says of deliveries, by the worker's own accounts of what became of its rows."""

from __future__ import annotations

import pytest

from alerts.delivery import DeliveryWorker
from alerts.memory import MemoryQueue
from alerts.model import Action, Delivery, Outcome
from collector import health
from collector.health import DELIVERY_BOUNDS, Health
from service import delivery_figures
from tests.kit.receivers import delivery

START = 1_000.0
OK = Outcome(ok=True, reason="ok")
AWAY = Outcome(ok=False, retry=True, reason="server_error", detail="HTTP 503")


class Chat:
    """A receiver that answers by script, each time `takes` seconds later."""

    name, scope = "chat", "alert"

    def __init__(self, *outcomes: Outcome, takes: float) -> None:
        self.outcomes = list(outcomes)
        self.takes = takes
        self.now = START

    def send(self, row: Delivery) -> Outcome:
        self.now += self.takes
        return self.outcomes.pop(0)

    def reconcile(self, row: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        """Nothing to close."""


def counted(own: Health, ended: str) -> tuple[int, float]:
    """How many attempts ended so, and their seconds since the commit, in all."""
    found = own.histograms(health.DELIVERY)["chat", ended]
    return sum(found.counts), found.sum


def delivered(chat: Chat, *rows: Delivery) -> Health:
    """The figures after a worker has done with these rows; it waits half a second after the first failure."""
    own, queue = Health(), MemoryQueue()
    queue.insert(rows)
    worker = DeliveryWorker(
        chat,
        queue,
        clock=lambda: chat.now,
        jitter=lambda: 0.5,
        observe=lambda row, outcome, at: delivery_figures.observe(own, row, outcome, at),
    )
    while (again := worker.step(chat.now)) is not None:
        chat.now = max(chat.now, again)
    return own


def test_from_commit_to_answer_with_all_that_it_waited() -> None:
    chat = Chat(AWAY, OK, takes=0.25)
    own = delivered(chat, delivery(created_at=START - 2.0))
    assert counted(own, "server_error") == (1, 2.25)
    assert counted(own, "ok") == (1, 3.0)  # 2 s until it was begun, two attempts of 0.25 s, and half a second between them
    assert own.values(health.DELIVERIES) == {("chat", "server_error"): 1.0, ("chat", "ok"): 1.0}


def test_what_nobody_was_asked_has_no_time() -> None:
    needless = delivery(action=Action.UPDATE, created_at=START)
    own = delivered(Chat(takes=0.25), needless)
    assert own.values(health.DELIVERIES) == {("chat", "skipped"): 1.0}
    assert own.histograms(health.DELIVERY) == {}


def test_a_commit_by_a_clock_that_ran_ahead_is_no_negative_time() -> None:
    own = delivered(Chat(OK, takes=0.25), delivery(created_at=START + 30.0))
    assert counted(own, "ok") == (1, 0.0)


def test_receivers_are_there_before_the_first_message() -> None:
    own = Health()
    delivery_figures.expect(own, ["chat", "pager"])
    assert own.values(health.DELIVERIES) == {("chat", "ok"): 0.0, ("pager", "ok"): 0.0}
    assert counted(own, "ok") == (0, 0.0)


@pytest.mark.parametrize("seconds", [0.25, 10.0, 300.0])
def test_the_promise_a_timeout_and_what_is_late_are_bounds(seconds: float) -> None:
    """p99 under 250 ms, the patience of one attempt, and TocsinDeliveryLate: each can be told exactly."""
    assert seconds in DELIVERY_BOUNDS

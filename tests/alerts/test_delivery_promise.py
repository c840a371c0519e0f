"""The promise, whatever the network does and whenever the process is killed: told the end if and only if told the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.delivery import DeliveryWorker
from alerts.identity import incident_key
from alerts.memory import MemoryQueue
from alerts.model import Action, Delivery, DeliveryStatus, Outcome
from tests.kit.delivering import LATER, LOST, OK, REFUSED, START, row


class World:
    """What really arrives at a receiver, whatever it answers; the process may be killed at any point of an attempt."""

    scope = "alert"
    name = "chat"

    def __init__(self, fates: Sequence[str], finds: bool) -> None:
        self._fates = list(fates)
        self._finds = finds
        self.arrived: list[Delivery] = []

    def send(self, delivery: Delivery) -> Outcome:
        fate = self._fates.pop(0) if self._fates else "ok"
        if fate in ("ok", "lost answer", "killed after"):
            self.arrived.append(delivery)
        if fate.startswith("killed"):
            raise KeyboardInterrupt
        return {"ok": OK, "lost answer": LOST, "lost request": LOST, "later": LATER, "refused": REFUSED}[fate]

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return OK if self._finds and any(delivery.id == other.id for other in self.arrived) else None

    def close(self) -> None: ...


@settings(max_examples=150)
@given(st.lists(st.sampled_from(["ok", "lost answer", "lost request", "later", "refused", "killed before"]), max_size=8))
def test_a_page_is_closed_if_and_only_if_it_may_have_been_opened(fate: list[str]) -> None:
    """Three alerts add themselves to one page; whichever of its rows arrived, the end is said once."""
    page: dict[str, Any] = {"dedup_key": incident_key("r#1"), "fingerprint": "opener"}
    queue = MemoryQueue()
    queue.insert([*(row(f"A{n}", **page) for n in range(3)), row("A2", Action.RESOLVE, **page)])
    world = World(fate, finds=False)
    live(world, queue)
    *triggers, end = queue.rows()
    may_have_arrived = any(each.status is DeliveryStatus.SENT or each.ambiguous for each in triggers)
    assert (end.status is DeliveryStatus.SKIPPED) == (not may_have_arrived)
    if any(each.action is Action.TRIGGER for each in world.arrived):
        assert end.status is DeliveryStatus.FAILED or world.arrived[-1].action is Action.RESOLVE


def live(world: World, queue: MemoryQueue) -> None:
    """Processes, one after the other, until nothing is left to send."""
    clock = [START]

    def process() -> DeliveryWorker:
        return DeliveryWorker(world, queue, clock=lambda: clock[0], jitter=lambda: 0.5)

    worker = process()
    again: float | None = START
    while again is not None:
        clock[0] = max(clock[0], again)
        try:
            again = worker.step(clock[0])
        except KeyboardInterrupt:  # kill -9, and a new process
            worker = process()


fates = st.sampled_from(["ok", "lost answer", "lost request", "later", "refused", "killed before", "killed after"])


@settings(max_examples=200)
@given(st.lists(fates, max_size=12), st.booleans(), st.integers(1, 3))
def test_told_the_end_if_told_the_beginning(fate: list[str], finds: bool, alerts: int) -> None:
    rows = [row(f"A{n}", action) for n in range(alerts) for action in (Action.TRIGGER, Action.RESOLVE)]
    queue = MemoryQueue()
    queue.insert(rows)
    world = World(fate, finds)
    live(world, queue)
    by_id = {each.id: each for each in queue.rows()}
    heard = [each.id for each in world.arrived]
    for trigger, resolve in zip(rows[::2], rows[1::2], strict=True):
        assert by_id[trigger.id].status in (DeliveryStatus.SENT, DeliveryStatus.FAILED)
        ended = by_id[resolve.id]
        if trigger.id in heard and ended.status is not DeliveryStatus.FAILED:
            assert ended.status is DeliveryStatus.SENT and resolve.id in heard, "told, so told the end"
        if by_id[trigger.id].status is DeliveryStatus.FAILED and not by_id[trigger.id].ambiguous:
            assert resolve.id not in heard, "surely not told, so told nothing"
        if resolve.id in heard and trigger.id in heard:
            assert max(n for n, h in enumerate(heard) if h == trigger.id) < heard.index(resolve.id), "in order"
        if finds:
            assert heard.count(trigger.id) <= 1 and heard.count(resolve.id) <= 1, "one who can look says nothing twice"

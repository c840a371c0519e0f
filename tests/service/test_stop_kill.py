"""A request to stop and death at any statement: it reaches the job, it is one and the same, and not again after its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import event as sqlalchemy_event

from alerts.delivery import DeliveryWorker
from alerts.model import DeliveryStatus, Outcome
from collector.sources.memory import MemoryLog
from service import control, stop_requests
from service.control import Control
from service.stop_requests import RECEIVER
from service.store.store import Store
from tests.kit.pipelines import Bench, end, engine
from tests.kit.stopping import RULES, bad, fine, opened
from tocsin.control import StopRequest

STEPS = 12


class Killed(BaseException):
    """Stands for the death of the process within it."""


class World:
    """A job that answers what it has heard in its next record, and what outlives a collector: the log and the store."""

    def __init__(self, store: Store, answers: bool) -> None:
        self.store = store
        self.log = MemoryLog(lambda: 0.0)
        self.heard: list[StopRequest] = []
        self.answered_at = 0
        """How many messages had come when the job's answer was stored."""
        self.statements = 0
        self.sent_after = 0
        """How many statements had been made when the first message left."""
        self._answers = answers
        self.log.push(opened())

    def send(self, request: StopRequest) -> Outcome:
        self.heard.append(request)
        self.sent_after = self.sent_after or self.statements
        return Outcome(ok=True, reason="ok")

    def close(self) -> None:
        """Nothing to let go of."""

    def step(self, number: int) -> None:
        """What the job logs: it is sick from its third step on."""
        ack = self.heard[-1].id if self.heard and self._answers else ""
        self.log.push(
            bad(number, ack=ack) if number >= 3 else fine(number),
            received_at=10.0 * number,
        )

    def collector(self) -> tuple[Bench, DeliveryWorker]:
        """A new process."""
        bench = Bench(
            store=self.store,
            log=self.log,
            rules=engine(RULES),
            stops=True,
            own=False,
            batch=1,
        )

        def newest(run: str) -> stop_requests.Stop | None:
            return control.newest(self.store, [run]).get(run)

        worker = DeliveryWorker(
            Control(self, newest, lambda: bench.now),
            self.store.deliveries,
            clock=lambda: 0.0,
            jitter=_none,
        )
        return bench, worker

    def note(self) -> None:
        stop = control.newest(self.store, ["r"]).get("r")
        if stop is not None and stop.acknowledged_at is not None and not self.answered_at:
            self.answered_at = len(self.heard)


def _none() -> float:
    return 0.0


def _live(world: World, kills: list[int], *, waits: bool = True) -> tuple[Bench, int]:
    """The job runs, the collector dies after so many statements of each of its lives, and the job `waits` for the next one or
    goes on meanwhile. Returns the statements of the last life."""
    left = list(kills)
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1
        world.statements += 1
        if left and seen >= left[0]:
            left.pop(0)
            seen = 0
            raise Killed

    engine_ = world.store.database.engine
    for name in ("before_cursor_execute", "commit"):
        sqlalchemy_event.listen(engine_, name, count)
    try:
        number = 0
        life: tuple[Bench, DeliveryWorker] | None = None
        while number <= STEPS or life is None:
            try:
                if life is None:
                    life = world.collector()
                bench, worker = life
                bench.now = 10.0 * number
                bench.events += bench.read()
                world.note()
                while worker.step(0.0) == 0.0:
                    pass
            except Killed:
                life = None
                if waits:
                    continue
            number += 1
            if number <= STEPS:
                world.step(number)
        assert life is not None
        return life[0], seen
    finally:
        for name in ("before_cursor_execute", "commit"):
            sqlalchemy_event.remove(engine_, name, count)


@contextmanager
def _store() -> Iterator[Store]:
    """In a file: a death takes a database in memory with it."""
    with (
        TemporaryDirectory() as folder,
        Store(f"sqlite:///{folder}/tocsin.db") as store,
    ):
        yield store


def _statements() -> tuple[int, int]:
    with _store() as store:
        world = World(store, answers=True)
        return _live(world, [])[1], world.sent_after + 1


_POINTS, _SENT = _statements()
"""How many there are, and which is the one that would note that the request was sent."""


@given(kills=st.lists(st.integers(1, _POINTS), min_size=1, max_size=4), waits=st.booleans())
@settings(max_examples=40)
@example(kills=[1, 1, 1, 1], waits=True)
@example(kills=[_SENT], waits=False)
def test_a_request_survives_death_and_its_answer_ends_it(kills: list[int], waits: bool) -> None:
    with _store() as store:
        world = World(store, answers=True)
        _live(world, kills, waits=waits)
        assert len({request.id for request in world.heard}) == 1, "one request, however often it was sent"
        assert len(world.heard) <= 1 + len(kills)
        assert world.answered_at == len(world.heard) > 0, "none after the answer"
        stop = control.newest(store, ["r"])["r"]
        assert stop.request == world.heard[-1] and stop.acknowledged_at is not None and not stop.firing
        assert "StopUnacknowledged" not in [row.event.alert for row in store.alerts()]
        assert not [row for row in store.deliveries.due(RECEIVER, 1e9, 10)]
        # Killed before it noted that it was sent, it finds the answer when it looks again.
        assert store.deliveries.status(RECEIVER, stop.incident, stop.fingerprint, 1) in (
            DeliveryStatus.SENT,
            DeliveryStatus.SKIPPED,
        )


@given(kills=st.lists(st.integers(1, _POINTS), min_size=1, max_size=4))
@settings(max_examples=20)
def test_the_page_about_a_deaf_job_survives_death_and_comes_once(
    kills: list[int],
) -> None:
    with _store() as store:
        world = World(store, answers=False)
        bench, _ = _live(world, kills)
        assert len({request.id for request in world.heard}) == 1
        found = [row.event for row in store.alerts() if row.event.alert == stop_requests.UNACKNOWLEDGED]
        # Asked at step 3; what comes at least five seconds later counts, but for the first record in a collector's life.
        assert [(event.state.value, event.step <= 6 + len(kills)) for event in found] == [("firing", True)]
        bench.push(end("r", STEPS))
        bench.read()
        last = store.alerts()[0].event
        assert (last.alert, last.state.value) == (
            stop_requests.UNACKNOWLEDGED,
            "resolved",
        )
        rows: list[Any] = list(store.deliveries.due("console", 1e9, 100))
        assert len({row.id for row in rows}) == len(rows)


def test_the_story_has_what_it_should() -> None:
    with _store() as store:
        world = World(store, answers=True)
        _live(world, [])
        assert [request.step for request in world.heard] == [3]
        assert control.newest(store, ["r"])["r"].acknowledged_step == 4
        assert _POINTS > 100

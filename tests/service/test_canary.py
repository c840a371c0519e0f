"""The canary on a real store, with a book, workers and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from alerts.canary import CanaryEntry
from alerts.config import parse_config
from alerts.delivery import DeliveryWorker
from alerts.incidents import NO_BRIEFS, IncidentBook, Plan
from alerts.model import Delivery, Outcome
from collector import health
from rules.config_errors import ConfigErrors
from service.canary import Canary
from service.pending import Pending
from service.store import schema
from service.store.store import Store
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import steps
from tests.kit.receivers import tools
from tests.kit.running import Bench

FILE = """
receivers:
  chat: {kind: console}
  oncall: {kind: console}
  bystander: {kind: console}
default: bystander
routes:
  - receiver: bystander
canary: {receiver: chat, tell: oncall, every: 1h, within: 5m}
"""
OK = Outcome(ok=True, reason="ok")
LATER = Outcome(ok=False, retry=True, reason="unreachable", detail="x")
REFUSED = Outcome(ok=False, reason="rejected", detail="HTTP 403")


class Receiver:
    scope = "alert"

    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told
        self.answer = OK

    def send(self, delivery: Delivery) -> Outcome:
        if self.answer.ok:
            self.told.append(f"{self.name}: {delivery.action} {delivery.event.alert} {delivery.event.reason}")
        return self.answer

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None: ...


class World:
    """A collector's share of it: `pass_time` is the clock, the pipeline's ticks and the workers."""

    def __init__(self, url: str) -> None:
        self.now = 1_000_000.0
        self.told: list[str] = []
        self.config = parse_config(FILE, "alerts.yaml", tools())
        self.receivers = {name: Receiver(name, self.told) for name in self.config.settings}
        self.store = Store(url)
        self.start()

    def start(self) -> None:
        """A new process."""
        self.book = IncidentBook(self.config.router, self.config.reach)
        self.canary = Canary("tocsin", self.book, self.store, self.config.canary)
        self.canary.restore()
        self.workers = [
            DeliveryWorker(receiver, self.store.deliveries, clock=lambda: self.now, jitter=lambda: 0.5)
            for receiver in self.receivers.values()
        ]

    def tick(self) -> None:
        pending = Pending({})
        self.canary.tick(pending, self.now)
        if pending:
            self.store.commit(pending.commit(self.now, 200)[0])
        for worker in self.workers:
            while worker.step(self.now) == self.now:
                pass

    def pass_time(self, seconds: float, step: float = 60.0) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            self.tick()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(f"sqlite:///{tmp_path / 'tocsin.db'}")
    yield made
    made.store.close()


SENT = "chat: trigger TocsinCanary a test: nothing is wrong"
LANDED = "chat: resolve TocsinCanary it arrived"


def test_it_goes_the_whole_way_at_start_and_every_hour_past_all_routes(world: World) -> None:
    world.tick()
    assert world.told == [SENT]
    world.tick()
    assert world.told == [SENT, LANDED]
    world.pass_time(3_500.0)
    assert len(world.told) == 2
    world.pass_time(300.0)
    assert world.told == [SENT, LANDED] * 2
    age = world.canary.age(world.now)
    assert age is not None and age.receiver == "chat" and 0.0 <= age.seconds < 300.0
    assert [incident.closed_at is not None for incident in world.store.incidents("tocsin.canary")] == [True]


def test_one_that_does_not_arrive_is_told_elsewhere_and_so_is_the_end_of_it(world: World) -> None:
    world.receivers["chat"].answer = LATER
    world.pass_time(360.0)
    lost = "the test alert did not get through: chat did not take it within 5m"
    assert world.told == [f"oncall: trigger TocsinCanaryLost {lost}"]
    world.pass_time(7_200.0)
    assert len(world.told) == 1, "once, however long it takes"
    world.receivers["chat"].answer = OK
    world.pass_time(180.0)
    after = world.told[1:]
    assert after[:2] == [SENT, LANDED]
    assert after.count("oncall: resolve TocsinCanaryLost chat gets alerts again") == 1
    assert after.count(SENT) == after.count(LANDED) == 2, "the next one had been due for long"
    world.pass_time(600.0)
    assert {incident.closed_at is not None for incident in world.store.incidents("tocsin.canary")} == {True}


def test_one_that_is_refused_is_told_at_once_and_tried_again_in_an_hour(world: World) -> None:
    world.receivers["chat"].answer = REFUSED
    world.tick()
    world.tick()
    refused = "oncall: trigger TocsinCanaryLost the test alert did not get through: chat refused it for good"
    assert world.told == [refused]
    world.pass_time(7_300.0)
    assert world.told == [refused]
    world.receivers["chat"].answer = OK
    world.pass_time(3_700.0)
    assert world.told[1] == SENT and "oncall: resolve TocsinCanaryLost chat gets alerts again" in world.told


def test_a_restart_goes_on_with_the_one_that_flies_and_then_sends_its_own(world: World) -> None:
    world.receivers["chat"].answer = LATER
    world.tick()
    world.start()
    world.pass_time(120.0)
    assert world.told == []
    world.receivers["chat"].answer = OK
    world.pass_time(300.0)
    assert world.told == [SENT, LANDED] * 2
    world.receivers["chat"].answer = LATER
    world.pass_time(4_000.0)
    world.start()
    world.pass_time(60.0)
    assert len([line for line in world.told if "Lost" in line]) == 1, "a restart does not page again"


@pytest.mark.parametrize("planned", [True, False], ids=["with a row of its own", "without"])
def test_one_that_lost_its_state_takes_no_earlier_row_for_its_own(world: World, planned: bool) -> None:
    """It counts its episodes anew: what arrived as the first one, in an incident that is over, says nothing of this one."""
    world.tick()
    world.tick()
    assert world.told == [SENT, LANDED]
    with world.store.database.write() as connection:
        connection.execute(delete(schema.rule_state).where(schema.rule_state.c.run == "tocsin.canary"))
    world.start()
    world.receivers["chat"].answer = LATER
    if not planned:
        world.book.apply = lambda events, now, briefs=NO_BRIEFS: Plan()  # type: ignore[method-assign]  # as in the next test
    world.pass_time(120.0)
    assert world.canary.age(world.now) is None, "it has not arrived"
    assert world.told == [SENT, LANDED]


def test_a_silenced_one_says_nothing(world: World) -> None:
    world.book.apply = lambda events, now, briefs=NO_BRIEFS: Plan()  # type: ignore[method-assign]  # who plans no row, for whatever reason
    world.pass_time(4_000.0)
    assert world.told == []


def test_a_reload_without_it_ends_what_is_open(world: World) -> None:
    world.receivers["chat"].answer = LATER
    world.pass_time(400.0)
    world.canary.use(None)
    world.pass_time(120.0)
    assert world.told[-1] == "oncall: resolve TocsinCanaryLost there is no canary any more"
    assert world.canary.age(world.now) is None
    world.pass_time(7_200.0)
    assert len(world.told) == 2
    assert {incident.closed_at is not None for incident in world.store.incidents("tocsin.canary")} == {True}


def test_another_receiver_after_a_reload_is_tried_at_once(world: World) -> None:
    world.pass_time(120.0)
    world.canary.use(CanaryEntry(receiver="oncall", tell="chat"))
    before = len(world.told)
    world.tick()
    assert world.store.deliveries.backlog() == {}
    assert world.told[before:] == [SENT], "its route is that of the book, which is reloaded beside it"


def test_a_clock_that_is_set_back_does_not_put_the_next_one_off(world: World) -> None:
    world.pass_time(120.0)
    world.now -= 90_000.0
    world.pass_time(3_700.0)
    assert world.told == [SENT, LANDED] * 2


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{receiver: chat, tell: chat}", "others than the receiver"),
        ("{receiver: chat, tell: []}", "others than the receiver"),
        ("{receiver: chat, tell: oncal}", "no receiver is named 'oncal'"),
        ("{receiver: chatt, tell: oncall}", "no receiver is named 'chatt'"),
        ("{receiver: chat, tell: oncall, every: 5m}", "twice"),
        ("{receiver: chat, tell: oncall, within: 0s}", "at least 1s"),
    ],
)
def test_faults_are_found_at_load(entry: str, said: str) -> None:
    text = FILE.replace("{receiver: chat, tell: oncall, every: 1h, within: 5m}", entry)
    with pytest.raises(ConfigErrors) as refused:
        parse_config(text, "alerts.yaml", tools())
    (error,) = refused.value.errors
    assert said in str(error) and str(error).startswith("alerts.yaml:9:")


def test_in_a_running_collector(tmp_path: Path) -> None:
    bench = Bench(tmp_path, alerts=FILE)
    try:
        bench.told("WARNING tocsin.canary: TocsinCanary")
        bench.told("RESOLVED tocsin.canary: TocsinCanary")

        def ages() -> dict[Any, float]:
            return bench.running.health.values(health.CANARY)

        until(lambda: set(ages()) == {("chat",)}, "its age is shown")
        spooled(tmp_path, "tocsin.canary", steps("tocsin.canary", [1.0]))
        until(lambda: bench.running.health.values(health.REJECTED).get(("reserved_run",)) == 1, "its name is taken")
    finally:
        bench.running.stop()

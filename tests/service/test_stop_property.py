"""Whatever a job and its collector do in whatever order: at most one request in force, and a page that begins and ends."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from collector.model import RunStatus
from service import control, stop_requests
from service.stop_requests import Stop
from service.store.store import Store
from tests.kit.pipelines import Bench, end, engine
from tests.kit.stopping import GOOD_FOR, RULES, opened, row


class Asked(RuleBasedStateMachine):
    """One run: its records, its answers, its restarts and the collector's, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.bench = Bench(store=self.store, rules=engine(RULES), stops=True, own=False)
        self.attempt = 1
        self.step = 0
        self.ended = False
        self.ids: list[str] = []
        """Of all requests, in order."""
        self.last: Stop | None = None
        self.pages: list[str] = []

    def teardown(self) -> None:
        self.store.close()

    @initialize(opted=st.sampled_from(["pause", "checkpoint_and_stop", "pause", "ignore"]))
    def begin(self, opted: str) -> None:
        self.opted = opted
        self.told(opened(on_stop=opted))

    def told(self, record: bytes) -> None:
        before, self.last = self.last, None
        self.bench.push(record)
        events = self.bench.read()
        self.pages += [event.state.value for event in events if event.alert == stop_requests.UNACKNOWLEDGED]
        self.last = control.newest(self.store, ["r"]).get("r")
        if self.last is None or (before is not None and self.last.request.id == before.request.id):
            return
        assert before is None or not before.in_force(self.bench.now), "a second one while another is in force"
        assert self.last.request.id not in self.ids, "asked twice"
        stops = [event for event in events if event.severity.value == "stop" and event.state.value == "firing"]
        assert self.last.request.rule in [event.id for event in stops], "asked without an alert that begins"
        self.ids.append(self.last.request.id)

    @rule(norm=st.sampled_from([1.0, 20.0]), reward=st.sampled_from([1.0, 20.0]), answers=st.sampled_from(["", "newest", "no"]))
    def steps(self, norm: float, reward: float, answers: str) -> None:
        self.one_step(norm, reward, answers)

    def one_step(self, norm: float, reward: float, answers: str) -> None:
        self.step += 1
        self.bench.now += 10.0
        ack = {"": "", "no": "another", "newest": self.ids[-1] if self.ids else ""}[answers]
        if self.ended:
            self.attempt += 1
            self.ended = False
        record = row(self.step, ack=ack, attempt=self.attempt, time=self.bench.now, grad_norm=norm, reward_mean=reward)
        asked = list(self.ids)
        self.told(record)
        if answers == "newest" and asked and self.last is not None and self.last.request.id == asked[-1]:
            assert self.last.acknowledged_at is not None

    @rule(count=st.integers(2, 5), answers=st.sampled_from(["", "no"]))
    def is_sick_and_deaf(self, count: int, answers: str) -> None:
        for _ in range(count):
            self.one_step(20.0, 1.0, answers)

    @rule()
    def starts_again(self) -> None:
        self.attempt += 1
        self.step = max(0, self.step - 5)
        self.bench.now += 10.0
        self.ended = False
        self.told(opened(on_stop=self.opted, attempt=self.attempt, time=self.bench.now))

    @precondition(lambda self: not self.ended and self.step > 0)
    @rule()
    def ends(self) -> None:
        self.bench.now += 10.0
        self.ended = True
        record = json.loads(end("r", self.step, "failed")) | {"attempt": self.attempt, "time": self.bench.now}
        self.told(json.dumps(record).encode())

    @rule(seconds=st.sampled_from([1.0, GOOD_FOR / 2, GOOD_FOR]))
    def time_passes(self, seconds: float) -> None:
        self.bench.now += seconds
        self.bench.events += self.bench.pipeline.tick(self.bench.now).events

    @rule()
    def collector_restarts(self) -> None:
        self.bench = self.bench.restart()

    @invariant()
    def the_page_begins_and_ends(self) -> None:
        assert self.pages == ["firing", "resolved"] * (len(self.pages) // 2) + ["firing"] * (len(self.pages) % 2)
        stop = self.last
        fires = any(event.alert == stop_requests.UNACKNOWLEDGED for event in self.store.firing("r"))
        assert fires == bool(len(self.pages) % 2) == (stop is not None and stop.firing)
        if stop is not None and fires:
            assert stop.acknowledged_at is None and not stop.void
        assert self.store.runs() == [] or not fires or self.store.runs()[0].status is RunStatus.RUNNING

    @invariant()
    def what_is_asked_can_leave(self) -> None:
        with self.store.database.read() as connection:
            query = "select id from deliveries where receiver = 'tocsin:control' order by sequence"
            assert list(connection.exec_driver_sql(query).scalars()) == self.ids
        assert not self.ids or self.opted != "ignore"


TestAsked = Asked.TestCase
TestAsked.settings = settings(max_examples=60, stateful_step_count=40)

"""Store and forward over a scripted link: whatever the link does, nothing is lost and nothing overtakes."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.services import until
from tocsin.control import StopRequest
from tocsin.transports import Message
from tocsin.transports.backlog import Backlog
from tocsin.transports.forward import LinkDown, Outcome, StoreAndForward
from tocsin.transports.segments import Segment

PAUSES = (0.001, 0.002)


class Broker:
    """The other end. `script` says how the next deliveries go; without a script all goes well.

    "ok", "down" (nothing arrived), "lost ack" (all arrived, none confirmed), "half" (half arrived and is confirmed),
    "half lost" (half arrived, none confirmed), "raise", "connect" (the next connection fails).
    """

    def __init__(self, script: Sequence[str] = (), poison: Callable[[Message], bool] = lambda message: False) -> None:
        self.script = deque(script)
        self.poison = poison
        self.log: list[Message] = []
        self.connections = 0
        self.largest = 0
        self.requests: deque[StopRequest] = deque()

    def connect(self) -> Link:
        if self.script and self.script[0] == "connect":
            self.script.popleft()
            raise LinkDown("no broker")
        self.connections += 1
        return Link(self)


class Link:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.watched = ""
        self.closed = False

    def deliver(self, messages: Sequence[Message], patience: float) -> Outcome:
        assert not self.closed
        broker = self.broker
        broker.largest = max(broker.largest, len(messages))
        step = broker.script.popleft() if broker.script else "ok"
        half = len(messages) // 2
        if step in ("down", "connect"):
            return Outcome(0, down="no answer")
        if step == "raise":
            raise OSError("the client library threw something")
        if step == "lost ack":
            broker.log += messages
            return Outcome(0, down="no answer")
        if step == "half lost":
            broker.log += messages[:half]
            return Outcome(0, down="no answer")
        if any(broker.poison(message) for message in messages):
            return Outcome(0, refused="too large")  # a batch is refused as a whole
        if step == "half":
            broker.log += messages[:half]
            return Outcome(half, down="no answer")
        broker.log += messages
        return Outcome(len(messages))

    def watch(self, run: str) -> None:
        self.watched = run

    def stop_request(self) -> StopRequest | None:
        return self.broker.requests.popleft() if self.watched and self.broker.requests else None

    def close(self) -> None:
        self.closed = True


def message(number: int, keep: bool = False) -> Message:
    kind = "run" if keep else "step"
    return Message("r", b'{"run":"r","time":%d,"kind":"%s"}' % (number, kind.encode()), float(number), keep)


def firsts(messages: Sequence[Message]) -> list[float]:
    return list(dict.fromkeys(message.time for message in messages))


def drained(transport: StoreAndForward) -> bool:
    return transport.counts().waiting == 0


def forward(broker: Broker, folder: Path | None) -> StoreAndForward:
    backlog = Backlog(folder, "r", segment_bytes=400)
    return StoreAndForward(broker.connect, backlog, patience=1.0, retry=PAUSES, name="the broker")


STEPS = st.sampled_from(["ok", "down", "lost ack", "half", "half lost", "raise", "connect"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=12), st.lists(st.integers(1, 30), min_size=1, max_size=5), st.booleans())
def test_nothing_is_lost_or_overtakes(script: list[str], sizes: list[int], on_disk: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        broker = Broker(script)
        transport = forward(broker, Path(name) / "fallback" if on_disk else None)
        number = 0
        for size in sizes:
            transport.send([message(number + index) for index in range(size)])
            number += size
        until(lambda: drained(transport), "everything delivered")
        transport.close(5)
        assert firsts(broker.log) == list(range(number))
        assert transport.counts().dropped == {}
        assert transport.counts().delivered == number
        assert not list(Path(name).glob("**/*.jsonl"))


@pytest.mark.parametrize("poison", [[0], [49], [7, 8, 30]])
def test_only_what_is_refused_is_dropped(poison: list[int], tmp_path: Path) -> None:
    broker = Broker(["down"], poison=lambda message: message.time in poison)
    transport = forward(broker, tmp_path)
    transport.send([message(number) for number in range(50)])
    until(lambda: drained(transport), "everything delivered")
    transport.close(5)
    assert firsts(broker.log) == [number for number in range(50) if number not in poison]
    assert transport.counts().dropped == {"refused": len(poison)}
    assert transport.counts().delivered == 50 - len(poison)


def test_while_away_messages_lie_on_disk_and_flush_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(["connect"] * 1_000_000)
    transport = forward(broker, tmp_path)
    transport.send([message(1)])
    assert transport.flush(30)
    transport.send([message(2)])
    assert transport.flush(30)
    assert transport.counts().waiting == 2
    assert transport.counts().spooled == 2
    transport.close(5)
    (path,) = tmp_path.glob("*/records/*.jsonl")
    assert path.read_bytes().splitlines() == [message(1).value, message(2).value]
    assert [record.levelname for record in caplog.records] == ["WARNING"], "told once, not at every attempt"


def test_each_outage_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(["ok", "down", "connect", "connect", "ok", "down", "ok"])
    transport = forward(broker, tmp_path)
    for number in range(4):
        transport.send([message(number)])
        until(lambda: drained(transport), "everything delivered")
    transport.close(5)
    assert len(caplog.records) == 2


def test_what_another_process_left_is_sent_first(tmp_path: Path) -> None:
    dead = forward(Broker(["connect"] * 1_000_000), tmp_path)
    dead.send([message(number) for number in range(30)])
    assert dead.flush(30)
    dead.close(5)
    broker = Broker(["connect"] * 3)
    transport = forward(broker, tmp_path)
    transport.send([message(number) for number in range(30, 40)])
    until(lambda: drained(transport) and len(broker.log) > 0, "everything delivered")
    transport.close(5)
    assert firsts(broker.log) == list(range(40))
    assert not list(tmp_path.iterdir()), "what is delivered leaves no folder behind"


def test_a_folder_that_cannot_be_read_for_a_while_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(["connect"] * 3)
    backlog = Backlog(tmp_path, "t")
    backlog.append([message(number) for number in range(20)])
    assert backlog.spill()
    failures = iter(range(5))
    read = Segment.lines

    def lines(segment: Segment, max_items: int, max_bytes: int) -> tuple[int, list[bytes]]:
        if next(failures, None) is not None:
            raise OSError("stale file handle")
        return read(segment, max_items, max_bytes)

    monkeypatch.setattr(Segment, "lines", lines)
    transport = StoreAndForward(broker.connect, backlog, patience=0.05, retry=PAUSES)
    transport.send([message(20)])
    until(lambda: not len(backlog), "everything arrived")
    transport.close(5.0)
    assert [found.time for found in broker.log] == [float(number) for number in range(21)]
    assert transport.counts().dropped == {}


def test_two_living_processes_leave_each_other_alone(tmp_path: Path) -> None:
    away = forward(Broker(["connect"] * 1_000_000), tmp_path)
    away.send([message(1)])
    assert away.flush(30)
    broker = Broker()
    transport = forward(broker, tmp_path)
    transport.send([message(2)])
    until(lambda: drained(transport), "everything delivered")
    transport.close(5)
    assert firsts(broker.log) == [2]
    away.close(5)


def test_close_while_away_keeps_everything_for_the_next_process(tmp_path: Path) -> None:
    broker = Broker(["connect"] * 1_000_000)
    transport = forward(broker, tmp_path)
    transport.send([message(number) for number in range(10)])
    transport.close(5)
    assert len([line for path in tmp_path.glob("*/records/*.jsonl") for line in path.read_bytes().splitlines()]) == 10


def test_a_stop_request_comes_back(tmp_path: Path) -> None:
    broker = Broker()
    transport = forward(broker, tmp_path)
    transport.watch("r")
    asked = StopRequest(run="r", id="1", rule="x", step=1, reason="", action="pause", requested_at=0, expires_at=1)
    broker.requests.append(asked)
    transport.send([message(1)])
    assert until(transport.stop_request, "the request") == asked
    transport.close(5)


def test_chunks_grow_again_after_a_failure(tmp_path: Path) -> None:
    broker = Broker(["down", "down", "down"])
    transport = forward(broker, None)
    transport.send([message(number) for number in range(400)])
    until(lambda: drained(transport), "everything delivered")
    broker.largest = 0
    for _ in range(10):
        transport.send([message(number) for number in range(400)])
        until(lambda: drained(transport), "everything delivered")
    transport.close(5)
    assert broker.largest > 100

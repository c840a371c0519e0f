"""One contract, every transport: memory, spool, Kafka on a real broker, and Kafka that is never there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import services
from tests.kit.services import PATIENCE
from tocsin import control, spool, wire
from tocsin.control import StopRequest
from tocsin.transports import Message, Transport, from_url
from tocsin.transports.kafka import KafkaTransport
from tocsin.transports.memory import MemoryTransport
from tocsin.transports.spool import SpoolTransport

KINDS = ["memory", "spool", "kafka", "kafka-away"]


def request(name: str, run: str = "r") -> StopRequest:
    return StopRequest(
        run=run, id=name, rule="rule", step=1, reason="why", action="pause", requested_at=1.0, expires_at=2.0
    )  # fmt: skip


def message(step: int, run: str = "r", text: str = "") -> Message:
    record = wire.StepRecord(run=run, step=step, time=float(step), rollouts=[wire.Rollout(response=text)] if text else [])
    return Message(run, wire.encode(record), record.time)


class Case:
    """A transport, and the other end of it."""

    def __init__(self, kind: str, tmp_path: Path, broker: Any, away: str) -> None:
        self.kind = kind
        self.away = away
        self.folder = tmp_path
        self.broker = broker
        self.topic = self.control_topic = ""
        if kind == "kafka":
            self.topic, self.control_topic = broker.topic("records"), broker.topic("control")
        self.transport: Transport = self.make()

    def make(self) -> Transport:
        if self.kind == "memory":
            return MemoryTransport()
        if self.kind == "spool":
            return SpoolTransport(self.folder)
        where: dict[str, Any] = {"topic": self.topic, "control_topic": self.control_topic, "fallback": self.folder}
        if self.kind == "kafka-away":
            return KafkaTransport([self.away], **where)
        # However slow it is, this broker is there.
        settings = {"bootstrap_timeout_ms": PATIENCE * 1000, "max_block_ms": PATIENCE * 1000}
        return KafkaTransport([self.broker.bootstrap], **where, patience=PATIENCE, settings=settings)

    def arrived(self, transport: Transport | None = None) -> list[bytes]:
        """What the other end has, in its order."""
        if isinstance(self.transport, MemoryTransport):
            return [message.value for message in self.transport.messages]
        if self.kind == "kafka":
            return [message.value for message in self.broker.read(self.topic)]
        paths = spool.record_files(self.folder) + sorted(self.folder.glob("*/records/*.jsonl"))
        return [line for path in paths for line in path.read_bytes().splitlines()]

    def ask(self, stop: StopRequest) -> None:
        """Be the collector."""
        if isinstance(self.transport, MemoryTransport):
            self.transport.request_stop(stop)
        elif self.kind == "spool":
            spool.write_control(self.folder, stop)
        else:
            self.broker.produce(self.control_topic, [control.encode(stop)], key=stop.run.encode())


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path: Path, unreachable: str) -> Iterator[Case]:
    broker = request.getfixturevalue("kafka_broker") if request.param == "kafka" else None
    made = Case(request.param, tmp_path, broker, unreachable)
    yield made
    made.transport.close(10)


def test_messages_arrive_in_order_and_as_they_are(case: Case) -> None:
    first = [message(step, text="línea\n2") for step in range(50)]
    second = [message(step) for step in range(50, 55)]
    case.transport.send(first)
    case.transport.send([])
    case.transport.send(second)
    assert case.transport.flush(PATIENCE)
    case.transport.close(PATIENCE)
    assert case.arrived() == [message.value for message in first + second]


def test_counts_add_up(case: Case) -> None:
    case.transport.send([message(step) for step in range(7)])
    assert case.transport.flush(PATIENCE)
    counts = case.transport.counts()
    assert counts.delivered + counts.waiting + sum(counts.dropped.values()) == 7
    assert counts.delivered == (0 if case.kind == "kafka-away" else 7)
    assert counts.spooled == (7 if case.kind == "kafka-away" else 0)
    assert counts.dropped == {}
    assert (counts.errors > 0) is (case.kind == "kafka-away")


def test_flush_with_nothing_to_flush(case: Case) -> None:
    assert case.transport.flush(0)


def test_runs_are_kept_apart_and_each_in_order(case: Case) -> None:
    sent = [message(step, run=f"run-{step % 20}") for step in range(100)]
    case.transport.send(sent)
    assert case.transport.flush(PATIENCE)
    case.transport.close(PATIENCE)
    arrived = [wire.decode(value).record for value in case.arrived()]
    for number in range(20):
        steps = [record.step for record in arrived if isinstance(record, wire.StepRecord) and record.run == f"run-{number}"]
        assert steps == list(range(number, 100, 20))


def test_close_is_idempotent_and_what_comes_after_is_counted(case: Case) -> None:
    case.transport.send([message(1)])
    case.transport.close(PATIENCE)
    case.transport.close(PATIENCE)
    case.transport.send([message(2), message(3)])
    assert case.transport.flush(0) in (True, False)
    assert case.transport.counts().dropped == {"closed": 2}
    assert case.arrived() == [message(1).value]


def test_close_without_use(case: Case) -> None:
    case.transport.close(0)
    assert case.arrived() == []


def test_a_fresh_transport_sends_nothing_of_the_old_one(case: Case) -> None:
    if case.kind == "memory":
        fresh = case.transport.fresh()
        assert isinstance(fresh, MemoryTransport)
        assert fresh.messages == []
        return
    case.transport.send([message(1)])
    assert case.transport.flush(PATIENCE)
    case.transport.close(PATIENCE)
    fresh = case.transport.fresh()
    fresh.send([message(2)])
    assert fresh.flush(PATIENCE)
    fresh.close(PATIENCE)
    expected = [message(1).value, message(2).value]
    assert case.arrived() == expected


def test_stop_requests(case: Case) -> None:
    if case.kind == "kafka-away":
        case.transport.watch("r")
        assert case.transport.stop_request() is None
        return
    case.ask(request("of-an-earlier-start"))
    case.transport.watch("r")
    case.transport.send([message(1)])
    assert case.transport.flush(PATIENCE)
    assert case.transport.stop_request() is None
    case.ask(request("not-ours", run="another"))
    case.ask(request("first"))
    assert services.until(case.transport.stop_request, "the first request").id == "first"
    case.ask(request("second"))

    def second() -> StopRequest | None:
        found = case.transport.stop_request()
        return found if found is not None and found.id == "second" else None

    assert services.until(second, "the second request") == request("second")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("spool:/tmp/somewhere", SpoolTransport),
        ("spool:///tmp/somewhere", SpoolTransport),
        ("spool:relative/path", SpoolTransport),
        ("memory:", MemoryTransport),
        ("kafka://127.0.0.1:9092", KafkaTransport),
        ("kafka://127.0.0.1:9092,[::1]:9093/topic", KafkaTransport),
    ],
)
def test_urls(url: str, kind: type) -> None:
    transport = from_url(url)
    assert type(transport) is kind
    transport.close(0)


@pytest.mark.parametrize(
    "url",
    ["", "spool:", "kafka://", "kafka:///topic", "kafka://host", "kafka://host:port", "kafka://host:99999", "kafka://h:1/a/b",
     "http://host:80", "/a/path", "memory"],
)  # fmt: skip
def test_urls_that_cannot_be_meant(url: str) -> None:
    with pytest.raises(ValueError):
        from_url(url)


def test_the_spool_keeps_records_in_memory_while_the_disk_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "spool"
    blocked.write_text("a file where the folder should be")
    transport = SpoolTransport(blocked)
    transport.send([message(1)])
    transport.send([message(2)])
    assert not transport.flush(0)
    assert transport.counts().waiting == 2
    assert transport.counts().errors == 3
    assert len(caplog.records) == 1, "told once"
    blocked.unlink()
    transport.stop_request()  # what the sender calls once a second
    assert transport.counts().waiting == 0
    transport.close(0)
    (path,) = spool.record_files(blocked)
    assert path.read_bytes().splitlines() == [message(1).value, message(2).value]


def test_the_spool_drops_the_oldest_steps_when_memory_is_full_too(tmp_path: Path) -> None:
    blocked = tmp_path / "spool"
    blocked.write_text("")
    transport = SpoolTransport(blocked, memory_bytes=5 * (len(message(10).value) + 1))
    opening = message(10)._replace(keep=True)
    transport.send([opening, *[message(step) for step in range(11, 30)]])
    blocked.unlink()
    assert transport.flush(0)
    assert transport.counts().dropped == {"memory_full": 15}
    transport.close(0)
    (path,) = spool.record_files(blocked)
    assert path.read_bytes().splitlines() == [message(step).value for step in (10, 26, 27, 28, 29)]


def test_a_replay_of_many_runs_holds_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[spool.SpoolWriter] = []
    make: Callable[..., spool.SpoolWriter] = spool.SpoolWriter

    def counting(*args: Any, **kwargs: Any) -> spool.SpoolWriter:
        opened.append(make(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(spool, "SpoolWriter", counting)
    transport = SpoolTransport(tmp_path)
    transport.send([message(step, run=f"run-{step}") for step in range(50)])
    assert sum(writer.is_open for writer in opened) == 16
    transport.close(0)
    assert not any(writer.is_open for writer in opened)
    assert len(spool.record_files(tmp_path)) == 50


def test_a_broker_that_accepts_and_says_nothing_is_a_broker_that_is_away(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        transport = KafkaTransport([server], fallback=tmp_path, settings={"bootstrap_timeout_ms": 200})
        transport.send([message(1), message(2)])
        assert transport.flush(60)
        transport.close(10)
    (path,) = tmp_path.glob("*/records/*.jsonl")
    assert path.read_bytes().splitlines() == [message(1).value, message(2).value]


def test_a_setting_that_kafka_does_not_know_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        transport = KafkaTransport([server], fallback=tmp_path, settings={"sasl_mecanism": "PLAIN"})
        transport.send([message(1)])
        assert transport.flush(60)
        transport.close(10)
    assert "sasl_mecanism" in caplog.text

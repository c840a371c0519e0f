"""A real broker that is down at the start, comes, goes in the middle and comes again: every record arrives, in order."""

from __future__ import annotations

import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.kit import kafka, services
from tests.kit.services import PATIENCE
from tocsin import control, wire
from tocsin.transports.kafka import KafkaTransport

pytestmark = pytest.mark.kafka


def first_arrivals(messages: Iterable[Any]) -> list[wire.Record]:
    """The records without their duplicates, in the order in which each was first seen."""
    seen: dict[bytes, wire.Record] = {}
    for message in messages:
        seen.setdefault(message.value, wire.decode(message.value).record)
    return list(seen.values())


def transport(broker: kafka.Broker, topic: str, fallback: Path, **more: Any) -> KafkaTransport:
    """One that soon takes a broker for one that is away."""
    return KafkaTransport([broker.bootstrap], topic=topic, fallback=fallback, **{"patience": 2.0, **more})


def patient(broker: kafka.Broker, topic: str, fallback: Path, **more: Any) -> KafkaTransport:
    """One for a broker that is there, however slow."""
    settings = {"bootstrap_timeout_ms": PATIENCE * 1000, "max_block_ms": PATIENCE * 1000}
    return transport(broker, topic, fallback, patience=PATIENCE, settings=settings, **more)


def test_down_at_start_then_away_in_the_middle(private_broker: kafka.Broker, tmp_path: Path) -> None:
    topic = private_broker.topic("records")
    private_broker.stop()
    reporter = tocsin.Reporter("run-1", rank=0, attempt=1, transport=transport(private_broker, topic, tmp_path / "fallback"))
    steps = iter(range(1_000_000))

    def log(count: int) -> None:
        for _ in range(count):
            reporter.log(next(steps), {f"metric_{index}": index / 7 for index in range(60)})

    log(300)
    services.until(lambda: reporter.counters.spooled >= 301, "all records in the fallback folder")
    assert reporter.flush(PATIENCE), "on disk is as far as a record gets while the broker is away"
    private_broker.start()
    services.until(lambda: reporter.counters.sent >= 301, "the records of the time before the broker")
    log(50)
    services.until(lambda: reporter.counters.sent >= 351, "records straight through")
    private_broker.stop()
    log(400)
    services.until(lambda: reporter.counters.spooled > 301, "records in the fallback folder again")
    log(100)
    private_broker.start()
    log(100)
    reporter.end(step=950)
    services.until(lambda: reporter.counters.waiting == 0, "everything delivered")
    reporter.close()

    records = first_arrivals(private_broker.read(topic))
    assert isinstance(records[0], wire.RunRecord)
    assert isinstance(records[-1], wire.EndRecord)
    assert [record.step for record in records[1:-1] if isinstance(record, wire.StepRecord)] == list(range(950))
    assert reporter.counters.dropped == {}
    assert not list((tmp_path / "fallback").glob("*/records/*.jsonl")), "what is delivered is not kept"


def test_what_a_dead_process_left_is_sent_first(private_broker: kafka.Broker, tmp_path: Path) -> None:
    topic = private_broker.topic("records")
    private_broker.stop()
    first = tocsin.Reporter("run-1", rank=0, attempt=1, transport=transport(private_broker, topic, tmp_path))
    for step in range(20):
        first.log(step, {"x": step})
    services.until(lambda: first.counters.spooled >= 21, "records of the first process on disk")
    first.close(timeout=1)

    second = tocsin.Reporter("run-1", rank=0, attempt=2, transport=transport(private_broker, topic, tmp_path))
    for step in range(10, 30):
        second.log(step, {"x": step})
    private_broker.start()
    services.until(lambda: second.counters.sent >= 42, "the records of both attempts")
    second.close()
    records = first_arrivals(private_broker.read(topic))
    assert [record.attempt for record in records] == [1] * 21 + [2] * 21


def test_key_and_time_of_the_message_are_the_records(kafka_broker: kafka.Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic("records")
    with tocsin.Reporter("run-é", rank=0, transport=patient(kafka_broker, topic, tmp_path), clock=lambda: 1e9) as reporter:
        reporter.log(1, {"x": 1.0}, time=1_000_000_123.456)
        assert reporter.flush(PATIENCE)
    messages = kafka_broker.read(topic)
    assert {message.key for message in messages} == {"run-é".encode()}
    assert messages[1].timestamp == 1_000_000_123_456
    assert not (tmp_path / "tocsin-spool").exists()


@pytest.mark.parametrize("machine", [None, 9e9])
def test_a_clock_that_the_broker_does_not_accept_costs_no_record(
    machine: float | None, kafka_broker: kafka.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers refuse message times more than an hour ahead of their own. The record's time goes through all the same."""
    if machine is not None:  # the clock of the whole machine is ahead, not only the one given to the reporter
        clock = types.SimpleNamespace(time=lambda: machine, monotonic=time.monotonic)
        monkeypatch.setattr("tocsin.transports.kafka.time", clock)
    topic = kafka_broker.topic("records")
    with tocsin.Reporter("run-1", rank=0, transport=patient(kafka_broker, topic, tmp_path), clock=lambda: 9e9) as reporter:
        reporter.log(1, {"x": 1.0})
        assert reporter.flush(PATIENCE)
        services.until(lambda: reporter.counters.waiting == 0, "everything delivered")
    records = first_arrivals(kafka_broker.read(topic))
    assert [record.time for record in records] == [9e9, 9e9, 9e9]
    assert reporter.counters.dropped == {}


def test_a_record_that_the_broker_refuses_does_not_hold_up_the_others(kafka_broker: kafka.Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic("records", configs={"max.message.bytes": "20000"})
    with tocsin.Reporter("run-1", rank=0, transport=patient(kafka_broker, topic, tmp_path)) as reporter:
        reporter.log(1, {"x": 1.0})
        reporter.log(2, {f"metric_{index}": 1.0 for index in range(2_000)})
        reporter.log(3, {"x": 1.0})
        assert reporter.flush(PATIENCE)
        assert reporter.counters.dropped == {"refused": 1}
    steps = [record.step for record in first_arrivals(kafka_broker.read(topic)) if isinstance(record, wire.StepRecord)]
    assert steps == [1, 3]


def test_a_stop_request_reaches_the_run_and_is_acknowledged(kafka_broker: kafka.Broker, tmp_path: Path) -> None:
    topic, control_topic = kafka_broker.topic("records"), kafka_broker.topic("control", partitions=3)

    def ask(run: str, name: str) -> None:
        request = control.StopRequest(
            run=run, id=name, rule="logprob-gap-stop", step=4, reason="engines disagree", action="pause",
            requested_at=1e9, expires_at=4e9,
        )  # fmt: skip
        kafka_broker.produce(control_topic, [control.encode(request)], partition=1, key=run.encode())

    ask("run-1", "of-an-earlier-start")
    carrier = patient(kafka_broker, topic, tmp_path, control_topic=control_topic)
    with tocsin.Reporter("run-1", rank=0, on_stop="pause", transport=carrier) as reporter:
        reporter.log(1, {"x": 1.0})
        assert reporter.flush(PATIENCE)
        assert reporter.stop_requested() is None
        ask("another-run", "not-ours")
        kafka_broker.produce(control_topic, [b"no request"], partition=1, key=b"run-1")
        ask("run-1", "stop-1")
        request = services.until(reporter.stop_requested, "the stop request")
        assert (request.id, request.action) == ("stop-1", "pause")
        reporter.log(2, {"x": 1.0})
        reporter.end("stopped", request.reason)
    records = first_arrivals(kafka_broker.read(topic))
    acknowledged = [record.stop_ack for record in records if not isinstance(record, wire.RunRecord)]
    assert acknowledged == ["", "stop-1", "stop-1"]


def test_a_stop_request_of_the_time_between_two_connections_is_found(private_broker: kafka.Broker, tmp_path: Path) -> None:
    topic, control_topic = private_broker.topic("records"), private_broker.topic("control")
    carrier = transport(private_broker, topic, tmp_path, control_topic=control_topic)
    reporter = tocsin.Reporter("run-1", rank=0, on_stop="checkpoint_and_stop", transport=carrier)
    reporter.log(1, {"x": 1.0})
    services.until(lambda: reporter.counters.sent == 2, "the first records")
    private_broker.stop()
    reporter.log(2, {"x": 1.0})
    services.until(lambda: reporter.counters.spooled, "the outage to be noticed")
    private_broker.start()
    request = control.StopRequest(
        run="run-1", id="stop-1", rule="r", step=1, reason="why", action="checkpoint_and_stop", requested_at=1e9, expires_at=4e9
    )  # fmt: skip
    private_broker.produce(control_topic, [control.encode(request)], key=b"run-1")
    assert services.until(reporter.stop_requested, "the request") == request
    reporter.close()


def test_a_topic_that_does_not_exist_is_waited_for_and_named(
    kafka_broker: kafka.Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tocsin.Reporter("run-1", rank=0, transport=transport(kafka_broker, "never-created", tmp_path)) as reporter:
        reporter.log(1, {"x": 1.0})
        assert reporter.flush(PATIENCE), "on disk"
    assert "topic never-created; does it exist?" in caplog.text
    assert len(list(tmp_path.glob("*/records/*.jsonl"))) == 1

"""What goes wrong with a real Kafka under a real consumer, one test per trap: what lies in the log, and whose it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from collector.model import SourceFault
from collector.sources.kafka.source import KafkaSource
from collector.sources.memory import MemoryPositions
from tests.kit import kafka, services
from tests.kit.kafka_reader import Reader, numbered

pytestmark = pytest.mark.kafka


@pytest.fixture
def read() -> Iterator[Callable[..., Reader]]:
    """Make readers; all are closed with the test."""
    readers: list[Reader] = []

    def make(*arguments: Any, **options: Any) -> Reader:
        readers.append(Reader(*arguments, **options))
        return readers[-1]

    yield make
    for reader in readers:
        reader.source.close()


def damage(segment: Path, value: bytes) -> None:
    """Flip the last byte of a value where it lies in the log."""
    content = bytearray(segment.read_bytes())
    at = content.index(value) + len(value) - 1
    content[at] ^= 0xFF
    segment.write_bytes(content)


def test_poison_passes_and_the_stream_goes_on(kafka_broker: kafka.Broker, read: Callable[..., Reader]) -> None:
    topic = kafka_broker.topic("poison")
    values = [b"good", b"\xff\xfe\x00", b"", None, b"{", b"good again"]
    kafka_broker.produce(topic, values, key=b"run")
    reader = read(kafka_broker.bootstrap, topic)
    reader.until(lambda: len(reader.records) >= len(values), "all values")
    assert reader.values == [value or b"" for value in values]
    assert [item.offset for item in reader.records] == list(range(len(values)))
    assert reader.faults == []


def test_the_content_type_is_the_header_and_json_without_one(kafka_broker: kafka.Broker, read: Callable[..., Reader]) -> None:
    topic = kafka_broker.topic("types")
    kafka_broker.produce(topic, [b"a"], headers=[("other", b"x"), ("content-type", b"application/msgpack")])
    kafka_broker.produce(topic, [b"b"], headers=[("trace", b"y")])
    kafka_broker.produce(topic, [b"c"])
    reader = read(kafka_broker.bootstrap, topic)
    reader.until(lambda: len(reader.records) >= 3, "all values")
    assert [item.content_type for item in reader.records] == ["application/msgpack", "application/json", "application/json"]


def test_received_at_is_the_brokers_clock_where_the_topic_keeps_it(
    kafka_broker: kafka.Broker, read: Callable[..., Reader]
) -> None:
    stamped = kafka_broker.topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    plain = kafka_broker.topic("plain")
    for topic in (stamped, plain):
        kafka_broker.produce(topic, [b"a"])
    at = {}
    for topic in (stamped, plain):
        source = KafkaSource(kafka_broker.bootstrap, [topic], f"clock-{topic}", clock=lambda: 42.0)
        source.open(MemoryPositions())
        try:
            at[topic] = services.until(lambda: source.poll(0.2).records, "the record")[0].received_at  # noqa: B023
        finally:
            source.close()
    assert at[plain] == 42.0
    assert at[stamped] > 1_700_000_000


@pytest.mark.parametrize(
    ("settings", "first", "size"),
    [({"batch_size": 1}, 50, 1), ({"linger_ms": 500, "batch_size": 1_000_000}, 40, 40)],
    ids=["a-batch-per-record", "forty-records-in-a-batch"],
)
def test_a_corrupt_batch_is_one_fault_and_the_stream_goes_on(
    private_broker: kafka.Broker, read: Callable[..., Reader], settings: dict[str, Any], first: int, size: int
) -> None:
    topic = private_broker.topic("corrupt", partitions=2)
    for start in (0, 40, 80):
        private_broker.produce(topic, numbered(40, start), **settings)
    private_broker.produce(topic, [b"fine"], partition=1)
    private_broker.stop()
    damage(private_broker.segment(topic), b"value-000050")
    private_broker.start()
    reader = read(private_broker.bootstrap, topic)
    reader.until(lambda: len(reader.records) >= 121 - size and reader.caught_up, "all readable records")
    in_damaged = [item for item in reader.records if item.partition == f"{topic}/0"]
    assert [item.offset for item in in_damaged] == [*range(first), *range(first + size, 120)]
    assert [item.value for item in in_damaged] == numbered(first) + numbered(120 - first - size, first + size)
    assert reader.faults == [SourceFault(f"{topic}/0", first, "the checksum is wrong")]
    private_broker.produce(topic, [b"after"])
    reader.until(lambda: b"after" in reader.values, "a record after the damage")
    assert len(reader.faults) == 1


def test_bytes_that_no_codec_unpacks_are_one_fault_and_the_stream_goes_on(
    kafka_broker: kafka.Broker, read: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may compress with what is not installed here: the checksum is right, the batch unreadable."""
    topic = kafka_broker.topic("codec", partitions=2)
    kafka_broker.produce(topic, numbered(3))
    kafka_broker.produce(topic, numbered(5, 3), compression_type="gzip", linger_ms=500)
    kafka_broker.produce(topic, numbered(2, 8))
    kafka_broker.produce(topic, [b"other"], partition=1)

    def no_gzip(payload: object) -> bytes:
        raise RuntimeError("no gzip here")

    monkeypatch.setattr("kafka.record.default_records.gzip_decode", no_gzip)
    reader = read(kafka_broker.bootstrap, topic)
    reader.until(lambda: len(reader.records) >= 6 and reader.caught_up, "all readable records")
    assert [item.offset for item in reader.records if item.partition == f"{topic}/0"] == [0, 1, 2, 8, 9]
    assert [(fault.partition, fault.offset) for fault in reader.faults] == [(f"{topic}/0", 3)]
    assert "no gzip here" in reader.faults[0].reason


def test_transaction_markers_are_no_records_and_nothing_that_waits(
    kafka_broker: kafka.Broker, read: Callable[..., Reader]
) -> None:
    topic = kafka_broker.topic("transaction")
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap, transactional_id="t")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0)
        producer.commit_transaction()
    finally:
        producer.close(timeout=5)
    reader = read(kafka_broker.bootstrap, topic)
    reader.until(lambda: len(reader.records) == 1 and reader.caught_up, "the record, and nothing behind it")
    assert reader.source.lag() == {}
    kafka_broker.produce(topic, [b"b"])
    reader.until(lambda: reader.values == [b"a", b"b"], "the record after the marker")
    assert [item.offset for item in reader.records] == [0, 2]


def test_the_groups_offsets_are_committed_for_display(kafka_broker: kafka.Broker, read: Callable[..., Reader]) -> None:
    topic = kafka_broker.topic("display")
    kafka_broker.produce(topic, numbered(4))
    reader = read(kafka_broker.bootstrap, topic, "display-group")
    reader.until(lambda: len(reader.records) == 4, "the records")
    reader.source.committed({f"{topic}/0": 4})
    reader.source.close()
    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    try:
        offsets = admin.list_group_offsets(["display-group"])["display-group"]
    finally:
        admin.close()
    assert {(tp.topic, tp.partition): at.offset for tp, at in offsets.items()} == {(topic, 0): 4}

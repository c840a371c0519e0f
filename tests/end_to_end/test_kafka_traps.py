"""What goes wrong with a real Kafka under a real consumer, one test per trap. The broker is stopped, damaged and started."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from collector.dead_letters import decode
from collector.model import Batch, RawRecord, SourceFault
from collector.ports import SourceUnavailable
from collector.sources.kafka.dead_letters import KafkaDeadLetters
from collector.sources.kafka.source import KafkaSource
from collector.sources.kafka.topics import DEAD_LETTERS, Outcome, TopicPlan, create_topics, plan
from collector.sources.memory import MemoryPositions
from tests.kit import kafka, services

pytestmark = pytest.mark.kafka

_groups = itertools.count(1)


class Reader:
    """A collector's loop in small: it stores what it was handed before it polls again, and forgets what is revoked."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str | None = None,
        store: MemoryPositions | None = None,
        connect_seconds: float = 10.0,
    ) -> None:
        self.source = KafkaSource(
            bootstrap,
            [topic],
            group or f"traps-{next(_groups)}",
            connect_seconds=connect_seconds,
            heartbeat_interval_ms=500,
        )
        self.store = store or MemoryPositions()
        self.records: list[RawRecord] = []
        self.faults: list[SourceFault] = []
        self.mine: set[str] = set()
        self.changes: list[tuple[str, str]] = []
        self.outages = 0
        self.caught_up = False
        self.source.open(self.store)

    def poll(self, timeout: float = 0.2) -> Batch:
        try:
            batch = self.source.poll(timeout)
        except SourceUnavailable:
            self.outages += 1
            return Batch(caught_up=False)
        for partition in sorted(batch.revoked):
            self.mine.remove(partition)
            self.changes.append(("revoked", partition))
        for partition in sorted(batch.assigned):
            assert partition not in self.mine
            self.mine.add(partition)
            self.changes.append(("assigned", partition))
        for item in batch.records:
            assert item.partition in self.mine, "a record of somebody else's partition"
            self.store.at[item.partition] = item.next_offset
        self.records += batch.records
        self.faults += batch.faults
        self.caught_up = batch.caught_up
        return batch

    def until(self, enough: Callable[[], bool], what: str) -> None:
        def probe() -> bool:
            self.poll()
            return enough()

        services.until(probe, f"{what}; {len(self.records)} records, {self.faults}, {self.outages} outages", pause=0.0)

    @property
    def values(self) -> list[bytes]:
        return [item.value for item in self.records]


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


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"value-%06d" % number for number in range(start, start + count)]


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


def test_a_second_collector_takes_a_share_and_gives_it_back(kafka_broker: kafka.Broker, read: Callable[..., Reader]) -> None:
    topic = kafka_broker.topic("shared", partitions=4)
    everything = {f"{topic}/{number}" for number in range(4)}
    store = MemoryPositions()  # one store for both, as in life
    produced = 0

    def produce() -> None:
        nonlocal produced
        for number in range(4):
            kafka_broker.produce(topic, numbered(5, produced), partition=number)
        produced += 5

    first = read(kafka_broker.bootstrap, topic, "shared-group", store)
    produce()
    first.until(lambda: len(first.records) == 20, "the records of all partitions")
    assert first.mine == everything

    second = read(kafka_broker.bootstrap, topic, "shared-group", store)
    done = threading.Event()
    # Joining needs both to poll: the first gives up its share when it hears of the second.
    helper = threading.Thread(target=lambda: [second.poll() for _ in iter(done.is_set, True)])
    helper.start()
    try:
        first.until(lambda: len(first.mine) == 2 and len(second.mine) == 2, "two partitions for each")
        produce()
        first.until(lambda: len(first.records) + len(second.records) == 40, "the records of both")
    finally:
        done.set()
        helper.join()
    assert first.mine | second.mine == everything
    kept = set(first.mine)
    assert {partition for change, partition in first.changes if change == "revoked"} == everything - kept
    assert {item.partition for item in second.records} == second.mine

    second.source.close()
    produce()
    first.until(lambda: first.mine == everything and len(first.records) + len(second.records) == 60, "all partitions again")
    seen = sorted((item.partition, item.offset) for item in first.records + second.records)
    assert seen == sorted((partition, offset) for partition in everything for offset in range(15)), "lost or read twice"
    # What stayed was never told as revoked: its runs were not rebuilt for nothing.
    assert not kept & {partition for change, partition in first.changes if change == "revoked"}


def test_the_broker_stops_and_starts_under_consumption(private_broker: kafka.Broker, read: Callable[..., Reader]) -> None:
    topic = private_broker.topic("restart", partitions=2)
    private_broker.produce(topic, numbered(10))
    reader = read(private_broker.bootstrap, topic)
    reader.until(lambda: len(reader.records) == 10, "the first records")
    private_broker.stop()
    reader.until(lambda: reader.outages > 0, "the outage is noticed")
    assert not reader.caught_up or reader.outages
    private_broker.start()
    private_broker.produce(topic, numbered(10, 10))
    reader.until(lambda: len(reader.records) >= 20, "the records after the outage")
    assert reader.values == numbered(20)
    assert [item.offset for item in reader.records] == list(range(20))
    assert reader.faults == []


def test_the_broker_is_down_at_construction(private_broker: kafka.Broker, read: Callable[..., Reader]) -> None:
    topic = private_broker.topic("later")
    private_broker.produce(topic, numbered(3))
    private_broker.stop()
    threads = threading.active_count()
    reader = read(private_broker.bootstrap, topic, connect_seconds=2.0)
    for _ in range(3):
        reader.poll()
    assert reader.outages == 3
    assert threading.active_count() == threads, "failed connections leave threads behind"
    private_broker.start()
    reader.until(lambda: len(reader.records) == 3, "the records once it is up")
    assert reader.values == numbered(3)


def test_a_missing_topic_is_told_with_what_to_do_and_is_found_when_it_is_made(
    kafka_broker: kafka.Broker, read: Callable[..., Reader]
) -> None:
    name = "made-later"
    reader = read(kafka_broker.bootstrap, name)
    with pytest.raises(SourceUnavailable, match=r"no such topic: made-later; `tocsin kafka init`"):
        reader.source.poll(0.01)
    create_topics(kafka_broker.bootstrap, [TopicPlan(name, 1, {})])
    kafka_broker.produce(name, [b"a"])
    reader.until(lambda: reader.values == [b"a"], "the first record")


def test_a_position_that_retention_has_passed_moves_to_the_beginning_with_a_fault(
    kafka_broker: kafka.Broker, read: Callable[..., Reader]
) -> None:
    topic = kafka_broker.topic("short")
    kafka_broker.produce(topic, numbered(10))
    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    try:
        admin.delete_records({TopicPartition(topic, 0): 6})
    finally:
        admin.close()
    behind = read(kafka_broker.bootstrap, topic, store=MemoryPositions({f"{topic}/0": 2}))
    behind.until(lambda: len(behind.records) == 4, "what is left")
    assert behind.values == numbered(4, 6)
    (fault,) = behind.faults
    assert (fault.partition, fault.offset) == (f"{topic}/0", 2)
    assert "deleted before they were read" in fault.reason


def test_a_position_beyond_the_end_moves_to_the_end_with_a_fault(
    kafka_broker: kafka.Broker, read: Callable[..., Reader]
) -> None:
    topic = kafka_broker.topic("cut")
    kafka_broker.produce(topic, numbered(3))
    ahead = read(kafka_broker.bootstrap, topic, store=MemoryPositions({f"{topic}/0": 99}))
    ahead.until(lambda: bool(ahead.faults), "the fault")
    kafka_broker.produce(topic, [b"new"])
    ahead.until(lambda: ahead.values == [b"new"], "the next record")
    (fault,) = ahead.faults
    assert fault.offset == 99
    assert "not in the log" in fault.reason


def test_records_deleted_under_a_slow_reader_are_a_fault_and_no_end(
    kafka_broker: kafka.Broker, read: Callable[..., Reader]
) -> None:
    topic = kafka_broker.topic("slow")
    kafka_broker.produce(topic, numbered(3))
    reader = read(kafka_broker.bootstrap, topic)
    reader.until(lambda: len(reader.records) == 3, "the first records")
    consumer = reader.source._consumer
    assert consumer is not None
    consumer.pause(TopicPartition(topic, 0))  # as if it were busy for long
    kafka_broker.produce(topic, numbered(5, 3))
    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    try:
        admin.delete_records({TopicPartition(topic, 0): 7})
    finally:
        admin.close()
    consumer.seek(TopicPartition(topic, 0), 3)  # what was fetched ahead is forgotten
    consumer.resume(TopicPartition(topic, 0))
    reader.until(lambda: len(reader.records) == 4, "the record that is left")
    assert reader.values[-1] == numbered(1, 7)[0]
    assert [fault.offset for fault in reader.faults] == [3]


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


def test_settings_that_would_break_the_source_are_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="cannot be set here: auto_offset_reset, value_deserializer"):
        KafkaSource("127.0.0.1:1", ["t"], "g", value_deserializer=bytes.decode, auto_offset_reset="latest")
    with pytest.raises(ValueError, match="does not know: sasl_mechanismus"):
        KafkaSource("127.0.0.1:1", ["t"], "g", sasl_mechanismus="PLAIN")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """A broker with a second listener that asks for a password."""
    broker = kafka.Broker(tmp_path_factory.mktemp("kafka"), credentials="tocsin:hunter2")
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


class TestSecurity:
    @staticmethod
    def settings(password: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "tocsin",
            "sasl_plain_password": password,
        }

    def test_the_right_password_reaches_topics_records_and_dead_letters(self, secured: kafka.Broker) -> None:
        settings = self.settings("hunter2")
        made = create_topics(secured.sasl_bootstrap, **settings)
        assert {result.outcome for result in made} == {Outcome.CREATED}
        letters = KafkaDeadLetters(secured.sasl_bootstrap, **settings)
        letters.put(partition="t/0", offset=7, reason="not_json", detail="", value=b"?", rejected_at=0.0)
        letters.close()
        assert (letters.kept, letters.dropped) == (1, 0)
        source = KafkaSource(secured.sasl_bootstrap, [DEAD_LETTERS], "g", **settings)
        source.open(MemoryPositions())
        try:
            (record,) = services.until(lambda: source.poll(0.2).records, "the dead letter")
        finally:
            source.close()
        assert decode(record.value).offset == 7

    def test_the_wrong_password_is_unavailable_and_is_not_told(self, secured: kafka.Broker) -> None:
        settings = self.settings("wrong-hunter")
        source = KafkaSource(secured.sasl_bootstrap, ["t"], "g", connect_seconds=1.0, **settings)
        source.open(MemoryPositions())
        with pytest.raises(SourceUnavailable) as refused:
            source.poll(0.1)
        assert "wrong-hunter" not in str(refused.value)
        with pytest.raises(SourceUnavailable):
            create_topics(secured.sasl_bootstrap, timeout_seconds=1.0, **settings)


class TestCreateTopics:
    def test_what_is_missing_is_created_and_what_exists_is_reported(self, private_broker: kafka.Broker) -> None:
        first = create_topics(private_broker.bootstrap)
        assert [(result.name, result.outcome) for result in first] == [(topic.name, Outcome.CREATED) for topic in plan()]
        again = create_topics(private_broker.bootstrap, plan(partitions=24))
        assert {result.outcome for result in again} == {Outcome.EXISTS}
        assert again[0].detail == "it has 12 partitions, planned are 24; left as it is"
        large = b"x" * (4 * 1024 * 1024)
        assert private_broker.produce("tocsin.records", [large], partition=11) == [0]

    def test_a_refusal_of_one_topic_is_told_and_costs_the_others_nothing(self, kafka_broker: kafka.Broker) -> None:
        bad, good = TopicPlan("refused", 1, {"retention.ms": "soon"}), TopicPlan("accepted", 1, {})
        results = create_topics(kafka_broker.bootstrap, [bad, good])
        assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.CREATED]
        assert "retention.ms" in results[0].detail

    def test_no_broker_is_an_error_that_says_so(self, unreachable: str) -> None:
        with pytest.raises(SourceUnavailable, match=r"no connection to Kafka at 127\.0\.0\.1"):
            create_topics(unreachable, timeout_seconds=0.2)

"""Brokers that stop, partitions that move, positions that are gone: the source on a real Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from collector.ports import SourceUnavailable
from collector.sources.kafka.topics import TopicPlan, create_topics
from collector.sources.memory import MemoryPositions
from tests.kit import kafka
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

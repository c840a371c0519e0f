"""Two collectors that were given one name: the older one is thrown out, says why, and does not throw out the other in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from collector.ports import SourceUnavailable
from collector.sources.kafka.source import KafkaSource
from collector.sources.memory import MemoryPositions
from tests.kit import kafka, services

pytestmark = pytest.mark.kafka

_groups: Final = itertools.count(1)


class Twin:
    """A collector's loop in small, with a store of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.source = KafkaSource(bootstrap, [topic], group, group_instance_id="tocsin")
        self.store = MemoryPositions()
        self.values: list[bytes] = []
        self.trouble: list[str] = []
        self.source.open(self.store)

    def poll(self) -> None:
        try:
            batch = self.source.poll(0.2)
        except SourceUnavailable as error:
            self.trouble.append(str(error))
            return
        self.trouble.clear()
        self.values += [record.value for record in batch.records]
        self.store.at.update({record.partition: record.next_offset for record in batch.records})
        self.source.committed(self.store.at)

    def until(self, enough: Callable[[], bool], what: str) -> None:
        def probe() -> bool:
            self.poll()
            return enough()

        services.until(probe, f"{what}; {self.trouble}", pause=0.0)


class Twins:
    """Makes collectors of one name on one topic, and records for them."""

    def __init__(self, broker: kafka.Broker) -> None:
        self._broker = broker
        self._topic = broker.topic("twins")
        self._group = f"twins-{next(_groups)}"
        self.made: list[Twin] = []

    def another(self) -> Twin:
        self.made.append(Twin(self._broker.bootstrap, self._topic, self._group))
        return self.made[-1]

    def produce(self, value: bytes) -> None:
        self._broker.produce(self._topic, [value])


@pytest.fixture
def twins(kafka_broker: kafka.Broker) -> Iterator[Twins]:
    made = Twins(kafka_broker)
    yield made
    for each in made.made:
        each.source.close()


def test_of_two_collectors_of_one_name_the_older_steps_back_and_says_why(twins: Twins) -> None:
    older = twins.another()
    twins.produce(b"1")
    older.until(lambda: older.values == [b"1"], "the first record")
    younger = twins.another()
    younger.until(lambda: younger.values == [b"1"], "the same record, by its own store")

    def thrown_out() -> bool:
        twins.produce(b"more")
        younger.poll()
        return any("another collector joined" in reason for reason in older.trouble)

    older.until(thrown_out, "it is told")
    seen = len(older.values)
    older.source.open(older.store)  # as after a commit that failed
    for _ in range(10):
        twins.produce(b"more")
        older.poll()
        younger.poll()
    assert len(older.values) == seen, "it reads nothing"
    assert younger.trouble == [], "and leaves the younger one alone"


def test_a_restart_under_the_same_name_is_no_twin(twins: Twins) -> None:
    before = twins.another()
    twins.produce(b"1")
    before.until(lambda: before.values == [b"1"], "the first record")
    before.source.close()
    after = twins.another()
    after.store.at.update(before.store.at)
    twins.produce(b"2")
    after.until(lambda: after.values == [b"2"], "the second record")
    for number in range(5):
        twins.produce(b"%d" % (3 + number))
        after.poll()
    assert after.trouble == []

"""The group's offsets: what is under way when the collector ends."""

from __future__ import annotations

import threading
from typing import Any, cast

from kafka import KafkaConsumer, TopicPartition
from kafka.future import Future

from collector.sources.kafka.offsets import GroupOffsets

PLACE = TopicPartition("t", 0)


class Consumer:
    """Commits that are answered by another thread."""

    def __init__(self) -> None:
        self.future = Future()
        self.closed_with: list[Any] = []

    def commit_async(self, offsets: Any, callback: Any) -> Future:
        return self.future

    def commit(self, offsets: Any, timeout_ms: int) -> None:
        self.closed_with.append((self.future.is_done, {place: each.offset for place, each in offsets.items()}))


def test_the_end_waits_for_a_commit_that_is_under_way() -> None:
    consumer, offsets = Consumer(), GroupOffsets()
    offsets.put(PLACE, 5)
    offsets.commit(cast(KafkaConsumer, consumer))
    offsets.put(PLACE, 9)
    answer = threading.Timer(0.05, lambda: consumer.future.success(None))
    answer.start()
    offsets.close(cast(KafkaConsumer, consumer))
    answer.join()
    assert consumer.closed_with == [(True, {PLACE: 9})]


def test_the_end_waits_for_nothing_when_nothing_is_under_way() -> None:
    consumer, offsets = Consumer(), GroupOffsets()
    offsets.close(cast(KafkaConsumer, consumer))
    assert consumer.closed_with == []

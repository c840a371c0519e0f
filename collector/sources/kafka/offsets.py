"""The consumer group's committed offsets: written for people who look at lag, never read by the collector."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from collector.sources.kafka.connecting import reason

COMMIT_SECONDS: Final = 1.0
"""Nobody looks at lag more often, and the store commits many times a second."""
_CLOSE_MS: Final = 2_000

log = logging.getLogger(__name__)


class GroupOffsets:
    """Collects positions and commits the latest ones now and then. A failure is logged: it is no fault of the records."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, int] = {}
        self._committed_at = 0.0
        self._answered = threading.Event()
        """Not set while a commit is under way."""
        self._answered.set()

    def put(self, tp: TopicPartition, position: int) -> None:
        self._waiting[tp] = position

    def drop(self, tp: TopicPartition) -> None:
        """The partition is no longer ours; another collector commits for it."""
        self._waiting.pop(tp, None)

    def commit(self, consumer: KafkaConsumer) -> None:
        """Commit without waiting for the answer, unless that was done a moment ago."""
        now = time.monotonic()
        if not self._waiting or now - self._committed_at < COMMIT_SECONDS:
            return
        self._committed_at = now
        try:
            future = consumer.commit_async(self._take(), callback=_log_failure)
            self._answered.clear()
            future.add_both(lambda _: self._answered.set())
        except KafkaError as error:
            _log_failure({}, error)

    def close(self, consumer: KafkaConsumer) -> None:
        """Commit what waits, and wait for the answers a little: a consumer that is closed before logs an error for each."""
        self._answered.wait(_CLOSE_MS / 1000)
        if not self._waiting:
            return
        try:
            consumer.commit(self._take(), timeout_ms=_CLOSE_MS)
        except KafkaError as error:
            _log_failure({}, error)

    def _take(self) -> dict[TopicPartition, OffsetAndMetadata]:
        offsets = {tp: OffsetAndMetadata(at, "", -1) for tp, at in self._waiting.items()}
        self._waiting = {}
        return offsets


def _log_failure(offsets: Mapping[TopicPartition, Any], answer: object) -> None:
    if isinstance(answer, Exception):
        log.info("the group's offsets were not committed (they are for display only): %s", reason(answer))

"""Dead letters to a Kafka topic, from a thread of its own: a broker that is away never holds up the loop."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError

from collector.dead_letters import encode, letter
from collector.ports import SourceUnavailable
from collector.sources.kafka.connecting import reach, reason
from collector.sources.kafka.topics import DEAD_LETTERS

PENDING_BYTES: Final = 16 * 1024 * 1024
_BATCH: Final = 200
_RETRY_SECONDS: Final = 1.0
_HEADERS: Final = [("content-type", b"application/json")]

log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    key: bytes
    line: bytes


class KafkaDeadLetters:
    """Sends dead letters to `topic` in the background; `settings` go to kafka.KafkaProducer.

    `put` takes microseconds and never blocks. Up to `pending_bytes` wait while the broker is away; more are dropped, the
    newest first, and counted. Letters that still wait in memory when the process is killed are lost: their values are in the
    source topic, and their positions in nobody's way. `close` waits for at most `close_seconds`.

    `kept` counts letters that the broker acknowledged.
    """

    def __init__(
        self,
        bootstrap: Sequence[str] | str,
        topic: str = DEAD_LETTERS,
        *,
        pending_bytes: int = PENDING_BYTES,
        close_seconds: float = 5.0,
        connect_seconds: float = 3.0,
        **settings: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._limit = pending_bytes
        self._close_seconds = close_seconds
        self._connect_seconds = connect_seconds
        # max_block_ms bounds how long a send waits for metadata, delivery_timeout_ms how long for an answer.
        bounds = {"max_block_ms": 2_000, "request_timeout_ms": 5_000, "delivery_timeout_ms": 10_000}
        self._config = {"linger_ms": 5, "allow_auto_create_topics": False, "metrics_enabled": False, **bounds, **settings}
        self._state = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._size = 0
        self._closing = False
        self._failing = False
        self._thread: threading.Thread | None = None
        self.kept = 0
        self.dropped = 0

    def put(self, *, partition: str, offset: int, reason: str, detail: str, value: bytes, rejected_at: float) -> None:
        dead = letter(partition=partition, offset=offset, reason=reason, detail=detail, value=value, rejected_at=rejected_at)
        line = encode(dead)
        with self._state:
            if self._closing or self._size + len(line) > self._limit:
                self.dropped += 1
                return
            self._waiting.append(_Waiting(partition.encode("utf-8", "backslashreplace"), line))
            self._size += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dead-letters", daemon=True)
                self._thread.start()
            self._state.notify_all()

    def close(self) -> None:
        with self._state:
            self._closing = True
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(self._close_seconds)
        with self._state:
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._size = 0

    def _run(self) -> None:
        producer: Any = None
        try:
            while batch := self._next_batch():
                try:
                    if producer is None:
                        producer = reach(KafkaProducer, self._bootstrap, self._config, self._connect_seconds)
                    failed = self._send(producer, batch)
                except (SourceUnavailable, KafkaError, ValueError) as error:
                    failed = error
                if failed is not None:
                    self._say(failed)
                    with self._state:
                        if self._closing:
                            return
                        self._state.wait(_RETRY_SECONDS)
        finally:
            if producer is not None:
                producer.close(timeout=1.0)

    def _next_batch(self) -> list[_Waiting]:
        """The oldest letters, which stay in the queue until they are acknowledged; empty when it is time to end."""
        with self._state:
            while not self._waiting and not self._closing:
                self._state.wait()
            return [self._waiting[index] for index in range(min(_BATCH, len(self._waiting)))]

    def _send(self, producer: Any, batch: list[_Waiting]) -> Exception | None:
        """Send and wait. What is acknowledged leaves the queue, oldest first; the first failure is returned, to try again."""
        futures = [producer.send(self._topic, item.line, key=item.key, headers=_HEADERS) for item in batch]
        for item, future in zip(batch, futures, strict=True):
            try:
                future.get(timeout=15)
            except KafkaError as error:
                failure: Exception = error
                return failure
            with self._state:
                if not self._waiting or self._waiting[0] is not item:  # close() has given up
                    return None
                self._waiting.popleft()
                self._size -= len(item.line)
                self.kept += 1
        self._failing = False
        return None

    def _say(self, error: Exception) -> None:
        """Log the first failure of a row."""
        if not self._failing:
            log.error("dead letters wait, they cannot be sent to topic %s: %s", self._topic, reason(error))
        self._failing = True

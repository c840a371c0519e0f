"""Single messages to Kafka, each acknowledged by all replicas before the next, in bounded time.

Errors:

    NotWritten     the message was not acknowledged; says whether to try again and whether it may be there all the same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka import KafkaProducer, errors

from collector.ports import SourceUnavailable
from collector.sources.kafka.connecting import reach, reason

_FOR_GOOD: Final = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidRecordError,
    errors.InvalidTopicError,
    errors.AuthorizationError,
)


class NotWritten(Exception):
    """Not acknowledged; `why` is one word for counters, the text is for people."""

    def __init__(self, why: str, text: str, *, retry: bool = True, ambiguous: bool = False) -> None:
        super().__init__(text)
        self.why = why
        self.retry = retry
        self.ambiguous = ambiguous


class KafkaWriter:
    """One producer, made with the first message and anew after a failure. Used by one thread.

    `connect_seconds` bound the way to the cluster, `seconds` the acknowledgement; `settings` go to kafka.KafkaProducer.
    Nothing is connected here. Raises ValueError for settings that kafka-python does not know.
    """

    def __init__(
        self, bootstrap: Sequence[str], *, seconds: float = 10.0, connect_seconds: float = 5.0, **settings: Any
    ) -> None:
        if unknown := sorted(settings.keys() - KafkaProducer.DEFAULT_CONFIG.keys()):
            raise ValueError(f"Kafka settings that kafka-python does not know: {', '.join(unknown)}")
        self._bootstrap = list(bootstrap)
        self._seconds = seconds
        self._connect_seconds = connect_seconds
        whole = int(seconds * 1000)
        self._config: dict[str, Any] = {
            **settings,
            "acks": "all",
            # The broker drops what the producer itself repeats after a lost answer.
            "enable_idempotence": True,
            "linger_ms": 0,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
            "max_block_ms": int(connect_seconds * 1000),
            "request_timeout_ms": max(1_000, whole // 2),
            "delivery_timeout_ms": max(1_000, whole),
            "reconnect_backoff_max_ms": 1_000,
        }
        self._producer: Any = None

    def write(self, topic: str, *, key: bytes, value: bytes, headers: Mapping[str, bytes]) -> tuple[int, int]:
        """Partition and offset of the message. Raises NotWritten."""
        try:
            if self._producer is None:
                self._producer = reach(KafkaProducer, self._bootstrap, self._config, self._connect_seconds)
        except SourceUnavailable as error:
            raise NotWritten("unreachable", str(error)) from error
        try:
            future = self._producer.send(topic, value, key=key, headers=list(headers.items()))
        except _FOR_GOOD as error:
            raise NotWritten("rejected", reason(error), retry=False) from error
        except (errors.KafkaError, OSError) as error:
            # No metadata in time: nothing has left. The topic may be about to be made.
            self.close()
            raise NotWritten("no_topic", f"no answer about topic {topic}; does it exist? ({reason(error)})") from error
        try:
            done = future.get(timeout=self._seconds + 1.0)
        except _FOR_GOOD as error:
            raise NotWritten("rejected", reason(error), retry=False) from error
        except (errors.KafkaError, OSError) as error:
            self.close()  # whatever is still on its way in there must not overtake the next attempt
            raise NotWritten("not_acknowledged", reason(error), ambiguous=True) from error
        return int(done.partition), int(done.offset)

    def close(self) -> None:
        """Let go of the producer; what is not acknowledged is abandoned."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=0)

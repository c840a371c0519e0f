"""Where the bytes are that made a poll raise: a batch whose checksum is wrong, or that no codec here can unpack.

kafka-python says it in the text of one error only. For every other error the partitions are tried one by one by a consumer of
their own, because the one that raised must not be polled again before it is moved: it would return the exhausted batch for
ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError, SaslAuthenticationFailedError

from collector.sources.kafka.connecting import reason

_FAILED_CRC: Final = re.compile(
    r"for partition TopicPartition\(topic='(?P<topic>[^']+)', partition=(?P<partition>\d+)\) at offset (?P<offset>\d+) failed"
)
PROBE_SECONDS: Final = 2.0


class Damage(NamedTuple):
    """A place in the log that cannot be read."""

    tp: TopicPartition
    offset: int
    reason: str
    first: bool
    """`offset` is the first of the damaged batch, however far inside of it we have come; else it is where we stand."""

    def continues(self, before: Damage) -> bool:
        """Whether this is the batch that was found `before`. A fetch inside of a batch brings the whole batch again."""
        return self.reason == before.reason and (self.offset == before.offset or not self.first)


def is_outage(error: Exception) -> bool:
    """Whether the error says that the broker cannot or will not serve us, and nothing about the bytes of a record."""
    if isinstance(error, OSError | AuthorizationError | SaslAuthenticationFailedError):
        return True
    return isinstance(error, KafkaError) and bool(error.retriable)


def named(error: Exception) -> Damage | None:
    """The place that the error's own text names."""
    if not (match := _FAILED_CRC.search(str(error))):
        return None
    return Damage(
        TopicPartition(match["topic"], int(match["partition"])), int(match["offset"]), "the checksum is wrong", first=True
    )


def probed(connect: Callable[[], KafkaConsumer], places: Mapping[TopicPartition, int]) -> Damage | None:
    """The first partition that raises when it is read alone from its place; None when all can be read.

    `connect` makes a consumer without a group. Raises SourceUnavailable as it does.
    """
    for tp, offset in places.items():
        consumer = connect()
        try:
            consumer.assign([tp])
            consumer.seek(tp, offset)
            consumer.poll(timeout_ms=int(PROBE_SECONDS * 1000), max_records=1)
        except KafkaTimeoutError:
            continue
        except Exception as error:  # whatever a decoder throws at bytes: it is the answer
            if not is_outage(error):
                return Damage(tp, offset, reason(error), first=False)
        finally:
            consumer.close(autocommit=False, timeout_ms=1000)
    return None

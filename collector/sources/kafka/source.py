"""A source that reads Kafka topics as a member of a consumer group.

The store is the authority on positions: whatever the group's committed offsets say, a partition that becomes ours is read from
`Positions.position`, or from its beginning when it was never read. The offsets that `committed` writes to the group are for
people who look at consumer lag.

`received_at` is the broker's time where the topic has `message.timestamp.type=LogAppendTime` (as `create_topics` makes it), and
the moment of the poll elsewhere, since a producer's clock is no time of receipt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    FencedInstanceIdError,
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import Positions, SourceUnavailable
from collector.sources.kafka import damage
from collector.sources.kafka.connecting import RebalanceNotes, checked, connect, forget_fetched, name, reason
from collector.sources.kafka.offsets import GroupOffsets

JSON: Final = "application/json"
_LOG_APPEND_TIME: Final = 1
_LOOK_SECONDS: Final = 2.0
"""While nothing comes, the broker is asked this often whether it is there: a dead one looks like a silent one."""
_ANSWER_SECONDS: Final = 2.0
_SHORTEST_POLL_MS: Final = 10
"""A poll of no time at all would never get to join the group."""

_OUT_SECONDS: Final = 300.0
"""Who was thrown out of the group by a second collector of the same name stays out for so long. Joining again at once would
throw out the other, which would do the same: both would read everything, for ever."""
_TWINS: Final = (
    "another collector joined the consumer group under this one's name and reads in its place; end one of the two, or give "
    "each a `name` of its own"
)

log = logging.getLogger(__name__)


class KafkaSource:
    """Reads `topics` from `bootstrap` ("host:port" or several) in consumer group `group`.

    `settings` go to kafka.KafkaConsumer as they are (security_protocol, sasl_mechanism, ssl_cafile ...). Raises ValueError
    for settings that it does not know or that cannot be changed here; it does not connect, so a broker that is down at
    construction or at `open` is no error.

    `poll` raises SourceUnavailable while there is no connection, a topic does not exist, or access is refused, and tries
    again at the next call; it may take up to `connect_seconds` longer than its timeout then. It never raises for what is in
    a record. Not thread-safe: one thread opens, polls, commits and closes.

    A batch that cannot be read (wrong checksum, no codec) is one SourceFault; reading goes on behind it. A stored position
    outside of the log is moved to the log's nearest end, with a SourceFault that says what is missing.

    After a rebalance a partition that stays ours is told neither as revoked nor as assigned, if the store still stands
    where we stand; otherwise somebody else may have read it, and it is told as both.
    """

    def __init__(
        self,
        bootstrap: Sequence[str] | str,
        topics: Sequence[str],
        group: str,
        *,
        connect_seconds: float = 3.0,
        clock: Callable[[], float] = time.time,
        **settings: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._topics = list(topics)
        self._group = group
        self._connect_seconds = connect_seconds
        self._clock = clock
        self._config = checked(settings)
        self._positions: Positions | None = None
        self._consumer: KafkaConsumer | None = None
        self._notes = RebalanceNotes(None)
        self._closed = False
        self._next: dict[TopicPartition, int] = {}
        """Placed partitions, and the offset after the last record that was handed out."""
        self._stored: dict[TopicPartition, int | None] = {}
        """What the store says as long as only we read: the position after the last record, not after what was passed over."""
        self._reached: dict[TopicPartition, int] = {}
        """Where the consumer stands when that is further: the last offsets of a log may be no records (transaction markers)."""
        self._damaged: dict[TopicPartition, damage.Damage] = {}
        """The last unreadable batch, until a record is read behind it: it is told once however many offsets it holds."""
        self._assigned: list[str] = []
        self._revoked: list[str] = []
        self._faults: list[SourceFault] = []
        self._heard_at = 0.0
        self._silent = False
        self._out_until = float("-inf")
        self._offsets = GroupOffsets()

    def open(self, positions: Positions) -> None:
        self._drop()
        self._positions = positions
        self._closed = False
        for tp in list(self._next):
            self._forget(tp)
        self._assigned, self._revoked, self._faults = [], [], []

    def poll(self, timeout: float) -> Batch:
        consumer = self._connected(timeout)
        fetched: Mapping[TopicPartition, Sequence[Any]] = {}
        try:
            fetched = consumer.poll(timeout_ms=max(int(timeout * 1000), _SHORTEST_POLL_MS))
        except NoOffsetForPartitionError:
            pass  # new partitions without a committed offset; they are placed below
        except (OffsetOutOfRangeError, LogTruncationError) as error:
            log.warning("positions are checked against the log: %s", reason(error))
            self._begin_at(consumer, {tp: (at, True) for tp, at in self._next.items()})
        except FencedInstanceIdError:
            log.error("%s", _TWINS)
            self._out_until = time.monotonic() + _OUT_SECONDS
            self._drop()
            raise SourceUnavailable(_TWINS) from None
        except Exception as error:  # from the codecs and parsers of kafka-python: anything
            self._pass_over(consumer, error)
        records = self._settled(consumer, fetched)
        if fetched:
            self._heard_at = time.monotonic()
            self._silent = False
        else:
            self._look(consumer)
        waiting = bool(self._faults) or self._notes.joining or self._behind(consumer, exact=not fetched)
        batch = Batch(records, self._faults, self._assigned, self._revoked, caught_up=not waiting)
        self._assigned, self._revoked, self._faults = [], [], []
        return batch

    def committed(self, positions: Mapping[str, int]) -> None:
        for tp in self._next:
            if (position := positions.get(name(tp))) is not None:
                self._offsets.put(tp, position)
        if self._consumer is not None:
            self._offsets.commit(self._consumer)

    def lag(self) -> Mapping[str, int]:
        if self._consumer is None:
            return {}
        waiting = {}
        for tp, at in self._next.items():
            end = self._end(self._consumer, tp)
            if end is not None and end > max(at, self._reached.get(tp, 0)):
                waiting[name(tp)] = end - at
        return waiting

    @property
    def finished(self) -> bool:
        return False

    def close(self) -> None:
        if self._consumer is not None:
            self._offsets.close(self._consumer)
        self._drop()
        self._closed = True

    # --- connection ----------------------------------------------------------------------------------------------------

    def _connected(self, timeout: float) -> KafkaConsumer:
        if self._positions is None or self._closed:
            raise RuntimeError("the source is not open")
        if self._consumer is not None:
            return self._consumer
        if time.monotonic() < self._out_until:
            time.sleep(timeout)  # the pause that a poll would have taken
            raise SourceUnavailable(_TWINS)
        consumer = connect(self._bootstrap, self._group, self._config, self._connect_seconds)
        try:
            missing = sorted(set(self._topics) - set(consumer.topics()))
            if missing:
                # The pause that a poll would have taken, so that a loop of polls does not spin.
                time.sleep(timeout)
                raise SourceUnavailable(f"no such topic: {', '.join(missing)}; `tocsin kafka init` creates them")
            self._notes = RebalanceNotes(consumer)
            consumer.subscribe(topics=self._topics, listener=self._notes)
        except BaseException as error:
            consumer.close(autocommit=False, timeout_ms=1000)
            if isinstance(error, KafkaError):
                raise SourceUnavailable(reason(error)) from error
            raise
        self._consumer = consumer
        self._heard_at = time.monotonic()
        return consumer

    def _drop(self) -> None:
        """Close the consumer. Its partitions stay known, so that the next one tells what changed in between."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False, timeout_ms=3000)
            except KafkaError as error:
                log.info("the consumer did not leave its group in time: %s", reason(error))

    def _look(self, consumer: KafkaConsumer) -> None:
        """Tell a dead broker from a silent one. Raises SourceUnavailable for the dead one."""
        if not self._silent and time.monotonic() - self._heard_at < _LOOK_SECONDS:
            return
        probe = list(self._next) or [TopicPartition(self._topics[0], 0)]
        try:
            consumer.end_offsets(probe, timeout_ms=int(_ANSWER_SECONDS * 1000))
        except KafkaError as error:
            self._silent = True
            raise SourceUnavailable(f"Kafka does not answer: {reason(error)}") from error
        self._silent = False
        self._heard_at = time.monotonic()

    # --- places --------------------------------------------------------------------------------------------------------

    def _settled(self, consumer: KafkaConsumer, fetched: Mapping[TopicPartition, Sequence[Any]]) -> list[RawRecord]:
        """The fetched records, once what a rebalance changed is in order."""
        if self._notes.changed:
            # Everything was paused; should there be records all the same, they come again from the right place.
            self._rebalanced(consumer)
            return []
        records: list[RawRecord] = []
        for tp, messages in fetched.items():
            if messages and tp in self._next:
                self._take(tp, messages, records)
        return records

    def _rebalanced(self, consumer: KafkaConsumer) -> None:
        """Note what is no longer ours, place what is new, and let all go on."""
        assert self._positions is not None
        forget_fetched(consumer)
        current = set(consumer.assignment())
        lost, self._notes.lost = self._notes.lost, set()
        for tp in [tp for tp in self._next if tp not in current or name(tp) in lost]:
            self._forget(tp)
        unplaced: dict[TopicPartition, tuple[int | None, bool]] = {}
        for tp in sorted(current):
            stored = self._positions.position(name(tp))
            if tp in self._next:
                if stored in (self._stored[tp], self._next[tp]):
                    consumer.seek(tp, self._next[tp])  # a consumer that was made anew knows the committed offset only
                    consumer.resume(tp)
                    continue
                self._forget(tp)
            unplaced[tp] = (stored, False)
        if unplaced:
            self._begin_at(consumer, unplaced)
        self._notes.changed = self._notes.joining

    def _forget(self, tp: TopicPartition) -> None:
        del self._next[tp]
        del self._stored[tp]
        self._reached.pop(tp, None)
        self._damaged.pop(tp, None)
        self._offsets.drop(tp)
        if name(tp) in self._assigned:
            self._assigned.remove(name(tp))  # never told
        else:
            self._revoked.append(name(tp))

    def _begin_at(self, consumer: KafkaConsumer, places: Mapping[TopicPartition, tuple[int | None, bool]]) -> None:
        """Seek each partition to its place, moved into the log's range; (place, whether it is ours already).

        Raises SourceUnavailable; then nothing is placed and the next poll tries again.
        """
        try:
            first = consumer.beginning_offsets(list(places), timeout_ms=int(_ANSWER_SECONDS * 1000))
            end = consumer.end_offsets(list(places), timeout_ms=int(_ANSWER_SECONDS * 1000))
        except KafkaError as error:
            raise SourceUnavailable(f"the log's range is not known: {reason(error)}") from error
        for tp, (place, ours) in places.items():
            at = min(max(first[tp] if place is None else place, first[tp]), end[tp])
            if place is not None and at != place:
                gone = "were deleted before they were read" if at > place else "are not in the log: it was cut or made anew"
                what = f"position {place} is outside of the log ({first[tp]} to {end[tp]}); the records between {gone}"
                self._faults.append(SourceFault(name(tp), place, what))
            consumer.seek(tp, at)
            consumer.resume(tp)
            self._next[tp] = at
            if not ours:
                self._stored[tp] = place
                self._assigned.append(name(tp))

    def _pass_over(self, consumer: KafkaConsumer, error: Exception) -> None:
        """Find the bytes that made a poll raise and seek behind them. Raises SourceUnavailable when it is not the bytes."""
        forget_fetched(consumer)
        if damage.is_outage(error):
            raise SourceUnavailable(reason(error)) from error
        found = damage.named(error)
        if found is None or found.tp not in self._next:
            found = damage.probed(lambda: connect(self._bootstrap, None, self._config, self._connect_seconds), self._next)
        if found is None:
            # Whatever it was, the consumer cannot be polled again. A new one begins at the stored positions.
            self._drop()
            raise SourceUnavailable(f"the connection is made anew after an error: {reason(error)}") from error
        at = max(found.offset, self._next[found.tp])
        before = self._damaged.get(found.tp)
        if before is None or not found.continues(before):
            self._damaged[found.tp] = found
            self._faults.append(SourceFault(name(found.tp), found.offset, found.reason))
        consumer.seek(found.tp, at + 1)
        self._next[found.tp] = at + 1

    # --- records -------------------------------------------------------------------------------------------------------

    def _take(self, tp: TopicPartition, messages: Sequence[Any], records: list[RawRecord]) -> None:
        partition = name(tp)
        now = self._clock()
        for message in messages:
            offset = message.offset
            received_at = message.timestamp / 1000 if message.timestamp_type == _LOG_APPEND_TIME else now
            content_type = _content_type(message.headers) if message.headers else JSON
            # A value may be absent (a tombstone); to the decoder that is no record, like empty bytes.
            records.append(RawRecord(message.value or b"", partition, offset, offset + 1, received_at, content_type))
        self._next[tp] = self._stored[tp] = messages[-1].offset + 1
        self._damaged.pop(tp, None)

    def _behind(self, consumer: KafkaConsumer, exact: bool) -> bool:
        """Whether records are known to wait, from what the fetches brought along. `exact` may ask for the reached place."""
        for tp, at in self._next.items():
            end = self._end(consumer, tp)
            if end is None:
                return True  # no fetch has been answered yet
            if at < end and exact:
                at = self._reached[tp] = consumer.position(tp, timeout_ms=0) or 0
            if at < end:
                return True
        return False

    @staticmethod
    def _end(consumer: KafkaConsumer, tp: TopicPartition) -> int | None:
        try:
            end: int | None = consumer.highwater(tp)
        except KafkaError:  # not assigned any more; the next poll says so
            return None
        return end


def _content_type(headers: Iterable[tuple[str, bytes | None]]) -> str:
    for key, value in headers:
        if key == "content-type" and value is not None:
            return value.decode("ascii", "replace")
    return JSON

"""A Kafka consumer as the source needs it: its settings, its connection, and what its rebalances noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from collector.ports import SourceUnavailable

OURS: Final[Mapping[str, Any]] = {
    # Raw bytes only: a deserializer that raises makes kafka-python's next poll spin for ever.
    "key_deserializer": None,
    "value_deserializer": None,
    # The store is the authority on positions.
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    # Creation is explicit; a misspelled topic must not come to life.
    "allow_auto_create_topics": False,
}
"""What a caller cannot set, because the source is not correct otherwise."""

DEFAULTS: Final[Mapping[str, Any]] = {
    # Latency: the broker answers as soon as there is one byte, and else soon enough that a seek need not wait long for the
    # fetch in flight. Throughput: many records per poll, few bookkeeping calls per record. Where less waits, less comes; of a
    # backlog so much that what a commit costs for each of some hundred runs is shared by several of its records.
    "fetch_min_bytes": 1,
    "fetch_max_wait_ms": 100,
    "max_poll_records": 2_000,
    "max_partition_fetch_bytes": 5 * 1024 * 1024,  # a record of 4 MiB with its headers
    "metrics_enabled": False,
    "check_crcs": True,
    # A collector that was killed frees its partitions after this time; the default of 45 s is long for an alarm.
    "session_timeout_ms": 15_000,
    # The default backs off to 30 s, long after a broker is back.
    "reconnect_backoff_max_ms": 1_000,
    "request_timeout_ms": 20_000,
    # Few partitions change hands when a collector joins or leaves; a run that changes hands is restored from the store.
    "partition_assignment_strategy": (StickyPartitionAssignor,),
}
"""What a caller may set otherwise."""

_HOW_TO_REACH: Final = frozenset({"security_protocol", "api_version", "proxy_url", "client_dns_lookup"})


class RebalanceNotes(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    """Remembers that something changed. It runs on the client's I/O thread, where heartbeats wait for it.

    It pauses what was assigned (a flag, nothing is sent): otherwise the poll that is under way would fetch from the group's
    committed offsets, which are not the authority, and might stumble there over bytes that were passed long ago.
    """

    def __init__(self, consumer: KafkaConsumer | None) -> None:
        self._consumer = consumer
        self.changed = False
        self.joining = True
        """No assignment is in force: nobody may call this caught up."""
        self.lost: set[str] = set()
        """Partitions that another collector may have read in between, although they may be ours again."""

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.joining = True
        self.changed = True

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        self.lost |= {name(tp) for tp in lost}
        self.joining = True
        self.changed = True

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        if self._consumer is not None:
            self._consumer.pause(*assigned)
        self.joining = False
        self.changed = True


def name(tp: TopicPartition) -> str:
    """The partition's name everywhere outside: "tocsin.records/3"."""
    return f"{tp.topic}/{tp.partition}"


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for KafkaConsumer on top of our defaults. Raises ValueError for one it does not know or that is ours."""
    if taken := sorted(settings.keys() & (OURS.keys() | {"bootstrap_servers", "group_id"})):
        raise ValueError(f"Kafka settings that cannot be set here: {', '.join(taken)}")
    if unknown := sorted(settings.keys() - KafkaConsumer.DEFAULT_CONFIG.keys()):
        raise ValueError(f"Kafka settings that kafka-python does not know: {', '.join(unknown)}")
    return {**DEFAULTS, **settings, **OURS}


def security(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a consumer's settings that a producer and an admin client need as well to reach the same cluster."""
    return {key: value for key, value in settings.items() if key.startswith(("ssl_", "sasl_")) or key in _HOW_TO_REACH}


def connect(bootstrap: Sequence[str] | str, group: str | None, config: Mapping[str, Any], seconds: float) -> KafkaConsumer:
    """A consumer that has reached the cluster within `seconds`. Raises SourceUnavailable."""
    return reach(KafkaConsumer, bootstrap, {**config, "group_id": group}, seconds)


def reach(kind: Any, bootstrap: Sequence[str] | str, config: Mapping[str, Any], seconds: float) -> Any:
    """A KafkaConsumer, KafkaProducer or KafkaAdminClient that has reached the cluster within `seconds`.

    Raises SourceUnavailable, and ValueError for a setting that the class does not know.
    """
    if unknown := sorted(config.keys() - kind.DEFAULT_CONFIG.keys()):
        raise ValueError(f"Kafka settings that kafka-python does not know: {', '.join(unknown)}")
    clients: list[Any] = []

    def client(**options: Any) -> Any:
        made = kind.DEFAULT_CONFIG["kafka_client"](**options)
        clients.append(made)
        return made

    options = {**config, "bootstrap_timeout_ms": int(seconds * 1000), "kafka_client": client}
    try:
        return kind(bootstrap_servers=bootstrap, **options)
    except (KafkaError, OSError) as error:
        # The constructor starts its I/O thread before it looks for a broker, and leaves it running when there is none.
        for made in clients:
            made.close()
        addresses = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        raise SourceUnavailable(f"no connection to Kafka at {addresses}: {reason(error)}") from error


def forget_fetched(consumer: KafkaConsumer) -> None:
    """Make the consumer fetch anew what it holds and has not handed out.

    A batch that raised stays in kafka-python's fetcher, exhausted; the next poll at the same position would ask it for
    records for ever, without a timeout. There is no public call that throws it away, but the fetcher's own `close` does
    that and nothing else. Where a later version has none, seeking elsewhere has the same effect.
    """
    close = getattr(getattr(consumer, "_fetcher", None), "close", None)
    if callable(close):
        close()


def reason(error: BaseException) -> str:
    """An error in one line; kafka-python's own texts are often empty."""
    text = " ".join(str(error).split())
    return text if text.startswith(type(error).__name__) else f"{type(error).__name__}: {text}".rstrip(": ")

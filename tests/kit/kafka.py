"""A real Kafka broker in a temporary folder. The fixtures `kafka_broker` and `private_broker` are in tests/conftest.py.

kafka-python is imported where it is used: conftest files are loaded before its import-time warnings are filtered.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.kit import services

Header = tuple[str, bytes]


class Broker:
    """One broker on 127.0.0.1. `start` after `stop` goes on with the same data on the same port."""

    def __init__(
        self, folder: Path, credentials: str | None = None, tls: Path | None = None, properties: Path | None = None
    ) -> None:
        self.folder = folder
        self.bootstrap = ""
        self.sasl_bootstrap = ""
        """The listener that asks for `credentials` ("user:password") by SASL/PLAIN, over TLS with a certificate in the file
        `tls`; empty without them."""
        self._credentials = credentials
        self._tls = tls
        self._properties = properties
        """A file with further settings of the broker."""
        self._names = itertools.count(1)

    def start(self) -> None:
        """Returns when clients are served; ends the test when Kafka or Java is missing on this machine."""
        options = ["--sasl", self._credentials] if self._credentials else []
        options += ["--tls", str(self._tls)] if self._tls else []
        options += ["--properties", str(self._properties)] if self._properties else []
        self.bootstrap, *sasl = services.run(services.KAFKA, "start", "--dir", str(self.folder), *options).splitlines()
        self.sasl_bootstrap = sasl[0] if sasl else ""

    def stop(self) -> None:
        """Returns when the process is gone; nothing to do when it is."""
        services.run(services.KAFKA, "stop", "--dir", str(self.folder))

    def topic(self, name: str = "t", partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        """Create a topic under a name that no other test has, and return that name."""
        from kafka.admin import KafkaAdminClient

        fresh = f"{name}-{next(self._names)}"
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            options = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
            admin.create_topics({fresh: options}, wait_for_metadata=True)
        finally:
            admin.close()
        return fresh

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        **settings: Any,
    ) -> list[int]:
        """Offsets of the values, written in order and acknowledged."""
        from kafka import KafkaProducer

        # Each value its own batch unless a test says otherwise: a batch is what is corrupt as a whole.
        config = {"linger_ms": 0, "acks": "all", "max_request_size": 5 * 1024 * 1024, **settings}
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, **config)
        try:
            sent = [producer.send(topic, value, key=key, headers=list(headers), partition=partition) for value in values]
            return [int(future.get(timeout=300).offset) for future in sent]
        finally:
            producer.close(timeout=300)

    def read(self, topic: str) -> list[Any]:
        """All messages of a topic up to its present end, a partition after the other. However slow the broker is, none is
        missing; whoever reads "until nothing comes for a while" instead may find nothing."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest")
        try:
            places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
            assert places, f"there is no topic {topic}"
            found: list[Any] = []
            for place, end in consumer.end_offsets(places).items():
                consumer.assign([place])
                consumer.seek_to_beginning(place)
                services.until(partial(_read_on, consumer, place, end, found), f"{end} messages of {place}", pause=0.0)
            return found
        finally:
            consumer.close()

    def segment(self, topic: str, partition: int = 0) -> Path:
        """The file that holds the first records of a partition; for tests that damage it while the broker is stopped."""
        return self.folder / "data" / f"{topic}-{partition}" / f"{0:020d}.log"


def _read_on(consumer: Any, place: Any, end: int, found: list[Any]) -> bool:
    """Whether everything before `end` is found."""
    if consumer.position(place) < end:
        found += [message for message in consumer.poll(timeout_ms=500).get(place, ()) if message.offset < end]
    return bool(consumer.position(place) >= end)

"""A source on a real Kafka, read batch by batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import SourceUnavailable
from collector.sources.kafka.source import KafkaSource
from collector.sources.memory import MemoryPositions
from tests.kit import services

_groups = itertools.count(1)


class Reader:
    """A collector's loop in small: it stores what it was handed before it polls again, and forgets what is revoked."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str | None = None,
        store: MemoryPositions | None = None,
        connect_seconds: float = 10.0,
    ) -> None:
        self.source = KafkaSource(
            bootstrap,
            [topic],
            group or f"traps-{next(_groups)}",
            connect_seconds=connect_seconds,
            heartbeat_interval_ms=500,
        )
        self.store = store or MemoryPositions()
        self.records: list[RawRecord] = []
        self.faults: list[SourceFault] = []
        self.mine: set[str] = set()
        self.changes: list[tuple[str, str]] = []
        self.outages = 0
        self.caught_up = False
        self.source.open(self.store)

    def poll(self, timeout: float = 0.2) -> Batch:
        try:
            batch = self.source.poll(timeout)
        except SourceUnavailable:
            self.outages += 1
            return Batch(caught_up=False)
        for partition in sorted(batch.revoked):
            self.mine.remove(partition)
            self.changes.append(("revoked", partition))
        for partition in sorted(batch.assigned):
            assert partition not in self.mine
            self.mine.add(partition)
            self.changes.append(("assigned", partition))
        for item in batch.records:
            assert item.partition in self.mine, "a record of somebody else's partition"
            self.store.at[item.partition] = item.next_offset
        self.records += batch.records
        self.faults += batch.faults
        self.caught_up = batch.caught_up
        return batch

    def until(self, enough: Callable[[], bool], what: str) -> None:
        def probe() -> bool:
            self.poll()
            return enough()

        services.until(probe, f"{what}; {len(self.records)} records, {self.faults}, {self.outages} outages", pause=0.0)

    @property
    def values(self) -> list[bytes]:
        return [item.value for item in self.records]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"value-%06d" % number for number in range(start, start + count)]

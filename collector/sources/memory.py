"""A source in memory: scripted by its owner, with every event that a real one can bring. For tests and benchmarks.

The stream of a partition lives outside of the reader, as a broker's log does: `push` appends to it whether or not the source
is open, and a second `MemorySource` on the same `MemoryLog` reads the same bytes at the same offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import Positions, SourceUnavailable


class MemoryPositions:
    """Positions in a dict; None for what is not in it."""

    def __init__(self, at: Mapping[str, int] | None = None) -> None:
        self.at = dict(at or {})

    def position(self, partition: str) -> int | None:
        return self.at.get(partition)


class _Entry(NamedTuple):
    value: bytes
    received_at: float
    content_type: str
    fault: str
    """Why this place cannot be read; empty for a record."""


class MemoryLog:
    """Partitions and what is in them; offsets count from 0."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.partitions: dict[str, list[_Entry]] = {}
        self._clock = clock

    def push(
        self,
        value: bytes,
        partition: str = "memory/0",
        *,
        received_at: float | None = None,
        content_type: str = "application/json",
    ) -> int:
        """Append a record and return its offset. A partition begins with its first record."""
        at = self._clock() if received_at is None else received_at
        return self._append(partition, _Entry(value, at, content_type, ""))

    def damage(self, reason: str, partition: str = "memory/0", value: bytes = b"") -> int:
        """Append a place that cannot be read and return its offset."""
        return self._append(partition, _Entry(value, self._clock(), "", reason))

    def _append(self, partition: str, entry: _Entry) -> int:
        entries = self.partitions.setdefault(partition, [])
        entries.append(entry)
        return len(entries) - 1


class MemorySource:
    """Reads a `MemoryLog`. Partitions of the log are assigned as they appear unless `assign` or `revoke` was ever called.

    `poll` never waits. `unavailable`, when set to a reason, makes it raise SourceUnavailable until it is cleared.
    """

    def __init__(self, log: MemoryLog | None = None, *, max_records: int = 500) -> None:
        self.log = log or MemoryLog()
        self.unavailable = ""
        self.closed = False
        self.told: dict[str, int] = {}
        """What `committed` said last, by partition."""
        self._max_records = max_records
        self._positions: Positions = MemoryPositions()
        self._next: dict[str, int] = {}
        self._manual: set[str] | None = None
        self._lost: set[str] = set()
        self._ends = False

    def push(self, value: bytes, partition: str = "memory/0", *, received_at: float | None = None) -> int:
        """Append a JSON record to the log and return its offset."""
        return self.log.push(value, partition, received_at=received_at)

    def assign(self, *partitions: str) -> None:
        """From the next poll on these partitions are ours as well."""
        self._manual = (set(self._next) if self._manual is None else self._manual) | set(partitions)

    def revoke(self, *partitions: str, lost: bool = False) -> None:
        """From the next poll on these partitions are no longer ours.

        With `lost`, a partition that is assigned again before that poll is still told as revoked and assigned, as when
        another collector had it in between.
        """
        self._manual = (set(self._next) if self._manual is None else self._manual) - set(partitions)
        if lost:
            self._lost |= set(partitions)

    def finish(self) -> None:
        """Nothing will be pushed any more: `finished` becomes true when all is read."""
        self._ends = True

    def open(self, positions: Positions) -> None:
        self._positions = positions
        self._next.clear()
        self.closed = False

    def poll(self, timeout: float) -> Batch:
        if self.unavailable:
            raise SourceUnavailable(self.unavailable)
        assigned, revoked = self._rebalance()
        records: list[RawRecord] = []
        faults: list[SourceFault] = []
        for partition in self._next:
            self._read(partition, records, faults)
        return Batch(records, faults, assigned, revoked, caught_up=not self.lag())

    def committed(self, positions: Mapping[str, int]) -> None:
        self.told.update(positions)

    def lag(self) -> Mapping[str, int]:
        waiting = {name: len(self.log.partitions.get(name, ())) - at for name, at in self._next.items()}
        return {name: count for name, count in waiting.items() if count > 0}

    @property
    def finished(self) -> bool:
        return self._ends and not self.lag() and all(name in self._next for name in self._wanted())

    def close(self) -> None:
        self.closed = True
        self._next.clear()

    def _wanted(self) -> list[str]:
        return sorted(self.log.partitions if self._manual is None else self._manual)

    def _rebalance(self) -> tuple[list[str], list[str]]:
        wanted = self._wanted()
        revoked = [name for name in self._next if name not in wanted or name in self._lost]
        self._lost.clear()
        for name in revoked:
            del self._next[name]
        assigned = [name for name in wanted if name not in self._next]
        for name in assigned:
            self._next[name] = self._positions.position(name) or 0
        return assigned, revoked

    def _read(self, partition: str, records: list[RawRecord], faults: list[SourceFault]) -> None:
        entries = self.log.partitions.get(partition, [])
        at = self._next[partition]
        while at < len(entries) and len(records) < self._max_records:
            entry = entries[at]
            if entry.fault:
                faults.append(SourceFault(partition, at, entry.fault, entry.value))
            else:
                records.append(RawRecord(entry.value, partition, at, at + 1, entry.received_at, entry.content_type))
            at += 1
        self._next[partition] = at

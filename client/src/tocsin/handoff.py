"""The bounded queue between a training loop and the sender's thread.

Built for `put` to be called from anywhere in a training job, a signal handler that interrupted another `put` included:
the lock is re-entrant, nothing waits, and the queue has room by dropping its oldest step records. Run and end records are
never dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Entry(NamedTuple, Generic[T]):
    """One queued item: its number in the order of `put`, its share of the byte limit, and whether it may be dropped."""

    number: int
    item: T
    size: int
    keep: bool


class Handoff(Generic[T]):
    """First in, first out, at most `max_items` items and `max_bytes` bytes (as estimated by the callers)."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._lock = threading.RLock()
        # Kept entries that overflowed: older than all in `_entries`, and never walked over again in search of a victim.
        self._kept: deque[Entry[T]] = deque()
        self._entries: deque[Entry[T]] = deque()
        self._bytes = 0
        self._next = 0

    def put(self, item: T, size: int, keep: bool = False) -> int:
        """Add an item. Returns how many older step items had to go for it (0, seldom more)."""
        with self._lock:
            self._entries.append(Entry(self._next, item, size, keep))
            self._next += 1
            self._bytes += size
            if keep or (len(self._entries) + len(self._kept) <= self._max_items and self._bytes <= self._max_bytes):
                return 0  # what must be kept never costs a step: a flush is no reason to lose one
            return self._make_room()

    def _make_room(self) -> int:
        dropped = 0
        while self._entries and (len(self._entries) + len(self._kept) > self._max_items or self._bytes > self._max_bytes):
            entry = self._entries.popleft()
            if entry.keep:
                self._kept.append(entry)
            else:
                self._bytes -= entry.size
                dropped += 1
        return dropped

    def take(self) -> list[T]:
        """All items, oldest first; the queue is empty afterwards."""
        return [entry.item for entry in self.take_entries()]

    def take_entries(self) -> list[Entry[T]]:
        """As `take`, with the numbers and sizes of the items."""
        with self._lock:
            entries = [*self._kept, *self._entries]
            self._kept.clear()
            self._entries.clear()
            self._bytes = 0  # also heals the count if a signal handler's put interrupted another one
            return entries

    def pop(self) -> Entry[T] | None:
        """The oldest entry, which leaves the queue; None when there is none."""
        with self._lock:
            for part in (self._kept, self._entries):
                if part:
                    entry = part.popleft()
                    self._bytes -= entry.size
                    return entry
            return None

    def peek(self, max_items: int, max_bytes: int) -> list[Entry[T]]:
        """The oldest entries, at least one if there is one, which stay until `done`."""
        with self._lock:
            found: list[Entry[T]] = []
            size = 0
            for entry in self._ordered():
                size += entry.size
                if found and (len(found) >= max_items or size > max_bytes):
                    break
                found.append(entry)
            return found

    def done(self, number: int) -> int:
        """Forget all entries up to and including this number. Returns how many that were."""
        with self._lock:
            before = len(self)
            for part in (self._kept, self._entries):
                while part and part[0].number <= number:
                    self._bytes -= part.popleft().size
            return before - len(self)

    def _ordered(self) -> Iterator[Entry[T]]:
        yield from self._kept
        yield from self._entries

    def __len__(self) -> int:
        return len(self._kept) + len(self._entries)

    @property
    def bytes(self) -> int:
        """Sum of the sizes of what is queued."""
        return self._bytes

"""Messages that are not confirmed yet, in order: those on disk first, then those in memory.

    append -> memory -> (Kafka away, or memory filling up) -> disk
    peek   <- disk, else memory          the oldest, which stay until `done`

Everything newer is behind everything older at all times, so a consumer that takes from the front and confirms in order can
neither lose nor reorder. Thread-safe: the sender's thread appends while the delivery thread takes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tocsin.handoff import Entry, Handoff
from tocsin.transports import Message
from tocsin.transports.segments import SEGMENT_BYTES, Segments
from tocsin.warn import warn_once

MEMORY_BYTES: Final = 32 * 1024 * 1024
DISK_BYTES: Final = 1024 * 1024 * 1024
_SPILL_SHARE: Final = 0.5
"""Memory this full goes to disk even if Kafka may still answer."""


class Backlog:
    """Bounded in memory and on disk; `folder` None means memory only."""

    def __init__(
        self,
        folder: Path | None,
        name: str,
        *,
        memory_bytes: int = MEMORY_BYTES,
        disk_bytes: int = DISK_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._memory: Handoff[Message] = Handoff(max_items=1_000_000, max_bytes=memory_bytes)
        self._memory_bytes = memory_bytes
        self._disk = Segments(folder, name, max_bytes=disk_bytes, segment_bytes=segment_bytes) if folder is not None else None
        self.dropped: Counter[str] = Counter()
        self._closed = False
        self.spooled = 0
        self.errors = 0

    def __len__(self) -> int:
        return len(self._memory) + (len(self._disk) if self._disk is not None else 0)

    @property
    def in_memory(self) -> int:
        """Messages that a crash would lose."""
        return len(self._memory)

    def append(self, messages: Sequence[Message]) -> None:
        """Put messages behind all others."""
        with self._lock:
            for message in messages:
                if self._memory.bytes > self._memory_bytes * _SPILL_SHARE and self._disk is not None:
                    self._spill()
                if lost := self._memory.put(message, len(message.value), message.keep):
                    self.dropped["memory_full"] += lost

    def peek(self, max_items: int, max_bytes: int) -> list[Entry[Message]]:
        """The oldest messages, at least one if there is one; they stay until `done`. Raises OSError: try again later."""
        with self._lock:
            if self._disk is not None and len(self._disk):
                before = self._disk.errors, len(self._disk)
                try:
                    entries = self._disk.peek(max_items, max_bytes)
                except OSError as error:
                    where = f"the fallback folder {self._folder}"
                    warn_once("fallback-read", f"cannot read {where} ({error}); its records stay there and are tried again")
                    raise
                finally:
                    self.errors += self._disk.errors - before[0]
                    if lost := before[1] - len(self._disk):
                        self.dropped["spool_unreadable"] += lost
                        warn_once("fallback", f"records in the fallback folder {self._folder} cannot be read and are lost")
                if entries:
                    return entries
            return self._memory.peek(max_items, max_bytes)

    def done(self, number: int) -> int:
        """Forget the messages up to and including this number. Returns how many that were."""
        with self._lock:
            if self._closed:
                return 0  # the files may belong to another process by now; what is confirmed this late is sent twice
            on_disk = self._disk.done(number) if self._disk is not None else 0
            return on_disk + self._memory.done(number)

    def spill(self) -> bool:
        """Bring what is in memory to disk. Returns whether nothing is left in memory."""
        with self._lock:
            return self._spill()

    def adopt(self) -> int:
        """Take over what dead processes left in the fallback folder. Returns how many messages that is."""
        with self._lock:
            return self._disk.adopt() if self._disk is not None else 0

    def close(self) -> None:
        """Bring everything to disk and let go of it. What cannot be brought there is dropped and counted."""
        with self._lock:
            if not self._spill():
                self.dropped["memory_full"] += len(self._memory.take_entries())
            self._closed = True
            if self._disk is not None:
                self._disk.close()

    def drop_descriptors(self) -> None:
        """In a forked child: let go of the parent's files without touching them. Takes no lock: the parent may hold it."""
        if self._disk is not None:
            self._disk.drop_descriptors()

    def _spill(self) -> bool:
        entries = self._memory.peek(len(self._memory) or 1, self._memory_bytes)
        if not entries:
            return True
        if self._disk is None:
            return False
        try:
            if lost := self._disk.append(entries):
                self.dropped["spool_full"] += lost
                warn_once("fallback-full", f"the fallback folder {self._folder} is full; dropping the oldest step records")
        except OSError as error:
            self.errors += 1
            warn_once("fallback", f"cannot write to the fallback folder {self._folder}: {error}; keeping records in memory")
            return False
        self._memory.done(entries[-1].number)
        self.spooled += len(entries)
        return not len(self._memory)

"""A source that is a spool folder: record files that clients append to (layout and promises: `tocsin.spool`).

A partition is a record file, its offsets are bytes. Files are read in lexicographic order, which is the order in which they
were begun, so a run that goes on in a new file stays in order. Only complete lines are records; blank ones are none.

What can go wrong with a file is a fault with its place, once, and never stops the others:

    a line over the limit     skipped without holding it in memory
    a file became shorter     reading goes on where it stood once the file is longer again (a writer takes back a batch that
                              did not fit on the disk, and writes the same batch again); if that is no beginning of a line,
                              it goes on at the next one
    a file was removed        with bytes that were never read; without such it is forgotten silently
    a file cannot be read     and is tried again at each poll

A new file is told as assigned. A removed one is not told as revoked: nobody took it over, and its runs may live on in a
younger file.

`received_at` is the moment of the poll, by the clock that is handed in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import Positions, SourceUnavailable
from collector.sources.lines import LineReader
from tocsin import spool

POLL_BYTES: Final = 8 * 1024 * 1024
"""After this many bytes a poll hands over what it has."""
QUIET_NS: Final = 2_000_000_000
"""Longer than the coarsest clock of a file system in use (2 s on FAT, 1 s on old network file systems)."""
CLEAN_SECONDS: Final = 60.0
"""How often old files are looked for: a spool may hold thousands, and commits come many times a second."""


class SpoolSource:
    """Reads the spool in `folder`; looks for news every `poll_interval` seconds while a poll waits.

    With `keep_seconds`, a file is deleted once the store holds all of it and nobody has written to it for that long. It
    must be longer than any pause of a trainer: a writer with an open file that was deleted writes into nothing.

    Raises SourceUnavailable from `poll` while the folder cannot be listed; a folder that does not exist yet is empty.
    """

    def __init__(
        self,
        folder: Path,
        *,
        poll_interval: float = 0.2,
        max_records: int = 500,
        keep_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._interval = poll_interval
        self._max_records = max_records
        self._keep = keep_seconds
        self._clock = clock
        self._wait = wait
        self._positions: Positions | None = None
        self._readers: dict[str, LineReader] = {}
        self._stored: dict[str, int] = {}
        self._clean_at = 0.0
        self._paths: list[Path] = []
        self._listed_ns: int | None = None
        """The folder's time of change at the last listing that can be relied on."""

    def open(self, positions: Positions) -> None:
        self._positions = positions
        self._readers.clear()
        self._stored.clear()
        self._paths = []
        self._listed_ns = None

    def poll(self, timeout: float) -> Batch:
        remaining = timeout
        while True:
            batch = self._once()
            if batch.records or batch.faults or batch.assigned or remaining <= 0:
                return batch
            pause = min(self._interval, remaining)
            self._wait(pause)
            remaining -= pause

    def committed(self, positions: Mapping[str, int]) -> None:
        for name, position in positions.items():
            if name in self._readers:
                self._stored[name] = position
        if self._keep is not None and (now := self._clock()) >= self._clean_at:
            self._clean_at = now + CLEAN_SECONDS
            self._clean(now - self._keep)

    def lag(self) -> Mapping[str, int]:
        """Bytes behind the last record handed out, by file; an unfinished last line counts as well."""
        return {name: reader.size - reader.offset for name, reader in self._readers.items() if reader.size > reader.offset}

    @property
    def finished(self) -> bool:
        return False

    def close(self) -> None:
        self._readers.clear()

    def _once(self) -> Batch:
        assert self._positions is not None, "open() comes before poll()"
        records: list[RawRecord] = []
        faults = self._list()
        assigned: list[str] = []
        budget = POLL_BYTES
        whole = True
        for path in self._paths:
            if len(records) >= self._max_records or budget <= 0:
                whole = False
                break
            reader = self._readers.get(path.name)
            if reader is None:
                position = self._positions.position(path.name) or 0
                reader = self._readers[path.name] = LineReader(path, position)
                self._stored[path.name] = position  # a file that was read before a restart brings no commit any more
                assigned.append(path.name)
            elif not reader.news():
                whole = whole and reader.at_end
                continue
            before = reader.offset
            self._read(reader, records, faults, budget)
            budget -= reader.offset - before
            whole = whole and reader.at_end
        return Batch(records, faults, assigned, caught_up=whole)

    def _list(self) -> list[SourceFault]:
        """Look which files there are, if the folder changed; faults of those that vanished. Raises SourceUnavailable."""
        try:
            changed_ns = os.stat(self._folder / spool.RECORDS).st_mtime_ns
        except OSError:
            changed_ns = -1  # listing it will say what is wrong
        # A file that is made within one tick of the file system's clock after a listing does not show in the time of the
        # folder, so a listing counts for later ones only if the folder was quiet for a while before it.
        if changed_ns == self._listed_ns:
            return []
        now_ns = time.time_ns()  # the file system's clock, whatever clock dates the records
        try:
            self._paths = spool.record_files(self._folder)
        except OSError as error:
            raise SourceUnavailable(f"the spool cannot be listed: {error.strerror or error}") from error
        quiet = changed_ns >= 0 and now_ns - changed_ns > QUIET_NS
        self._listed_ns = changed_ns if quiet else None
        return self._removed({path.name for path in self._paths})

    def _read(self, reader: LineReader, records: list[RawRecord], faults: list[SourceFault], budget: int) -> None:
        """Everything up to the limits of this poll, so that no younger file overtakes what this one holds."""
        name = reader.path.name
        now = self._clock()
        stop = reader.offset + budget
        while len(records) < self._max_records and reader.offset < stop:
            lines, problem = reader.read(self._max_records - len(records))
            for offset, line in lines:
                if line.strip():
                    records.append(RawRecord(line, name, offset, offset + len(line) + 1, now))
            if problem is not None:
                faults.append(SourceFault(name, problem.offset, problem.reason))
            elif not lines:
                return

    def _removed(self, present: set[str]) -> list[SourceFault]:
        faults = []
        for name in [name for name in self._readers if name not in present]:
            reader = self._readers.pop(name)
            self._stored.pop(name, None)
            if (lost := reader.size - reader.offset) > 0:
                faults.append(SourceFault(name, reader.offset, f"the file was removed with {lost} bytes unread"))
        return faults

    def _clean(self, before: float) -> None:
        """Delete what is stored as a whole and was not written to since `before`."""
        for name, position in list(self._stored.items()):
            path = self._folder / spool.RECORDS / name
            try:
                status = path.stat()
                if status.st_mtime >= before or status.st_size != position:
                    continue
                os.unlink(path)
            except OSError:
                continue  # it stays; the next commit tries again
            del self._readers[name], self._stored[name]

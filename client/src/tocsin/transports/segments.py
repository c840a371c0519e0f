"""The disk half of the backlog: numbered records in files, read from the front, written at the end, bounded.

    <root>/<created_ns:020d>-<slug>-<pid>-<6 hex>/lock             held with flock while the owner lives
    <root>/<created_ns:020d>-<slug>-<pid>-<6 hex>/records/*.jsonl  the segments, in the layout of the spool

A folder whose lock nobody holds belongs to a process that died; the next process takes it over and sends its records first.
A segment is deleted when all its records are confirmed, so a crash sends at most one segment again.

Errors: OSError from `append`, and from `peek` for a file that may be readable later (no descriptor left, a network disk that is
away); everything else is absorbed and counted in `errors`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tocsin import spool
from tocsin.handoff import Entry
from tocsin.transports import Message

SEGMENT_BYTES: Final = 8 * 1024 * 1024
READ_ATTEMPTS: Final = 20
"""A segment that could not be read so many times in a row is given up: what is behind it must not wait for ever."""
_LOCK: Final = "lock"
_UNBORN: Final = ".new"


class _Envelope(msgspec.Struct):
    run: str
    time: float
    kind: str


class Segment:
    """One file and what is known of its records: numbers, line lengths and which must be kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.numbers = array("q")
        self.sizes = array("L")
        self.keeps = bytearray()
        self.first = 0
        """Index of the first record that is not confirmed."""
        self.offset = 0
        """Where that record begins."""
        self.size = 0
        self.thinned = False
        """Only records that must be kept are left in it."""

    def __len__(self) -> int:
        return len(self.numbers) - self.first

    def add(self, number: int, size: int, keep: bool) -> None:
        """Note a record that was appended to the file; `size` includes its newline."""
        self.numbers.append(number)
        self.sizes.append(size)
        self.keeps.append(keep)
        self.size += size

    def lines(self, max_items: int, max_bytes: int) -> tuple[int, list[bytes]]:
        """Index of the first unconfirmed record, and it and its successors, without newlines. Raises OSError."""
        last, total = self.first, 0
        while (
            last < len(self.numbers) and last - self.first < max_items and (total == 0 or total + self.sizes[last] <= max_bytes)
        ):
            total += self.sizes[last]
            last += 1
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(total)
        found, at = [], 0
        for size in self.sizes[self.first : last]:
            found.append(data[at : at + size - 1])
            at += size
        return self.first, found


class Segments:
    """All segments of one process, those it took over in front. Not thread-safe: the backlog holds its lock."""

    def __init__(self, root: Path, name: str, *, max_bytes: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._root = root
        self._name = name
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._locks: dict[Path, int] = {}
        self._writer: spool.SpoolWriter | None = None
        self._bytes = 0
        self._count = 0
        self._failures = 0
        """How often in a row the first segment could not be read."""
        self.errors = 0

    def __len__(self) -> int:
        return self._count

    def append(self, entries: Sequence[Entry[Message]]) -> int:
        """Write entries behind all others. Returns how many older step records had to go. Raises OSError (none written)."""
        if self._writer is None:
            self._writer = spool.SpoolWriter(self._own_folder(), self._name, max_file_bytes=self._segment_bytes)
        self._writer.append(entry.item.value for entry in entries)
        path = self._writer.path
        if path is not None and (not self._segments or self._segments[-1].path != path):
            self._segments.append(Segment(path))
        for entry in entries:
            size = len(entry.item.value) + 1
            self._segments[-1].add(entry.number, size, entry.item.keep)
            self._bytes += size
        self._count += len(entries)
        return self._make_room()

    def peek(self, max_items: int, max_bytes: int) -> list[Entry[Message]]:
        """The oldest records, from one segment. One that is gone or damaged is left out and counted as an error.

        Raises OSError when the file cannot be read now; it is there and stays, up to READ_ATTEMPTS.
        """
        while self._segments:
            segment = self._segments[0]
            try:
                first, lines = segment.lines(max_items, max_bytes)
                entries = [
                    Entry(segment.numbers[first + index], _message(line), len(line) + 1, bool(segment.keeps[first + index]))
                    for index, line in enumerate(lines)
                ]
            except (OSError, msgspec.MsgspecError) as error:
                self.errors += 1
                self._failures += 1
                if isinstance(error, OSError) and not isinstance(error, FileNotFoundError) and self._failures < READ_ATTEMPTS:
                    raise
                self._remove(segment)
                self._failures = 0
                continue
            self._failures = 0
            if entries:
                return entries
            self._remove(segment)
        return []

    def done(self, number: int) -> int:
        """Forget the records up to and including this number. Returns how many that were."""
        before = self._count
        for segment in list(self._segments):
            while segment.first < len(segment.numbers) and segment.numbers[segment.first] <= number:
                size = segment.sizes[segment.first]
                segment.offset += size
                segment.first += 1
                self._bytes -= size
                self._count -= 1
            if len(segment):
                break
            self._remove(segment)
        return before - self._count

    def adopt(self) -> int:
        """Take over what processes that died have left in the root folder. Returns how many records that is."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._root) if entry.is_dir())
        except OSError:
            return 0
        found: list[Segment] = []
        for name in names:
            folder = self._root / name
            if not name.endswith(_UNBORN) and folder not in self._locks and self._lock(folder):
                segments = [segment for path in spool.record_files(folder) if (segment := self._scan(path)) is not None]
                found.extend(segments)
                if not segments:
                    self._forget_folder(folder)
        number = -sum(len(segment) for segment in found)  # older than all of ours, which begin at 0
        total = -number
        for segment in found:
            for index in range(len(segment)):
                segment.numbers[index] = number
                number += 1
            self._bytes += segment.size
        self._count += total
        self._segments[:0] = found
        return total

    def close(self) -> None:
        """Let go of files and locks. What is left on disk is for the next process."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for folder in list(self._locks):
            self._forget_folder(folder)

    def drop_descriptors(self) -> None:
        """In a forked child: close the inherited descriptors, so that the locks end with the parent."""
        if self._writer is not None:
            self._writer.close()
        for fd in self._locks.values():
            with contextlib.suppress(OSError):  # closed is closed
                os.close(fd)
        self._locks.clear()
        self._segments.clear()

    def _make_room(self) -> int:
        dropped = 0
        for segment in list(self._segments):
            if self._bytes <= self._max_bytes:
                break
            if not segment.thinned:
                dropped += self._thin(segment)
        return dropped

    def _thin(self, segment: Segment) -> int:
        """Drop the step records of a segment; run and end records stay, in their order and with their numbers."""
        if self._writer is not None and self._writer.path == segment.path:
            self._writer.close()
            self._writer = None
        kept = [index for index in range(segment.first, len(segment.numbers)) if segment.keeps[index]]
        dropped = len(segment) - len(kept)
        if not kept:
            self._remove(segment)
            return dropped
        replacement = Segment(segment.path)
        replacement.thinned = True
        try:
            first, lines = segment.lines(len(segment), segment.size)
            temporary = segment.path.with_suffix(".thin")
            temporary.write_bytes(b"".join(lines[index - first] + b"\n" for index in kept))
            os.replace(temporary, segment.path)
        except OSError:
            self.errors += 1
            segment.thinned = True
            return 0
        for index in kept:
            replacement.add(segment.numbers[index], segment.sizes[index], True)
        self._bytes -= sum(segment.sizes[segment.first :]) - replacement.size
        self._count -= dropped
        self._segments[self._segments.index(segment)] = replacement
        return dropped

    def _remove(self, segment: Segment) -> None:
        self._segments.remove(segment)
        self._count -= len(segment)
        self._bytes -= sum(segment.sizes[segment.first :])
        if self._writer is not None and self._writer.path == segment.path:
            self._writer.close()
            self._writer = None
        with contextlib.suppress(OSError):  # a file that stays is sent again by a later process: a duplicate, no loss
            segment.path.unlink()
        folder = segment.path.parent.parent
        if not any(other.path.parent.parent == folder for other in self._segments):
            self._forget_folder(folder)

    def _own_folder(self) -> Path:
        name = f"{time.time_ns():020d}-{spool.slug(self._name)}-{os.getpid()}-{secrets.token_hex(3)}"
        unborn, folder = self._root / (name + _UNBORN), self._root / name
        unborn.mkdir(parents=True)
        fd = os.open(unborn / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(OSError):  # a file system without locks: then nobody can take the folder over either
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unborn, folder)  # only a locked folder is ever seen under its final name
        self._locks[folder] = fd
        return folder

    def _lock(self, folder: Path) -> bool:
        try:
            fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._locks[folder] = fd
        return True

    def _forget_folder(self, folder: Path) -> None:
        """Unlock a folder, and delete it if no record is left in it."""
        fd = self._locks.pop(folder, -1)
        if fd < 0:
            return
        if not spool.record_files(folder):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)

    def _scan(self, path: Path) -> Segment | None:
        """A dead process's file as a segment; None (and the file deleted) when no complete record is in it."""
        segment = Segment(path)
        try:
            with path.open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    segment.add(0, len(line), _message(line).keep)
        except msgspec.MsgspecError:
            self.errors += 1  # a damaged line: what stands before it is good
        except OSError:
            self.errors += 1
            return None
        if not len(segment):
            with contextlib.suppress(OSError):  # an empty file that stays is looked at again by the next process
                path.unlink()
            return None
        return segment


def _message(line: bytes) -> Message:
    envelope = msgspec.json.decode(line, type=_Envelope)
    return Message(envelope.run, line.rstrip(b"\n"), envelope.time, envelope.kind != "step")

"""The rows of files that follow each other and grow: one after the other, from any place, also when files are removed, grow in
the middle of a row, or are begun anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from tocsin.dumps.rows import Row, rows
from tocsin.ship.bookmarks import FINGERPRINT_BYTES, Fingerprint, fingerprint

_NOTHING: Final = Fingerprint(0, 0, 0)
Shard = tuple[str, Path]
"""(run, file): each start of a trainer may be a run of its own."""
Files = Callable[[Path], list[Shard]]
"""The shards in a folder, in the order of writing. Raises OSError."""


class Place(NamedTuple):
    """Where a row begins."""

    run: str
    file: str
    """The file's name; empty = nowhere yet."""
    offset: int
    """Of the row."""
    sample: int = 0
    """The first sample of the row that counts: a row may close one step and begin the next."""
    checksum: int = 0
    """Of the row before, for formats that repeat their samples."""


NOWHERE: Final = Place("", "", 0)


class Proof(NamedTuple):
    """What stood in a file around a place: by it the place is recognised later."""

    inode: int
    begins: Fingerprint
    before: Fingerprint


class Shards:
    """A reader of shards. `at` is where it goes on."""

    def __init__(self) -> None:
        self.at = NOWHERE
        self._number = 1
        """Of the next row, within what this reader read of the file."""
        self._file: BinaryIO | None = None
        self._rows: Iterator[Row] | None = None
        self._before = _NOTHING
        """What stands before the place that was read to, to notice that a file was begun anew."""
        self._size = -1
        """Of the file at the last look."""

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file, self._rows = None, None

    def turn(self, shard: Shard, offset: int = 0) -> None:
        """Go on in another file."""
        self.close()
        self.at = Place(shard[0], shard[1].name, offset, 0, self.at.checksum)
        self._number, self._before, self._size = 1, _NOTHING, -1

    def behind(self, shards: list[Shard]) -> Shard | None:
        """The first shard after the one that is being read."""
        here = (self.at.run, self.at.file)
        return next((shard for shard in shards if (shard[0], shard[1].name) > here), None)

    def begun_anew(self, shards: list[Shard]) -> Shard | None:
        """The shard that is being read, if it is another file by now, shorter than what was read, or has other bytes there."""
        path = path_of(self.at, shards)
        if self._file is None or path is None:
            return None
        status = os.fstat(self._file.fileno())
        same = path.stat().st_ino == status.st_ino and status.st_size >= self.at.offset and self._before.matches(self._file)
        return None if same else (self.at.run, path)

    def grew(self) -> bool:
        """Whether the file has another size than at the last look."""
        if self._file is None:
            return False
        before, self._size = self._size, os.fstat(self._file.fileno()).st_size
        return self._size != before

    @property
    def torn(self) -> bool:
        """Whether a row stands half-written at the end."""
        return self._size > self.at.offset

    def written_ns(self) -> int | None:
        """When the file was last written."""
        return os.fstat(self._file.fileno()).st_mtime_ns if self._file is not None else None

    def next(self, shards: list[Shard], last: bool) -> tuple[Place, Row] | None:
        """The next row and where it begins, from the next shard when this one is read; None for now when there is none.

        What stands at the end of the last shard without a newline is a row in a last look only, if it can be read.
        """
        while True:
            behind = self.behind(shards)
            if self._file is None:
                if (path := path_of(self.at, shards)) is not None:
                    self._file = path.open("rb", buffering=0)
                elif behind is not None:  # removed: the shards behind it go on
                    self.turn(behind)
                    continue
                else:
                    return None
            if self._rows is None:
                self._file.seek(self.at.offset)
                self._rows = rows(self._file, self.at.offset, self._number)
            row = next(self._rows, None)
            if row is not None and (row.complete or behind is not None or (last and row.value is not None)):
                begins = self.at._replace(offset=row.offset)
                self.at = self.at._replace(offset=row.next_offset, sample=0)
                self._number = row.number + 1
                return begins, row
            self._rows = None
            if behind is None:
                self._before = fingerprint(self._file, self.at.offset)
                return None
            self.turn(behind)


def path_of(place: Place, shards: list[Shard]) -> Path | None:
    """The file of a place; None when it is not there any more."""
    return next((path for _, path in shards if path.name == place.file), None)


def proof(place: Place, shards: list[Shard]) -> Proof | None:
    """What stands around a place; None when its file is gone. Raises OSError."""
    path = path_of(place, shards)
    if path is None:
        return None
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        begins = fingerprint(file, min(status.st_size, FINGERPRINT_BYTES, place.offset))
        return Proof(status.st_ino, begins, fingerprint(file, place.offset))

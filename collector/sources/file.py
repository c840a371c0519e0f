"""A source that is one file: a log of any format that `tocsin.formats` knows, read to its end.

The partition is `<run>/<file name>`. Offsets are those of the format: bytes of the uncompressed log, or rows of a document that
is read as a whole; several records of one line share its offset, and a reader that goes on from there gets them again.

A line of the canonical format is handed on as it is, unread, like a message of a broker; a record of another format is encoded
anew, with the same bytes at every reading. `received_at` is 0.0: nobody received a file. Whoever replays one takes the event
time of its records instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import Positions, SourceUnavailable
from tocsin import wire
from tocsin.formats import detect, read_records, run_id
from tocsin.formats.canonical import CANONICAL
from tocsin.formats.reading import lines, open_log

_FAULT_BYTES: Final = 4096
"""So much of an unreadable place is shown."""


class _Place(NamedTuple):
    offset: int
    next_offset: int
    value: bytes
    error: str = ""


class FileSource:
    """Reads `path` once, up to `max_records` places per poll; `finished` when the end was handed out.

    `format`, `run` and `names` go to `tocsin.formats.read_records`: the format's name ("auto": recognised from the content),
    the run's id where the log has none (None: from the path), and the vocabulary of its keys.

    A file that cannot be opened, or whose disk fails half-way, is SourceUnavailable; the next poll tries again from the
    same place. What the parser cannot read inside is a SourceFault. A content that no format recognises raises
    `tocsin.formats.UnknownFormat` from the first poll: that is a mistake of whoever named the file.
    """

    def __init__(
        self,
        path: Path,
        format: str = "auto",
        *,
        run: str | None = None,
        names: str | None = None,
        max_records: int = 500,
    ) -> None:
        self.partition = f"{run or run_id(path)}/{path.name}"
        self._path = path
        self._format = format
        self._run = run
        self._names = names
        self._max_records = max_records
        self._stream: Iterator[_Place] | None = None
        self._next = 0
        self._given = 0
        """Places handed out at `_next` already: several records of one line share an offset."""
        self._fresh = False
        self._finished = False

    def open(self, positions: Positions) -> None:
        self._next = positions.position(self.partition) or 0
        self._given = 0
        self._stream = None
        self._fresh = True
        self._finished = False

    def poll(self, timeout: float) -> Batch:
        """Never waits: what is in a file is there."""
        assigned = (self.partition,) if self._fresh else ()
        records: list[RawRecord] = []
        faults: list[SourceFault] = []
        try:
            for place in self._places():
                self._take(place, records, faults)
        except OSError as error:
            self._stream = None  # and read again up to where we are, when the file can be read again
            if not records and not faults:
                raise SourceUnavailable(f"{self._path.name}: {error.strerror or error}") from error
        self._fresh = False
        return Batch(records, faults, assigned, caught_up=self._finished)

    def committed(self, positions: Mapping[str, int]) -> None:
        """A file has no use for it."""

    def lag(self) -> Mapping[str, int]:
        """Nothing: the end of a compressed log is not known before it is reached."""
        return {}

    @property
    def finished(self) -> bool:
        return self._finished

    def close(self) -> None:
        self._stream = None
        self._finished = True

    def _places(self) -> Iterator[_Place]:
        if self._finished:
            return
        if self._stream is None:
            self._stream = self._from_here()
        count = 0
        for place in itertools.islice(self._stream, self._max_records):
            count += 1
            yield place
        self._finished = count < self._max_records

    def _from_here(self) -> Iterator[_Place]:
        """The log again, without what was handed out."""
        behind, given = self._next, self._given
        for place in self._whole():
            if place.offset < behind:
                continue
            if place.offset == behind and given > 0:
                given -= 1
                continue
            yield place

    def _whole(self) -> Iterator[_Place]:
        name = detect(self._path) if self._format == "auto" else self._format
        if name == CANONICAL.name:
            with open_log(self._path) as file:
                for line in lines(file):
                    if value := line.value.strip():
                        yield _Place(line.offset, line.next_offset, value, line.error)
                    elif line.error:
                        yield _Place(line.offset, line.next_offset, b"", line.error)
            return
        for parsed in read_records(self._path, name, run=self._run, names=self._names):
            value = parsed.value if parsed.record is None else parsed.value or wire.encode(parsed.record)
            yield _Place(parsed.offset, parsed.next_offset, value, parsed.error)

    def _take(self, place: _Place, records: list[RawRecord], faults: list[SourceFault]) -> None:
        offset, next_offset = place.offset, place.next_offset
        if place.error:
            faults.append(SourceFault(self.partition, offset, place.error, place.value[:_FAULT_BYTES]))
        else:
            records.append(RawRecord(place.value, self.partition, offset, next_offset, 0.0))
        if next_offset > self._next:
            self._next, self._given = next_offset, int(offset == next_offset)
        else:
            self._given += 1

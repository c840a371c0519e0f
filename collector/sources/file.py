"""A source that is one file: a log of any format that `tocsin.formats` knows, read to its end.

The partition is `<run>/<file name>`. Offsets are those of the format: bytes of the uncompressed log, or rows of a document that
is read as a whole; several records of one line share its offset, and a reader that goes on from there gets them again.

A line of the canonical format is handed on as it is; a record of another format is encoded anew, with the same bytes at every
reading. `received_at` is 0.0: nobody received a file. Whoever replays one takes the event time of its records instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import Positions, SourceUnavailable
from tocsin import wire
from tocsin.formats import Parsed, read_records, run_id


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
        self._read: Callable[[], Iterator[Parsed]] = lambda: iter(read_records(path, format, run=run, names=names))
        self._path = path
        self._max_records = max_records
        self._stream: Iterator[Parsed] | None = None
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
            for parsed in self._places():
                self._take(parsed, records, faults)
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

    def _places(self) -> Iterator[Parsed]:
        if self._finished:
            return
        if self._stream is None:
            self._stream = self._from_here()
        count = 0
        for parsed in itertools.islice(self._stream, self._max_records):
            count += 1
            yield parsed
        self._finished = count < self._max_records

    def _from_here(self) -> Iterator[Parsed]:
        """The log again, without what was handed out."""
        behind, given = self._next, self._given
        for parsed in self._read():
            if parsed.offset < behind:
                continue
            if parsed.offset == behind and given > 0:
                given -= 1
                continue
            yield parsed

    def _take(self, parsed: Parsed, records: list[RawRecord], faults: list[SourceFault]) -> None:
        offset, next_offset = parsed.offset, parsed.next_offset
        if parsed.record is None:
            faults.append(SourceFault(self.partition, offset, parsed.error, parsed.value))
        else:
            value = parsed.value or wire.encode(parsed.record)
            records.append(RawRecord(value, self.partition, offset, next_offset, 0.0))
        if next_offset > self._next:
            self._next, self._given = next_offset, int(offset == next_offset)
        else:
            self._given += 1

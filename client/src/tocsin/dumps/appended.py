"""Follows a dump that is appended to: rows that carry their step, in one file or in shards that follow each other.

- A step is complete when a row of another step comes, or when nothing has come for a grace time.
- The place that is kept is where the step that is being collected begins: what follows is read again after a restart.
- Records are dated with the time at which the file was last written.
- A row of the step that was sent last is late: it is counted and left out. The same sample again, a step that goes back
  further, a file that was begun anew, or shards of another run are a new attempt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from tocsin.dumps.collect import Collection, Limits
from tocsin.dumps.record import Faults, Notes, make_log, step_records
from tocsin.dumps.rows import Row, rows
from tocsin.dumps.sample import BadRow, Dump, Options, Sample
from tocsin.dumps.stepwise import GRACE_SECONDS, TORN_SECONDS
from tocsin.formats import Parsed
from tocsin.formats.base import RunLog
from tocsin.ship.bookmarks import FINGERPRINT_BYTES, Bookmark, Fingerprint, fingerprint
from tocsin.ship.source import Batch, Reading

POLL_BYTES: Final = 64 * 1024 * 1024
MAX_KEYS: Final = 8192
"""Samples of the last step that a bookmark remembers."""
_NOTHING: Final = Fingerprint(0, 0, 0)


class Place(NamedTuple):
    """Where a row begins."""

    run: str
    file: str
    offset: int
    """Of the row."""
    sample: int
    """The first sample of the row that counts: a row may close one step and begin the next."""
    checksum: int
    """Of the row before, for formats that repeat their samples."""


Files = Callable[[Path], list[tuple[str, Path]]]
"""(run, file) of the shards in a folder, in the order of writing. Raises OSError."""


class Appended:
    """An appended dump, of a known format."""

    def __init__(self, path: Path, dump: Dump, files: Files, reading: Reading, *, limits: Limits | None = None) -> None:
        """Raises ValueError for a configuration that means nothing."""
        self._path = path
        self._dump = dump
        self._files = files
        self._reading = reading
        self._limits = limits
        self._options = Options.from_config(reading.config)
        self._notes = Notes()
        self._file: BinaryIO | None = None
        self._rows: Iterator[Row] | None = None
        self._begin()

    def _begin(self) -> None:
        self._log: RunLog | None = None
        self._at = self._opened_at = Place("", "", 0, 0, 0)
        """Where reading goes on, and where the step that is being collected begins."""
        self._number = 1
        """Of the next row, within what this process read of the file."""
        self._faults = Faults()
        self._closed: tuple[int, frozenset[str]] = (-1, frozenset())
        """The step that was sent last, and the keys of its samples."""
        self._before = _NOTHING
        """What stands before the place that was read to."""
        self._size = -1
        """Of the file at the last look."""
        self._quiet_since: float | None = None
        self._ended = False
        """The last look is over."""
        self._close_step()

    def _close_step(self) -> None:
        self._step: int | None = None
        self._collection = Collection(self._limits)

    def status(self) -> str:
        return f"{self._at.file or 'no file'}, byte {self._at.offset}"

    def poll(self, last: bool) -> Batch:
        """See `Source`. One step at most."""
        if self._ended:
            return Batch()
        try:
            files = self._files(self._path)
        except FileNotFoundError:
            files = []
        if not files:
            if last:
                raise FileNotFoundError(f"{self._path}: no {self._dump.name}")
            return Batch()
        if self._log is None:
            self._restore(files)
        self._check(files)
        out: list[Parsed] = []
        notes: list[str] = []
        read = 0
        while (row := self._next(files, last)) is not None:
            self._quiet_since = None
            read += row.next_offset - row.offset
            self._row(row, out, notes)
            if out or read >= POLL_BYTES:
                return self._batch(files, out, notes, more=True)
        self._ended = last
        if self._step is None or not self._is_quiet(last):
            return self._batch(files, out, notes, more=False)
        # After a last look a later one must be able to take the step whole: the place stays before it.
        place = self._place(files) if last else None
        self._finish(out, notes)
        batch = self._batch(files, out, notes, more=False)
        return batch if place is None else batch._replace(bookmark=place)

    def rewind(self) -> None:
        """Go back to the bookmark."""
        self.close()
        self._begin()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file, self._rows = None, None

    # --- rows --------------------------------------------------------------------------------------------------------

    def _next(self, files: list[tuple[str, Path]], last: bool) -> Row | None:
        """The next row, from the next shard when this one is read; None for now when there is none."""
        while True:
            behind = self._behind(files)
            if self._file is None:
                path = next((file for _, file in files if file.name == self._at.file), None)
                if path is not None:
                    self._file = path.open("rb", buffering=0)
                elif behind is not None:  # removed: the shards behind it go on
                    self._turn(behind)
                    continue
                else:
                    return None
            if self._rows is None:
                self._file.seek(self._at.offset)
                self._rows = rows(self._file, self._at.offset, self._number)
            row = next(self._rows, None)
            if row is not None and (row.complete or behind is not None or (last and row.value is not None)):
                return row
            self._rows = None
            if behind is None:
                return None
            self._turn(behind)

    def _behind(self, files: list[tuple[str, Path]]) -> tuple[str, Path] | None:
        """The first shard after the one that is being read."""
        here = (self._at.run, self._at.file)
        return next((shard for shard in files if (shard[0], shard[1].name) > here), None)

    def _turn(self, shard: tuple[str, Path]) -> None:
        """Go on in another file."""
        self.close()
        run, file = shard
        self._at = Place(run, file.name, 0, 0, self._at.checksum)
        self._number, self._before, self._size = 1, _NOTHING, -1

    def _row(self, row: Row, out: list[Parsed], notes: list[str]) -> None:
        """Take one row."""
        self._read(row, out, notes)
        if self._step is None:
            self._opened_at = self._at  # nothing is being collected: this row need not be read again

    def _read(self, row: Row, out: list[Parsed], notes: list[str]) -> None:
        begins, skip = self._at._replace(offset=row.offset), self._at.sample
        self._at = self._at._replace(offset=row.next_offset, sample=0)
        self._number = row.number + 1
        if row.value is None:
            self._fault(row, row.error)
            return
        if self._dump.repeats is not None:
            self._at = self._at._replace(checksum=self._dump.repeats(row.value))
            if self._at.checksum == begins.checksum:
                notes.append("rows that repeat the last row's samples are left out: nothing new was generated")
                return
        try:
            samples = list(self._dump.read(row.value, self._options))
        except BadRow as error:
            self._fault(row, str(error))
            return
        for number, sample in enumerate(samples):
            if number >= skip:
                self._sample(sample, begins._replace(sample=number), row, out, notes)

    def _fault(self, row: Row, why: str) -> None:
        self._faults.add(self._at.file, row.number, row.offset, row.next_offset, why)

    def _sample(self, sample: Sample, begins: Place, row: Row, out: list[Parsed], notes: list[str]) -> None:
        """Take one sample; where it belongs to another step, the one before is complete."""
        assert self._log is not None
        step, (closed, keys) = sample.step, self._closed
        if step is None:
            self._fault(row, "no step")
            return
        other_run = self._opened_at.file != "" and begins.run != self._opened_at.run
        again = step == self._step and self._collection.has(sample.key)
        sent = step == closed and step != self._step
        if sent and not other_run and not (sample.key and sample.key in keys):
            self._fault(row, f"a sample of step {step}, which was sent already")
            return
        if step == self._step and not again and not other_run:
            self._collection.add(sample)
            return
        if again and not other_run:
            notes.append("a step that was begun twice counts from its second beginning")
        elif self._step is not None:
            self._finish(out, notes)
        self._close_step()
        self._step, self._opened_at = step, begins
        self._log.cut = self._log.cut or (self._log.opened and (other_run or again or sent))
        self._collection.add(sample)

    def _finish(self, out: list[Parsed], notes: list[str]) -> None:
        """Send the step that is being collected."""
        assert self._log is not None and self._step is not None
        collection, step = self._collection, self._step
        self._closed = (step, collection.keys)
        self._close_step()
        self._opened_at = self._at
        # Rows have no time. The file's last change is never later than the framework's own log of a later step, by which the
        # collector tells a straggler from a restart.
        written_ns = os.fstat(self._file.fileno()).st_mtime_ns if self._file is not None else None
        records, told = step_records(collection, step, written_ns, self._log, self._dump, self._options)
        out += records
        notes += told

    def _is_quiet(self, last: bool) -> bool:
        now = self._reading.clock()
        if self._quiet_since is None:
            self._quiet_since = now
        torn = self._size > self._at.offset
        return last or now - self._quiet_since >= (TORN_SECONDS if torn else GRACE_SECONDS)

    # --- the place ---------------------------------------------------------------------------------------------------

    def _check(self, files: list[tuple[str, Path]]) -> None:
        """Notice that the file was begun anew: it is another one, shorter than what was read, or has other bytes there."""
        if self._file is None or self._log is None:
            return
        status = os.fstat(self._file.fileno())
        path = next((file for _, file in files if file.name == self._at.file), None)
        if path is None:
            return
        same = path.stat().st_ino == status.st_ino and status.st_size >= self._at.offset and self._before.matches(self._file)
        if not same:
            self._anew((self._at.run, path))
        elif status.st_size != self._size:
            self._size, self._quiet_since = status.st_size, None

    def _anew(self, shard: tuple[str, Path]) -> None:
        assert self._log is not None
        self._turn(shard)
        self._log.cut = self._log.opened
        self._close_step()
        self._opened_at, self._closed = self._at, (-1, frozenset())

    def _restore(self, files: list[tuple[str, Path]]) -> None:
        """Begin at the bookmark, if it holds; else at the beginning, or with `from_end` at the end."""
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format == self._dump.name:
            try:
                self._go_on(bookmark, files)
                return
            except (KeyError, TypeError, ValueError):
                self._begin()  # a state of another version: start over
        self._log = make_log(self._dump, self._reading.run, self._reading.clock, None)
        self._turn(files[-1] if self._reading.from_end else files[0])
        if self._reading.from_end:
            self._at = self._at._replace(offset=files[-1][1].stat().st_size)
        self._opened_at = self._at

    def _go_on(self, bookmark: Bookmark, files: list[tuple[str, Path]]) -> None:
        state = bookmark.parser
        log = make_log(self._dump, self._reading.run, self._reading.clock, state["log"])
        run, file, sample, checksum = state["place"]
        closed, keys = state["closed"]
        self._at = self._opened_at = Place(str(run), str(file), bookmark.offset, int(sample), int(checksum))
        self._closed = int(closed), frozenset(map(str, keys))
        self._log = log
        path = next((path for _, path in files if path.name == file), None)
        if path is None:
            self._turn(self._behind(files) or files[0])
            return
        with path.open("rb") as opened:
            same = bookmark.begins.matches(opened) and bookmark.before.matches(opened)
        if not same:
            self._anew((self._at.run, path))

    def _place(self, files: list[tuple[str, Path]]) -> Bookmark | None:
        """The bookmark before the step that is being collected; None when its file is gone meanwhile."""
        assert self._log is not None
        at = self._opened_at
        path = next((path for _, path in files if path.name == at.file), None)
        if path is None:
            return None
        with path.open("rb") as file:
            begins = fingerprint(file, min(os.fstat(file.fileno()).st_size, FINGERPRINT_BYTES, at.offset))
            before = fingerprint(file, at.offset)
            inode = os.fstat(file.fileno()).st_ino
        closed, keys = self._closed
        state: dict[str, Any] = {
            "log": self._log.state(),
            "place": [at.run, at.file, at.sample, at.checksum],
            "closed": [closed, sorted(keys) if len(keys) <= MAX_KEYS else []],
        }
        return Bookmark(
            to=self._reading.to,
            run=self._reading.run,
            format=self._dump.name,
            inode=inode,
            offset=at.offset,
            begins=begins,
            before=before,
            parser=state,
        )

    def _batch(self, files: list[tuple[str, Path]], out: list[Parsed], notes: list[str], more: bool) -> Batch:
        if self._file is not None:
            self._before = fingerprint(self._file, self._at.offset)
        parsed = (*self._faults.take(), *out)
        return Batch(parsed, self._place(files), more, self._notes.new(notes))

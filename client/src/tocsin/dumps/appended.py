"""Follows a dump that is appended to: rows that carry their step, in one file or in shards that follow each other.

- A step is complete when a row of another step comes, or when nothing has come for a grace time.
- The place that is kept is where the step that is being collected begins: what follows is read again after a restart.
- Records are dated with the time at which the file was last written.
- A row of the step that was sent last is late: it is counted and left out. The same sample again, a step that goes back
  further, a file that was begun anew, or shards of another run are a new attempt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tocsin.dumps.collect import Collection, Limits
from tocsin.dumps.record import Faults, Notes, make_log, step_records
from tocsin.dumps.rows import Row
from tocsin.dumps.sample import BadRow, Dump, Options, Sample
from tocsin.dumps.shards import NOWHERE, Files, Place, Shard, Shards, path_of, proof
from tocsin.dumps.stepwise import GRACE_SECONDS, TORN_SECONDS
from tocsin.formats import Parsed
from tocsin.formats.base import RunLog
from tocsin.ship.bookmarks import Bookmark
from tocsin.ship.source import Batch, Reading

POLL_BYTES: Final = 64 * 1024 * 1024
MAX_KEYS: Final = 8192
"""Samples of the last step that a bookmark remembers."""


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
        self._shards = Shards()
        self._begin()

    def _begin(self) -> None:
        self._log: RunLog | None = None
        self._opened_at = NOWHERE
        """Where the step that is being collected begins."""
        self._faults = Faults()
        self._closed: tuple[int, frozenset[str]] = (-1, frozenset())
        """The step that was sent last, and the keys of its samples."""
        self._quiet_since: float | None = None
        self._ended = False
        """The last look is over."""
        self._close_step()

    def _close_step(self) -> None:
        self._step: int | None = None
        self._collection = Collection(self._limits)

    def status(self) -> str:
        at = self._shards.at
        return f"{at.file or 'no file'}, byte {at.offset}"

    def poll(self, last: bool) -> Batch:
        """See `Source`. One step at most."""
        if self._ended:
            return Batch()
        try:
            shards = self._files(self._path)
        except FileNotFoundError:
            shards = []
        if not shards:
            if last:
                raise FileNotFoundError(f"{self._path}: no {self._dump.name}")
            return Batch()
        if self._log is None:
            self._restore(shards)
        if (anew := self._shards.begun_anew(shards)) is not None:
            self._anew(anew)
        if self._shards.grew():
            self._quiet_since = None
        out: list[Parsed] = []
        notes: list[str] = []
        read = 0
        while (found := self._shards.next(shards, last)) is not None:
            begins, row = found
            self._quiet_since = None
            read += row.next_offset - row.offset
            self._row(begins, row, out, notes)
            if out or read >= POLL_BYTES:
                return self._batch(shards, out, notes, more=True)
        self._ended = last
        if self._step is None or not self._is_quiet(last):
            return self._batch(shards, out, notes, more=False)
        # After a last look a later one must be able to take the step whole: the place stays before it.
        place = self._place(shards) if last else None
        self._finish(out, notes)
        batch = self._batch(shards, out, notes, more=False)
        return batch if place is None else batch._replace(bookmark=place)

    def rewind(self) -> None:
        """Go back to the bookmark."""
        self._shards.close()
        self._begin()

    def close(self) -> None:
        """Let go of the file."""
        self._shards.close()

    # --- rows --------------------------------------------------------------------------------------------------------

    def _row(self, begins: Place, row: Row, out: list[Parsed], notes: list[str]) -> None:
        """Take one row."""
        if row.value is None:
            self._fault(row, row.error)
        elif self._repeats(begins, row.value):
            notes.append("rows that repeat the last row's samples are left out: nothing new was generated")
        else:
            try:
                samples = list(self._dump.read(row.value, self._options))
            except BadRow as error:
                self._fault(row, str(error))
                samples = []
            for number in range(begins.sample, len(samples)):
                self._sample(samples[number], begins._replace(sample=number), row, out, notes)
        if self._step is None:
            self._opened_at = self._shards.at  # nothing is being collected: this row need not be read again

    def _repeats(self, begins: Place, value: dict[str, Any]) -> bool:
        """Whether a row says what the one before it said, where the format does that."""
        if self._dump.repeats is None:
            return False
        checksum = self._dump.repeats(value)
        self._shards.at = self._shards.at._replace(checksum=checksum)
        return checksum == begins.checksum

    def _fault(self, row: Row, why: str) -> None:
        self._faults.add(self._shards.at.file, row.number, row.offset, row.next_offset, why)

    def _sample(self, sample: Sample, begins: Place, row: Row, out: list[Parsed], notes: list[str]) -> None:
        """Take one sample; where it belongs to another step, the one before is complete."""
        assert self._log is not None
        step, (closed, keys) = sample.step, self._closed
        if step is None:
            self._fault(row, "no step")
            return
        other_run = self._opened_at is not NOWHERE and begins.run != self._opened_at.run
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
        self._opened_at = self._shards.at
        # Rows have no time. The file's last change is never later than the framework's own log of a later step, by which the
        # collector tells a straggler from a restart.
        written = self._shards.written_ns()
        records, told = step_records(collection, step, written, self._log, self._dump, self._options)
        out += records
        notes += told

    def _is_quiet(self, last: bool) -> bool:
        now = self._reading.clock()
        if self._quiet_since is None:
            self._quiet_since = now
        return last or now - self._quiet_since >= (TORN_SECONDS if self._shards.torn else GRACE_SECONDS)

    # --- the place ---------------------------------------------------------------------------------------------------

    def _anew(self, shard: Shard) -> None:
        """The file was begun anew: so is the run."""
        assert self._log is not None
        self._shards.turn(shard)
        self._log.cut = self._log.opened
        self._close_step()
        self._opened_at, self._closed = self._shards.at, (-1, frozenset())

    def _restore(self, shards: list[Shard]) -> None:
        """Begin at the bookmark, if it holds; else at the beginning, or with `from_end` at the end."""
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format == self._dump.name:
            try:
                self._go_on(bookmark, shards)
                return
            except (KeyError, TypeError, ValueError):
                self._begin()  # a state of another version: start over
        self._log = make_log(self._dump, self._reading.run, self._reading.clock, None)
        if self._reading.from_end:
            self._shards.turn(shards[-1], shards[-1][1].stat().st_size)
        else:
            self._shards.turn(shards[0])
        self._opened_at = self._shards.at

    def _go_on(self, bookmark: Bookmark, shards: list[Shard]) -> None:
        state = bookmark.parser
        log = make_log(self._dump, self._reading.run, self._reading.clock, state["log"])
        run, file, sample, checksum = state["place"]
        place = Place(str(run), str(file), bookmark.offset, int(sample), int(checksum))
        closed, keys = state["closed"]
        self._closed = int(closed), frozenset(map(str, keys))
        self._log = log
        self._shards.turn((place.run, Path(place.file)))
        self._shards.at = self._opened_at = place
        if (path := path_of(place, shards)) is None:
            self._shards.turn(self._shards.behind(shards) or shards[0])
            return
        with path.open("rb") as opened:
            same = bookmark.begins.matches(opened) and bookmark.before.matches(opened)
        if not same:
            self._anew((place.run, path))

    def _place(self, shards: list[Shard]) -> Bookmark | None:
        """The bookmark before the step that is being collected; None when its file is gone meanwhile."""
        assert self._log is not None
        at = self._opened_at
        if (found := proof(at, shards)) is None:
            return None
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
            inode=found.inode,
            offset=at.offset,
            begins=found.begins,
            before=found.before,
            parser=state,
        )

    def _batch(self, shards: list[Shard], out: list[Parsed], notes: list[str], more: bool) -> Batch:
        return Batch((*self._faults.take(), *out), self._place(shards), more, self._notes.new(notes))

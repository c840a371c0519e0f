"""Follows a folder with one file (or folder) per step.

- A step is taken once it is complete: a later step is there, or it has not changed for a grace time and ends with a whole line.
  A file that stays torn (its trainer died) is taken after a longer one.
- Each step is taken once. A step file that changes after it was taken means that the trainer went back and writes anew: a
  new attempt. One that only grew had not been complete: it is sent again, whole.
- A start of the trainer that makes a folder of its own (`exp_<NNN>`) is a new attempt if it repeats a step or goes back, as it
  is in the event files beside the dump; the old folder is read to its end first.
- Records are dated with the time at which the step's file was last written.
- Steps come at least once; read again, a step gives the same record.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

from tocsin.dumps.collect import Collection, Limits
from tocsin.dumps.layout import Mark, Unit, Units, attempt_order, ends_whole, grown, marked
from tocsin.dumps.record import Faults, Notes, make_log, step_records
from tocsin.dumps.sample import BadRow, Dump, Options
from tocsin.formats.base import RunLog
from tocsin.ship.bookmarks import Bookmark, Fingerprint
from tocsin.ship.source import Batch, Reading

GRACE_SECONDS: Final = 5.0
TORN_SECONDS: Final = 60.0
"""How long a file without a last newline must stay as it is."""
REMEMBERED: Final = 512
"""Steps whose marks are kept: how far back a restart is recognised by a file's content; beyond it by its time."""


class Stepwise:
    """A folder of steps, of a known format."""

    def __init__(
        self,
        path: Path,
        dump: Dump,
        units: Units,
        reading: Reading,
        *,
        later: int = 1,
        limits: Limits | None = None,
        remembered: int = REMEMBERED,
    ) -> None:
        """`later`: how many later steps prove that a step is complete. `remembered`: steps whose marks are kept.

        Raises ValueError for a configuration that means nothing.
        """
        self._path = path
        self._dump = dump
        self._units = units
        self._reading = reading
        self._later = later
        self._limits = limits
        self._remembered = remembered
        self._options = Options.from_config(reading.config)
        self._notes = Notes()
        self._log: RunLog | None = None
        self._folder = ""
        self._done: dict[int, Mark] = {}
        """By step, of this attempt and of what earlier ones left in the folder."""
        self._position = -1
        """The step that was taken last."""
        self._forgotten = -1
        """The highest step whose mark was given up: at or below it only the time says whether a file is new."""
        self._newest_ns = 0
        """Time of the newest file that was taken."""
        self._checksum = 0
        """Of the samples of the last step, for formats that repeat them."""
        self._todo: list[Unit] = []
        """Steps to take, as of the last listing."""
        self._watched: tuple[Unit, float] | None = None
        """The step that may be incomplete, and since when it looks as it does."""
        self._taken = 0

    def status(self) -> str:
        return f"{self._taken} steps read" if self._taken else "waiting for a step"

    def poll(self, last: bool) -> Batch:
        """See `Source`. One step at most."""
        if len(self._todo) <= self._later and not self._look(last):
            return Batch()
        todo = self._todo
        if not todo or not self._complete(todo, last):
            return Batch()
        self._todo = []  # listed anew, should this step have changed or gone meanwhile
        batch = self._take(todo[0], len(todo) > 1, last)
        if batch is None:
            return Batch()
        self._todo = todo[1:]
        return batch

    def rewind(self) -> None:
        """Go back to the bookmark."""
        self._log, self._watched, self._todo = None, None, []

    def close(self) -> None:
        """No file is held open."""

    # --- which step comes next ---------------------------------------------------------------------------------------

    def _look(self, last: bool) -> bool:
        """List the folder. False when it is not there yet. A backlog is listed once, not for each of its steps."""
        try:
            units = self._units(self._path, -1 if self._log is None else self._position)
        except FileNotFoundError:
            if last:
                raise
            return False
        if self._log is None:
            self._begin(units)
        if last and not units and self._position < 0:
            raise FileNotFoundError(f"{self._path}: no steps of {self._dump.name}")
        self._todo = self._new(units)
        return True

    def _new(self, units: list[Unit]) -> list[Unit]:
        """What has to be taken, in order: what the old attempt left, then what the trainer wrote anew."""
        here, order = self._folder, attempt_order(self._folder)
        later = [unit for unit in units if unit.folder != here and attempt_order(unit.folder) > order]
        return self._in_folder([unit for unit in units if unit.folder == here]) + later

    def _in_folder(self, units: list[Unit]) -> list[Unit]:
        ahead: list[Unit] = []
        again: list[Unit] = []
        for unit in units:
            before = self._done.get(unit.step)
            if before is not None:
                if (unit.mark.size, unit.mark.mtime_ns) != before[:2] and self._changed(unit, before):
                    (again if unit.step <= self._position else ahead).append(unit)
            elif unit.step > self._forgotten or unit.mark.mtime_ns > self._newest_ns:
                (again if unit.step <= self._position else ahead).append(unit)
        # What the trainer left before it went back is older than what it wrote since.
        since = min((unit.mark.mtime_ns for unit in again), default=0)
        left = [unit for unit in ahead if unit.mark.mtime_ns < since]
        return [*left, *again, *(unit for unit in ahead if unit.mark.mtime_ns >= since)]

    def _changed(self, unit: Unit, before: Mark) -> bool:
        """Whether a step that was taken says something else now. A copy or a touch does not; nor do rows that come late."""
        if unit.of_files:
            return False
        with contextlib.suppress(FileNotFoundError):  # it vanished since it was listed
            now = marked(unit)
            if (now.size, now.tail) == (before.size, before.tail):
                self._done[unit.step] = now
                return False
            return unit.step == self._position or not grown(unit, before)
        return False

    def _complete(self, todo: list[Unit], last: bool) -> bool:
        unit = todo[0]
        if last or len(todo) > self._later:
            return True
        now = self._reading.clock()
        if self._watched is None or self._watched[0] != unit:
            self._watched = (unit, now)
            return False
        whole = all(map(ends_whole, unit.paths))
        return now - self._watched[1] >= (GRACE_SECONDS if whole else TORN_SECONDS)

    # --- taking it ---------------------------------------------------------------------------------------------------

    def _take(self, unit: Unit, more: bool, last: bool) -> Batch | None:
        """Read one step; None when it was written meanwhile."""
        assert self._log is not None
        mark = marked(unit)
        if not (last or more or unit.of_files) and mark[:2] != unit.mark[:2]:
            return None  # opened, the file is newer than it was said to be: a network file system's attributes are old
        collection, faults = Collection(self._limits), Faults()
        checksum, torn = self._read(unit, collection, faults)
        if not last and marked(unit) != mark:
            return None
        again = self._enter(unit)
        out = faults.take()
        notes: list[str] = []
        if not len(collection):
            faults.add(unit.paths[0].name, 0, 0, 0, f"step {unit.step} has no readable sample")
            out += faults.take()
        elif self._dump.repeats is not None and checksum == self._checksum:
            notes.append("steps that repeat the last step's samples are left out: nothing new was generated")
        else:
            records, notes = step_records(collection, unit.step, mark.mtime_ns, self._log, self._dump, self._options)
            out += records
            self._checksum = checksum
        if again:
            notes.append("a step had not been complete, and was sent again")
        self._done[unit.step] = mark
        self._newest_ns = max(self._newest_ns, mark.mtime_ns)
        for step in sorted(self._done)[: -self._remembered]:
            del self._done[step]
            self._forgotten = max(self._forgotten, step)
        self._watched = None
        self._taken += 1
        # A last look may find a step half-written: a later one must be able to take it whole.
        place = None if torn and last and not more else self._place()
        return Batch(tuple(out), place, more, self._notes.new(notes))

    def _read(self, unit: Unit, collection: Collection, faults: Faults) -> tuple[int, bool]:
        """(checksum of the rows for formats that repeat samples, whether the end is torn)."""
        checksum, torn = 0, False
        for path in unit.paths:
            for row in self._dump.rows(path):
                torn = torn or (not row.complete and row.value is None)
                if row.value is None:
                    faults.add(path.name, row.number, row.offset, row.next_offset, row.error)
                    continue
                try:
                    samples = list(self._dump.read(row.value, self._options))
                except BadRow as error:
                    faults.add(path.name, row.number, row.offset, row.next_offset, str(error))
                    continue
                if self._dump.repeats is not None:
                    checksum = self._dump.repeats(row.value) ^ checksum
                for sample in samples:
                    collection.add(sample)
        return checksum, torn

    def _enter(self, unit: Unit) -> bool:
        """Open a new attempt where this step begins one: a trainer that goes on exactly where it stopped does not. Whether it
        is the last step again, with more behind it."""
        assert self._log is not None
        position, self._position = self._position, unit.step
        if unit.folder != self._folder:
            self._folder, self._done, self._newest_ns, self._forgotten = unit.folder, {}, 0, -1
        before = self._done.get(unit.step)
        if before is not None and unit.step == position and grown(unit, before):
            return True
        self._log.cut = self._log.cut or (unit.step <= position and self._log.opened)
        return False

    # --- the place ---------------------------------------------------------------------------------------------------

    def _begin(self, units: list[Unit]) -> None:
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format == self._dump.name:
            try:
                self._restore(bookmark.parser)
                return
            except (KeyError, TypeError, ValueError):
                pass  # a state of another version: start over
        self._log = make_log(self._dump, self._reading.run, self._reading.clock, None)
        at = -1 if self._reading.from_end else 0
        self._folder = units[at].folder if units else ""
        self._done, self._position, self._forgotten, self._newest_ns, self._checksum = {}, -1, -1, 0, 0
        if self._reading.from_end:
            with contextlib.suppress(FileNotFoundError):  # one vanished since it was listed
                self._done = {unit.step: marked(unit) for unit in units if unit.folder == self._folder}
            self._position = max(self._done, default=-1)
            self._newest_ns = max((mark.mtime_ns for mark in self._done.values()), default=0)

    def _restore(self, state: dict[str, Any]) -> None:
        log = make_log(self._dump, self._reading.run, self._reading.clock, state["log"])
        self._done = {int(step): Mark(int(a), int(b), int(c)) for step, a, b, c in state["done"]}
        self._folder, self._position, self._forgotten = str(state["folder"]), int(state["position"]), int(state["forgotten"])
        self._newest_ns, self._checksum = int(state["newest_ns"]), int(state["checksum"])
        self._log = log

    def _place(self) -> Bookmark:
        assert self._log is not None
        nothing = Fingerprint(0, 0, 0)
        state: dict[str, Any] = {
            "log": self._log.state(),
            "folder": self._folder,
            "done": [[step, *mark] for step, mark in sorted(self._done.items())],
            "position": self._position,
            "forgotten": self._forgotten,
            "newest_ns": self._newest_ns,
            "checksum": self._checksum,
        }
        return Bookmark(
            to=self._reading.to,
            run=self._reading.run,
            format=self._dump.name,
            inode=0,
            offset=max(self._position, 0),
            begins=nothing,
            before=nothing,
            parser=state,
        )

"""Follows TensorBoard's event files: one, or those of a run's folder, as they grow and as new ones appear.

- A step is sent when a later one begins, or `GRACE_SECONDS` after its last value was read; what comes for it after that is sent
  as a further row of the step, which the collector joins.
- The place kept is where each file was read to, and the values that wait for their step to be complete, so a restart goes on
  exactly there.
- A file that is not whole at its end is read on when it has grown; a damaged place is told, and reading goes on behind it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from tocsin.formats import Parsed
from tocsin.formats.base import State, placed
from tocsin.formats.event_folder import EventFolder, Taken
from tocsin.formats.event_rows import EventRows
from tocsin.formats.tensorboard import NAME, make_rows, take
from tocsin.ship.bookmarks import Bookmark, Fingerprint
from tocsin.ship.source import Batch, Reading
from tocsin.wire import RunRecord

GRACE_SECONDS: Final = 5.0
"""The values of a step are logged within milliseconds; the steps themselves take tens of seconds."""
SEARCH_SECONDS: Final = 5.0
"""How often a folder is searched for new files; the known ones are looked at in every poll."""
BATCH_RECORDS: Final = 500
BATCH_EVENTS: Final = 20_000
_NO_BYTES: Final = Fingerprint(0, 0, 0)


class EventFiles:
    """The event files at one path."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self._path = path
        self._reading = reading
        self._folder: EventFolder | None = None
        self._rows: EventRows | None = None
        self._searched = -math.inf
        self._fed = 0.0
        """When a held step last got a value."""
        self._changes = 0
        self._sizes_wanted = False
        self._silent: dict[str, int] = {}
        """With `from_end`: how much of each file was there at first; that is read for its context only."""
        self._told: set[str] = set()
        self._ended = False

    def status(self) -> str:
        if self._folder is None or not self._folder.files:
            return "waiting for event files"
        return f"{self._folder.given} bytes of {self._folder.files} files"

    def poll(self, last: bool) -> Batch:
        """See `Source`. Raises UnknownFormat for a folder of several runs and without the extra."""
        if self._ended:
            return Batch()
        now = self._reading.clock()
        folder, rows = self._opened()
        search = last or not folder.files or not 0 <= now - self._searched < SEARCH_SECONDS
        self._searched = now if search else self._searched
        folder.look(now, search=search)
        if last and not folder.files:
            raise FileNotFoundError(2, "no event files", str(self._path))
        if self._sizes_wanted:
            self._silent, self._sizes_wanted = folder.sizes(), False
        out: list[Parsed] = []
        for _ in range(BATCH_EVENTS):
            taken = folder.next(now, wait=GRACE_SECONDS, last=last)
            if taken is None:
                return self._at_end(folder, rows, out, now, last)
            given = folder.given
            found = take(rows, taken, given - (taken.next_offset - taken.offset), given)
            if rows.changes != self._changes:
                self._changes, self._fed = rows.changes, now
            out += [parsed for parsed in found if isinstance(parsed.record, RunRecord) or not self._old(taken)]
            if len(out) >= BATCH_RECORDS:
                break
        return Batch(tuple(out), self._place(folder, rows), more=True)

    def _at_end(self, folder: EventFolder, rows: EventRows, out: list[Parsed], now: float, last: bool) -> Batch:
        """Nothing more is there. What a last look sends early stays before the place, so that a later look takes it whole."""
        if rows.holds and not 0 <= now - self._fed < GRACE_SECONDS:
            out += placed(rows.close(), folder.given, folder.given)
        place = self._place(folder, rows)
        if last:
            self._ended = True
            out += placed(rows.finish(), folder.given, folder.given)
        notes = [f"{name}: {problem}; the other files are read" for name, problem in folder.problems.items()]
        new = tuple(note for note in notes if note not in self._told)
        self._told.update(new)
        return Batch(tuple(out), place, notes=new)

    def _old(self, taken: Taken) -> bool:
        return taken.offset < self._silent.get(taken.writer, 0)

    def rewind(self) -> None:
        self._folder, self._rows, self._ended = None, None, False

    def close(self) -> None:
        """No file is held open."""

    def _opened(self) -> tuple[EventFolder, EventRows]:
        if self._folder is not None and self._rows is not None:
            return self._folder, self._rows
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format == NAME:
            try:
                self._folder = EventFolder(self._path, bookmark.parser["files"])
                self._rows = self._made(bookmark.parser["rows"])
                self._fed = self._reading.clock()  # what waits begins to wait anew
                return self._folder, self._rows
            except (KeyError, TypeError, ValueError, AttributeError):  # a state of another version: start over
                bookmark = None
        self._folder, self._rows = EventFolder(self._path), self._made(None)
        self._sizes_wanted = self._reading.from_end
        return self._folder, self._rows

    def _made(self, state: State | None) -> EventRows:
        reading = self._reading
        return make_rows(run=reading.run, names=reading.names, clock=reading.clock, state=state)

    def _place(self, folder: EventFolder, rows: EventRows) -> Bookmark:
        return Bookmark(
            to=self._reading.to,
            run=self._reading.run,
            format=NAME,
            inode=0,
            offset=folder.given,
            begins=_NO_BYTES,
            before=_NO_BYTES,
            parser={"files": folder.state(), "rows": rows.state()},
        )

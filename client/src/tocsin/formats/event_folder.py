"""The events of one run in order of time, from all of its files (see `event_paths`).

Each file is read in its own order. Between files the time of the events decides; while files grow, an event waits a while for
others that may be older (writers hold back what they log, tensorboardX for up to two minutes).
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tocsin.formats.base import State, UnknownFormat
from tocsin.formats.event_file import Frame, frames
from tocsin.formats.event_paths import event_files, renamed, roots, tops_of, without_start
from tocsin.formats.event_proto import Decode, Event, decoder

AHEAD: Final = 2_000
"""Events of one file that are read ahead."""
QUIET_SECONDS: Final = 600.0
"""A file that has not grown for so long is not waited for."""
HELD_BACK_SECONDS: Final = 180.0
"""No writer holds events back for so long (tensorboardX: two minutes): an older event has no older ones to wait for."""
_BEGINNING: Final = 64


class Taken(NamedTuple):
    """One event of the run, or a place that could not be read."""

    writer: str
    """The file, relative to the folder."""
    offset: int
    next_offset: int
    event: Event | None
    error: str = ""
    raw: bytes = b""


@dataclass
class _File:
    path: Path
    name: str
    prefix: str
    """The sub-folder below its run's folder, "" for none."""
    taken: int = 0
    """Everything before this byte was given out."""
    read: int = 0
    """Everything before this byte was read."""
    size: int = -1
    changed: float = 0.0
    begins: tuple[int, int] = (0, 0)
    """(length, checksum) of the first bytes: whether it is still the same file."""
    ahead: deque[Taken] = field(default_factory=deque)
    seen: float = 0.0
    """When the first event ahead was read."""
    looked: int = 0
    """The look at which its end was reached."""
    problem: str = ""
    """Why it cannot be read."""


class EventFolder:
    """The events of one run, from where `state` says on.

    `complete`: the files will not grow any more, so what is cut off at an end is a place that could not be read; otherwise it
    is left for a later look. Raises NotInstalled without the extra.
    """

    def __init__(self, path: Path, state: State | None = None, *, complete: bool = False) -> None:
        self._path = path
        self._complete = complete
        self._looks = 0
        self.given = 0
        """Bytes of all files that were given out."""
        self._decode: Decode = decoder()
        self._roots: list[Path] = []
        self._files: dict[str, _File] = {}
        self._known: dict[str, tuple[int, tuple[int, int]]] = {}
        for name, (taken, length, crc) in (state or {}).items():
            self._known[str(name)] = (int(taken), (int(length), int(crc)))

    def state(self) -> State:
        """Plain JSON: how far each file was given out."""
        known = {name: [taken, *begins] for name, (taken, begins) in self._known.items()}
        return known | {name: [file.taken, *file.begins] for name, file in self._files.items()}

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self._files)

    @property
    def problems(self) -> dict[str, str]:
        """Files that cannot be read, and why."""
        return {name: file.problem for name, file in self._files.items() if file.problem}

    def sizes(self) -> dict[str, int]:
        """How large each file is now."""
        return {name: file.path.stat().st_size for name, file in self._files.items() if file.path.exists()}

    def look(self, now: float, *, search: bool = True) -> None:
        """Look at the files anew, and with `search` for new ones.

        Raises UnknownFormat when the path holds several runs, OSError when it cannot be listed.
        """
        self._looks += 1
        if search:
            self._search(now)

    def _search(self, now: float) -> None:
        if self._path.is_dir():
            found = event_files(self._path)
            if found:
                self._roots = self._told_apart(found)
        else:
            found = [self._path] if self._path.exists() else []
            self._roots = [self._path.parent]
        for path in found:
            root = next((root for root in self._roots if path.is_relative_to(root)), None)
            if root is None:
                continue
            name = path.relative_to(self._path).as_posix() if path != self._path else path.name
            if name not in self._files:
                prefix = path.parent.relative_to(root).as_posix()
                self._files[name] = self._opened(_File(path, name, "" if prefix == "." else prefix), now)

    def _told_apart(self, found: list[Path]) -> list[Path]:
        try:
            return roots(self._path, found)
        except UnknownFormat:
            if not self._roots:
                raise
        # Another run began in the folder: only further starts of this one are ours.
        ours = {without_start(self._path, root) for root in self._roots}
        return [top for top in tops_of(found) if top in self._roots or without_start(self._path, top) in ours]

    def _opened(self, file: _File, now: float) -> _File:
        taken, begins = self._known.pop(file.name, (0, (0, 0)))
        file.begins = begins
        if taken and _checksum(file.path, begins[0]) == begins:
            file.taken = file.read = taken
            self.given += taken
        try:
            file.changed = min(now, file.path.stat().st_mtime)
        except OSError:  # gone again; the next look tells
            file.changed = now
        return file

    def next(self, now: float, *, wait: float, last: bool) -> Taken | None:
        """The next event, None when there is none yet.

        `wait`: seconds that an event waits for older ones of other files. `last`: nothing more will be written.
        """
        behind = False
        first: _File | None = None
        for file in self._files.values():
            if not file.ahead and not self._read(file, now):
                behind = behind or now - file.changed < QUIET_SECONDS
            elif first is None or _order(file) < _order(first):
                first = file
        if first is None:
            return None
        began = _time(first.ahead)
        if behind and not last and now - first.seen < wait and now - began < HELD_BACK_SECONDS:
            return None
        taken = first.ahead.popleft()
        if taken.event is not None and taken.event.begins:
            taken = taken._replace(event=taken.event._replace(time=began))
        self.given += taken.next_offset - first.taken
        first.taken = taken.next_offset
        return taken

    def _read(self, file: _File, now: float) -> bool:
        """Read ahead in a file, once per look to its end. Whether there is an event."""
        if file.looked == self._looks:
            return False
        try:
            size = file.path.stat().st_size
            if size < file.read:  # another file in its place
                self.given -= file.taken
                file.read = file.taken = 0
                file.size, file.begins = -1, (0, 0)
            if size != file.size:
                file.changed = now if file.size >= 0 else file.changed
                exhausted = self._fill(file)
                file.size = size if exhausted else -1
                file.seen = now
            file.problem = ""
        except OSError as error:  # nothing to wait for; looked at again in the next look
            if self._complete and not isinstance(error, FileNotFoundError):
                raise
            file.size, file.changed, file.looked = -1, -math.inf, self._looks
            file.problem = "" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        if file.size >= 0:
            file.looked = self._looks
        return bool(file.ahead)

    def _fill(self, file: _File) -> bool:
        """Take up to AHEAD events. Whether the end was reached."""
        with file.path.open("rb") as opened:
            if file.begins[0] < _BEGINNING:
                beginning = opened.read(_BEGINNING)
                file.begins = (len(beginning), zlib.crc32(beginning))
            opened.seek(file.read)
            for frame in frames(opened, file.read, complete=self._complete):
                file.read = frame.next_offset
                file.ahead.append(self._decoded(file, frame))
                if len(file.ahead) >= AHEAD:
                    return False
        return True

    def _decoded(self, file: _File, frame: Frame) -> Taken:
        if frame.error:
            return Taken(file.name, frame.offset, frame.next_offset, None, frame.error)
        try:
            event = self._decode(frame.event)
        except ValueError as error:
            return Taken(file.name, frame.offset, frame.next_offset, None, str(error), frame.event)
        if event.scalars and file.prefix:
            scalars = tuple((renamed(file.prefix, tag), value) for tag, value in event.scalars if renamed(file.prefix, tag))
            event = event._replace(scalars=scalars)
        return Taken(file.name, frame.offset, frame.next_offset, event)


def _order(file: _File) -> tuple[float, str]:
    return _time(file.ahead), file.name


def _time(ahead: deque[Taken]) -> float:
    """The time of the first event; a file begins no later than what is logged in it, whatever its own word is."""
    event = ahead[0].event
    if event is None or math.isnan(event.time):
        return -math.inf
    if event.begins and len(ahead) > 1 and (second := ahead[1].event) is not None and second.time < event.time:
        return second.time
    return event.time


def _checksum(path: Path, length: int) -> tuple[int, int]:
    try:
        with path.open("rb") as file:
            beginning = file.read(length)
    except OSError:
        return (0, 0)
    return (len(beginning), zlib.crc32(beginning))

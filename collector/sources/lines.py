"""Complete lines of one growing file, by byte offset, in bounded memory. The part of the spool source that reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from tocsin.wire import MAX_RECORD_BYTES

CHUNK: Final = 256 * 1024


class Problem(NamedTuple):
    """A place that cannot be handed out."""

    offset: int
    reason: str


class LineReader:
    """Where we are in one file. Nothing is kept open between reads: a spool may hold thousands of files."""

    def __init__(self, path: Path, offset: int, limit: int = MAX_RECORD_BYTES) -> None:
        self.path = path
        self._name = os.fspath(path)
        self.offset = offset
        """Where the next line begins."""
        self.size = 0
        """Of the file when it was last looked at."""
        self.at_end = False
        """Whether the last read saw everything up to the last newline."""
        self._limit = limit
        self._searched = offset
        """No newline lies in [offset, _searched): an unfinished line is not read again at every poll."""
        self._told = ""
        """The problem that was reported last and still lasts: it is reported once."""
        self._resuming = offset > 0
        """The place is not checked yet: it must follow a newline, or reading goes on behind the next one."""

    def news(self) -> bool:
        """Whether `read` might have something to say, at the cost of one look at the file's size. Most files are at rest."""
        try:
            return self._resuming or not self.at_end or os.stat(self._name).st_size != self._searched
        except OSError:
            return True

    def read(self, max_lines: int) -> tuple[list[tuple[int, bytes]], Problem | None]:
        """Up to `max_lines` lines (offset, line without its newline), and the problem that ended them, if one did."""
        self.at_end = True
        try:
            self.size = os.stat(self._name).st_size
            if self.size < self.offset:
                self._resuming = True
                return [], self._once(f"the file is {self.size} bytes long, shorter than what was read of it")
            if self.size == self._searched and not self._resuming:
                return [], None
            with self.path.open("rb") as file:
                if self._resuming and (problem := self._resume(file)):
                    return [], problem
                lines, problem = self._lines(file, max_lines)
        except FileNotFoundError:
            return [], None  # the next listing will miss it
        except OSError as error:
            self.at_end = False
            return [], self._once(f"the file cannot be read: {error.strerror or error}")
        self._told = ""
        return lines, problem

    def _once(self, reason: str) -> Problem | None:
        if self._told == reason:
            return None
        self._told = reason
        return Problem(self.offset, reason)

    def _resume(self, file: BinaryIO) -> Problem | None:
        """Go on where an earlier reader, or we before the file was cut, stood; at the next line if that is inside of one."""
        self._resuming = False
        file.seek(self.offset - 1)
        if file.read(1) == b"\n":
            self._searched = self.offset
            return None
        begin = self.offset
        self._searched = begin
        end = self._find_newline(file)
        if end is None:
            self._resuming = True  # still inside of that line; try again when it has ended
            return self._once("reading cannot go on here: no line begins, and none after it")
        self.offset = self._searched = end + 1
        self.at_end = False
        return Problem(begin, f"no line begins here; {end + 1 - begin} bytes up to the next one were skipped")

    def _lines(self, file: BinaryIO, max_lines: int) -> tuple[list[tuple[int, bytes]], Problem | None]:
        if self._searched - self.offset > self._limit:
            return [], self._skip(file)
        file.seek(self.offset)
        buffer = file.read(max(CHUNK, self._searched - self.offset + CHUNK))
        # A line longer than the buffer: read on up to the limit, and give it up there.
        while (last := buffer.rfind(b"\n")) < 0 and len(buffer) <= self._limit:
            more = file.read(CHUNK)
            if not more:
                self._searched = self.offset + len(buffer)
                return [], None
            buffer += more
        if last < 0:
            self._searched = self.offset + len(buffer)
            return [], self._skip(file)
        lines: list[tuple[int, bytes]] = []
        begin = 0
        while len(lines) < max_lines and 0 <= (end := buffer.find(b"\n", begin, last + 1)):
            if end - begin > self._limit:
                break
            lines.append((self.offset + begin, buffer[begin:end]))
            begin = end + 1
        self.offset += begin
        self._searched = self.offset
        if begin <= last and len(lines) < max_lines:  # the line that follows is over the limit, with its end in the buffer
            return lines, self._skip(file) if not lines else None
        read_to = self.offset - begin + len(buffer)
        self.at_end = begin > last and read_to >= self.size
        if begin > last:
            self._searched = read_to
        return lines, None

    def _skip(self, file: BinaryIO) -> Problem | None:
        """Pass over a line that is too long; None while its end has not been written."""
        begin = self.offset
        end = self._find_newline(file)
        if end is None:
            return None
        self.offset = self._searched = end + 1
        self.at_end = False
        return Problem(begin, f"a line of {end - begin} bytes, the limit is {self._limit}")

    def _find_newline(self, file: BinaryIO) -> int | None:
        """Where the first newline at or after `_searched` is; what was searched in vain is remembered."""
        file.seek(self._searched)
        while chunk := file.read(CHUNK):
            if (found := chunk.find(b"\n")) >= 0:
                return self._searched + found
            self._searched += len(chunk)
        return None

"""Follows a log of lines: through growth, half-written lines, truncation, replacement and rotation.

- A line is taken once its newline is there.
- Truncated, or other bytes where we were: a restart that opened the file for writing (verl does). A new attempt begins.
- The path leads to another file: the old one is read to its end first, then the new one from its beginning; its steps tell
  whether that was a rotation (they go on) or a restart (they go back).
- The path is gone: the open file is read on; if the path comes back it is another file.
- gzip content is read in one pass; it is not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from tocsin.formats import Format, Parsed, Parser
from tocsin.formats.base import Holding, unreadable
from tocsin.formats.gunzip import GzipLog
from tocsin.formats.reading import Line, LogFile, is_gzip, lines, open_log
from tocsin.ship.bookmarks import FINGERPRINT_BYTES, Bookmark, Fingerprint, fingerprint
from tocsin.ship.source import Batch, Reading
from tocsin.wire import RunRecord

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024
_NO_BYTES: Final = Fingerprint(0, 0, 0)


class Tail:
    """One log of lines, of a known format."""

    def __init__(self, path: Path, chosen: Format, reading: Reading) -> None:
        self._path = path
        self._format = chosen
        self._reading = reading
        self._file: LogFile | None = None
        self._lines: Iterator[Line] | None = None
        self._parser: Parser | None = None
        self._inode = 0
        self._begins = self._before = _NO_BYTES
        self._seen = (0, 0)
        """Size and time of change at the last look: bytes are compared only after a change."""
        self._offset = 0
        self._silent_until = 0
        """Records before this place are read for their context only (`from_end`)."""
        self._gzip = False
        self._ended = False

    def status(self) -> str:
        return f"byte {self._offset}" if self._file is not None or self._ended else "waiting for the file"

    def poll(self, last: bool) -> Batch:
        """See `Source`. One call takes about 500 records or 4 MiB at most."""
        if self._ended or (self._file is None and not self._open(last)):
            return Batch()
        assert self._file is not None and self._parser is not None
        packed = isinstance(self._file, GzipLog)
        replaced = not isinstance(self._file, GzipLog) and self._moved(self._file, self._parser)
        batch = self._portion(self._file, self._parser, complete=packed or replaced, last=last)
        if replaced and not batch.more:
            self._let_go()
            return batch._replace(more=True)
        return batch

    def rewind(self) -> None:
        self._let_go()
        self._parser, self._ended, self._offset = None, False, 0

    def close(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._lines = None, None

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open(self, last: bool) -> bool:
        """Open the path and find the place to go on from. False while there is nothing to read."""
        fresh = self._parser is None
        bookmark = self._reading.bookmark() if fresh else None
        if bookmark is not None and bookmark.format != self._format.name:
            bookmark = None
        path = self._renamed(bookmark) or self._path
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            if last:
                raise
            return False
        try:
            status = os.fstat(file.fileno())
            self._gzip = is_gzip(path)
            self._inode, self._seen = status.st_ino, (0, 0)
            self._offset = self._silent_until = 0
            self._begins = fingerprint(file, min(status.st_size, FINGERPRINT_BYTES))
            if fresh:
                self._begin(bookmark, file, status.st_size)
            self._before = fingerprint(file, 0 if self._gzip else self._offset)
        except BaseException:
            file.close()
            raise
        self._file = file
        if self._gzip:
            file.close()
            packed = open_log(path)
            self._file = packed
            if isinstance(packed, GzipLog):
                packed.skip(self._offset)
        return True

    def _begin(self, bookmark: Bookmark | None, file: BinaryIO, size: int) -> None:
        """Make the parser, at the bookmark if it holds."""
        try:
            self._parser = self._make_parser(bookmark.parser if bookmark is not None else None)
        except (KeyError, TypeError, ValueError, AttributeError):  # a state of another version: start over
            self._parser, bookmark = self._make_parser(None), None
        if bookmark is None:
            self._silent_until = size if self._reading.from_end and not self._gzip else 0
        elif bookmark.begins.matches(file) and (self._gzip or bookmark.before.matches(file)):
            self._offset = bookmark.offset
        elif bookmark.inode == self._inode:
            self._parser.restarted()  # begun anew while nobody looked

    def _make_parser(self, state: dict[str, Any] | None) -> Parser:
        reading = self._reading
        return self._format.parser(run=reading.run, names=reading.names, clock=reading.clock, state=state)

    def _renamed(self, bookmark: Bookmark | None) -> Path | None:
        """Where the bookmarked file went if it was rotated away while nobody looked (log -> log.1)."""
        if bookmark is None or _inode(self._path) == bookmark.inode:
            return None
        for sibling in self._path.parent.glob(f"{self._path.name}?*"):
            if _inode(sibling) != bookmark.inode:
                continue
            with sibling.open("rb", buffering=0) as file:
                if bookmark.begins.matches(file) and bookmark.before.matches(file):
                    return sibling
        return None

    # --- reading -----------------------------------------------------------------------------------------------------

    def _moved(self, file: BinaryIO, parser: Parser) -> bool:
        """Notice what happened to the file. True when the path leads elsewhere, so that this file ends here."""
        status = os.fstat(file.fileno())
        seen = (status.st_size, status.st_mtime_ns)
        if seen != self._seen:
            if status.st_size < self._offset or not (self._before.matches(file) and self._begins.matches(file)):
                parser.restarted()
                self._offset, self._silent_until, self._lines, self._before = 0, 0, None, _NO_BYTES
                self._begins = _NO_BYTES
            if self._begins.length < FINGERPRINT_BYTES:
                self._begins = fingerprint(file, min(status.st_size, FINGERPRINT_BYTES))
            self._seen = seen
        inode = _inode(self._path)
        return inode is not None and inode != self._inode

    def _portion(self, file: LogFile, parser: Parser, complete: bool, last: bool) -> Batch:
        """Read on, up to the size of a batch. `complete`: this file will not grow any more."""
        if self._lines is None:
            if not isinstance(file, GzipLog):
                file.seek(self._offset)
            self._lines = lines(file, self._offset, soft_break=self._format.soft_break)
        out: list[Parsed] = []
        begin = self._offset
        for line in self._lines:
            if not line.complete and not complete:
                return self._at_end(file, parser, out, line if last else None)
            out += _feed(parser, line)
            self._offset = line.next_offset
            if len(out) >= BATCH_RECORDS or self._offset - begin >= BATCH_BYTES:
                return self._batch(file, parser, out, more=True)
        if complete:
            self._ended = self._gzip
            out += parser.finish()
            return self._batch(file, parser, out, more=False)
        return self._at_end(file, parser, out, Line(self._offset, b"", complete=False) if last else None)

    def _at_end(self, file: LogFile, parser: Parser, out: list[Parsed], rest: Line | None) -> Batch:
        """The end of what is written. With `rest` (a last look), what is unfinished is sent as well, if it can be read; the
        bookmark stays before it, so that a later look takes it whole."""
        self._lines = None
        if rest is None and isinstance(parser, Holding):
            out += parser.overdue(self._reading.clock())
        batch = self._batch(file, parser, out, more=False)
        if rest is None:
            return batch
        self._ended = True
        unfinished = [*(_feed(parser, rest) if rest.value else ()), *parser.finish()]
        readable = tuple(parsed for parsed in unfinished if parsed.record is not None)
        return batch._replace(parsed=batch.parsed + readable)

    def _batch(self, file: LogFile, parser: Parser, out: list[Parsed], more: bool) -> Batch:
        if not isinstance(file, GzipLog):
            self._before = fingerprint(file, self._offset)
        state = parser.state()
        bookmark = None if state is None else self._place(state)
        return Batch(tuple(filter(self._wanted, out)), bookmark, more)

    def _wanted(self, parsed: Parsed) -> bool:
        return parsed.offset >= self._silent_until or isinstance(parsed.record, RunRecord)

    def _place(self, state: dict[str, Any]) -> Bookmark:
        return Bookmark(
            to=self._reading.to,
            run=self._reading.run,
            format=self._format.name,
            inode=self._inode,
            offset=self._offset,
            begins=self._begins,
            before=self._before,
            parser=state,
        )


def _feed(parser: Parser, line: Line) -> list[Parsed]:
    if line.error:
        return [unreadable(line.offset, line.next_offset, line.error, line.value)]
    return list(parser.feed(line.value, line.offset))


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None

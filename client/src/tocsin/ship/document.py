"""Follows a file that is rewritten as a whole: trainer_state.json or ROLL's state, one per checkpoint or one for the run.

The path may be the trainer's output folder: then the newest state in it is read (see `Kind.places`). Only rows that were
not sent yet are sent. A row that differs from what was sent for its step means that training went back to a checkpoint: a
new attempt begins with that row. A row to which an evaluation was added later is sent again, whole. A file that is no JSON
(yet) is read again at its next change.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tocsin.formats import Parsed
from tocsin.formats.base import Clock, RunLog, State, unreadable
from tocsin.formats.gunzip import GzipDamaged
from tocsin.formats.reading import open_log
from tocsin.formats.trainer_state import KINDS, MAX_BYTES, History, HistoryRow, Kind, TrainerStateParser, read_history
from tocsin.ship.bookmarks import Bookmark, Fingerprint
from tocsin.ship.source import Batch, Reading
from tocsin.wire import RunRecord

REMEMBERED: Final = 2048
"""Rows whose content is remembered, newest first: how far back a restart is recognised by content. Older rows count as sent."""
_Sent = dict[int, tuple[int, int]]
"""step -> (checksum of its training values, checksum of all values)."""


class Document:
    """One state, or the newest of a folder. `format` is a name of `KINDS`."""

    def __init__(self, path: Path, format: str, reading: Reading) -> None:
        self._path = path
        self._format = format
        self._kind = KINDS[format]
        self._reading = reading
        self._signature: tuple[str, int, int, int] | None = None
        self._log: RunLog | None = None
        self._sent: _Sent = {}
        self._rows = 0
        self._entries = 0

    def status(self) -> str:
        return f"{self._rows} rows sent" if self._log is not None else "waiting for the file"

    def poll(self, last: bool) -> Batch:
        """See `Source`. A document comes in one batch."""
        path = newest(self._path, (self._kind,))
        if path is None:
            if last:
                raise FileNotFoundError(f"{self._path}: no {Path(self._kind.places[-1]).name}")
            return Batch()
        status = path.stat()
        signature = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
        if signature == self._signature:
            return Batch()
        problem = f"more than {MAX_BYTES} bytes"
        history = None
        try:
            document = _whole(path)
            if len(document) <= MAX_BYTES:
                history = read_history(document, self._kind)
        except (ValueError, GzipDamaged) as error:  # half-written, most likely
            problem = str(error)
        if last or history is not None:
            self._signature = signature
        if history is None:
            return Batch((unreadable(0, 0, problem, b""),)) if last else Batch()
        return self._new(history, status.st_ino)

    def rewind(self) -> None:
        self._signature, self._log, self._sent = None, None, {}

    def close(self) -> None:
        """No file is held open."""

    def _new(self, history: History, inode: int) -> Batch:
        silent = False
        if self._log is None:
            silent = not self._restore() and self._reading.from_end
        assert self._log is not None
        parser = TrainerStateParser(self._log, self._kind)
        rows, went_back = unsent(history.rows, self._sent)
        if went_back:
            parser.restarted()
            self._sent = {step: sums for step, sums in self._sent.items() if step < rows[0].step}
        out: list[Parsed] = []
        for row in rows:
            known = row.step in self._sent
            if self._log.cut and not went_back and (known or not _trains(row)):
                continue  # an evaluation after the end: it would open an attempt
            out += parser.row(row)
            self._sent[row.step] = checksums(row)
            self._rows += not known
        if rows or not self._log.cut:
            out += parser.end(history)
        out += [unreadable(at, at + 1, why, b"") for at, why in history.unreadable if at >= self._entries]
        self._entries = history.entries
        for step in sorted(self._sent)[:-REMEMBERED]:
            del self._sent[step]
        wanted = [parsed for parsed in out if not silent or isinstance(parsed.record, RunRecord)]
        return Batch(tuple(wanted), self._place(history, inode))

    def _restore(self) -> bool:
        """Go on from the bookmark; False when there is none (that can be used)."""
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format == self._format:
            try:
                self._log = self._make_log(bookmark.parser["log"])
                self._sent = {int(step): (int(train), int(full)) for step, train, full in bookmark.parser["sent"]}
                self._entries = bookmark.offset
                return True
            except (KeyError, TypeError, ValueError):  # a state of another version: start over
                self._sent = {}
        self._log, self._entries = self._make_log(None), 0
        return False

    def _make_log(self, state: State | None) -> RunLog:
        clock: Clock = self._reading.clock
        return RunLog(run=self._reading.run, names=self._reading.names or self._kind.names, clock=clock, state=state)

    def _place(self, history: History, inode: int) -> Bookmark:
        assert self._log is not None
        parser: dict[str, Any] = {
            "log": self._log.state(),
            "sent": [[step, *sums] for step, sums in sorted(self._sent.items())],
        }
        nothing = Fingerprint(0, 0, 0)
        return Bookmark(
            to=self._reading.to,
            run=self._reading.run,
            format=self._format,
            inode=inode,
            offset=history.entries,
            begins=nothing,
            before=nothing,
            parser=parser,
        )


def newest(path: Path, kinds: Iterable[Kind] = tuple(KINDS.values())) -> Path | None:
    """The file itself, or the newest state of these kinds in a trainer's output folder; None when there is none."""
    if not path.is_dir():
        return path if path.exists() else None
    found = [file for kind in kinds for place in kind.places for file in path.glob(place)]
    dated: list[tuple[int, str]] = []
    for candidate in found:
        try:
            dated.append((candidate.stat().st_mtime_ns, str(candidate)))
        except OSError:  # a checkpoint that was just deleted
            continue
    return Path(max(dated)[1]) if dated else None


def _whole(path: Path) -> bytes:
    """The document, up to one byte more than the limit."""
    out = bytearray()
    with open_log(path) as file:
        while len(out) <= MAX_BYTES and (chunk := file.read(MAX_BYTES + 1 - len(out))):
            out += chunk
    return bytes(out)


def unsent(rows: list[HistoryRow], sent: _Sent) -> tuple[list[HistoryRow], bool]:
    """The rows to send, and whether training went back: then all rows from the first that differs."""
    rows = list({row.step: row for row in rows}.values())
    if not sent:
        return rows, False
    oldest, latest = min(sent), max(sent)
    changed: list[HistoryRow] = []
    for index, row in enumerate(rows):
        if row.step < oldest:
            continue
        known = sent.get(row.step)
        if known is None and row.step > latest:
            changed.append(row)
        elif known is None or known[0] != checksums(row)[0]:
            return rows[index:], True
        elif known[1] != checksums(row)[1] and row.step == latest:
            changed.append(row)
    return changed, False


def _trains(row: HistoryRow) -> bool:
    """Whether a row has more than an evaluation."""
    return any(not key.startswith("eval_") and key != "epoch" for key in row.metrics)


def checksums(row: HistoryRow) -> tuple[int, int]:
    """(of the training values, of all values) of a row; evaluations join a row later."""
    items = sorted(row.metrics.items(), key=lambda item: item[0])
    training = repr([item for item in items if not item[0].startswith("eval_")])
    return zlib.crc32(training.encode("utf-8", "replace")), zlib.crc32(repr(items).encode("utf-8", "replace"))

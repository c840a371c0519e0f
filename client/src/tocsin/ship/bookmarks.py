"""How far each log was sent: a small JSON file, replaced atomically, one entry per log.

A bookmark is believed only if the file still begins with the same bytes and has the same bytes before the place
(`Fingerprint`), and if the records went to the same destination; the inode finds a log that was renamed. A state file that
cannot be read is started over, which costs records that are sent twice, never one that is lost.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

FINGERPRINT_BYTES: Final = 1024


class Fingerprint(msgspec.Struct, frozen=True):
    """Up to 1 KiB of a file: its beginning, or what stands before a place."""

    end: int
    """The byte after it."""
    length: int
    crc: int

    def matches(self, file: BinaryIO) -> bool:
        """Whether the file still has these bytes there. Leaves the file's position alone (POSIX pread)."""
        if self.length == 0:
            return True
        return zlib.crc32(os.pread(file.fileno(), self.length, self.end - self.length)) == self.crc


def fingerprint(file: BinaryIO, end: int) -> Fingerprint:
    """The fingerprint of what stands before byte `end`."""
    length = min(end, FINGERPRINT_BYTES)
    value = os.pread(file.fileno(), length, end - length)
    return Fingerprint(end, len(value), zlib.crc32(value))


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """Everything before this place of a log was sent and confirmed."""

    to: str
    """Where the records went; another destination starts over."""
    run: str
    format: str
    inode: int
    offset: int
    """Bytes of a log of lines; rows of a document."""
    begins: Fingerprint
    """The first bytes of the log."""
    before: Fingerprint
    """The bytes before `offset`."""
    parser: dict[str, Any]
    """What the format's parser goes on from: attempt and last step among it."""


class _File(msgspec.Struct, kw_only=True):
    version: int = 1
    logs: dict[str, Bookmark] = {}


class Bookmarks:
    """The bookmarks in one state file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """Why an existing state file was not used."""
        self._logs: dict[str, Bookmark] = {}
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            return
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.problem = f"{path} is no state file of tocsin-ship ({error}); starting over"
            return
        if stored.version != 1:
            self.problem = f"{path} has version {stored.version}, this tocsin-ship knows 1; starting over"
            return
        self._logs = stored.logs

    def get(self, key: str) -> Bookmark | None:
        """The bookmark of a log."""
        return self._logs.get(key)

    def put(self, key: str, bookmark: Bookmark) -> None:
        """Keep a bookmark, on disk before this returns. Raises OSError."""
        if self._logs.get(key) == bookmark:
            return
        self._logs[key] = bookmark
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(_File(logs=self._logs)))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def beside(log: Path) -> Path:
    """The state file that belongs to a log when none is named."""
    name = log.name.replace("tfevents", "events")  # TensorBoard takes every file for one of its own that has this in its name
    return log.with_name(f".{name}.tocsin-ship.json")

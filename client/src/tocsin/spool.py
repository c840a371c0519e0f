"""The spool: a folder in which records wait as files, and through which stop requests come back.

    <folder>/records/<created_ns:020d>-<slug of run>-<pid>-<6 hex>.jsonl
    <folder>/control/<slug of run>-<8 hex of sha256(run)>.json

A record file is append-only and has one writer. A line is one JSON record and ends in "\\n"; what follows the last "\\n" is
being written (or was, when the writer died) and is no record yet. Lines are handed to the operating system once per batch.
After MAX_FILE_BYTES the writer begins a new file. Readers take files in lexicographic order, which is the order of creation
on one machine; records of one run are in order because a run has one writer at a time.

A control file holds the latest stop request of a run and is replaced atomically.

Errors: whatever the file system raises (OSError); the callers decide what to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tocsin import control

RECORDS: Final = "records"
CONTROL: Final = "control"
SUFFIX: Final = ".jsonl"
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_SLUG: Final = 60

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_RECORD_FILE: Final = re.compile(r"\d{20}-[A-Za-z0-9._-]{1,60}-\d+-[0-9a-f]{6}\.jsonl")


def slug(run: str) -> str:
    """The run id as a part of a file name: 1 to 60 characters of [A-Za-z0-9._-], never a leading dot. Not unique."""
    text = _UNSAFE.sub("_", run)[:MAX_SLUG]
    return "_" + text[1:] if text.startswith(".") else text or "_"


def record_file_name(run: str, created_ns: int, pid: int, token: str) -> str:
    """A new record file's name; `token` is 6 hex digits that set two files of one nanosecond apart."""
    return f"{created_ns:020d}-{slug(run)}-{pid}-{token}{SUFFIX}"


def is_record_file(name: str) -> bool:
    """Whether a file name in `records/` is one of ours (a reader skips the others)."""
    return _RECORD_FILE.fullmatch(name) is not None


def record_files(folder: Path) -> list[Path]:
    """The record files of a spool in reading order; empty when there is none yet."""
    try:
        names = [entry.name for entry in os.scandir(folder / RECORDS)]
    except FileNotFoundError:
        return []
    return [folder / RECORDS / name for name in sorted(names) if is_record_file(name)]


def control_path(folder: Path, run: str) -> Path:
    """Where the stop request of a run lies. The hash keeps runs apart whose slugs are equal."""
    digest = hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return folder / CONTROL / f"{slug(run)}-{digest}.json"


def write_control(folder: Path, request: control.StopRequest) -> Path:
    """Put a stop request where its run will find it, replacing an older one atomically. Returns the file."""
    path = control_path(folder, request.run)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}")
    try:
        temporary.write_bytes(control.encode(request) + b"\n")
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise
    return path


def read_control(folder: Path, run: str) -> control.StopRequest | None:
    """The stop request that lies there for a run, expired or not; None when there is none.

    Raises control.ControlError when the file is no stop request, OSError when it cannot be read.
    """
    try:
        value = control_path(folder, run).read_bytes()
    except FileNotFoundError:
        return None
    request = control.decode(value)
    return request if request.run == run else None


class SpoolWriter:
    """Appends lines to the record files of one spool. Not thread-safe; one writer per process and run."""

    def __init__(self, folder: Path, run: str, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._folder = folder / RECORDS
        self._run = run
        self._max_file_bytes = max_file_bytes
        self._fd = -1
        self._size = 0
        self.path: Path | None = None
        """The file that is being written."""

    @property
    def is_open(self) -> bool:
        """Whether a file is open for the next batch."""
        return self._fd >= 0

    def append(self, lines: Iterable[bytes]) -> None:
        """Write records (without newline) as one batch: all of them are complete lines in the file, or none is.

        Raises OSError; then nothing of the batch counts as written and the same batch may be tried again.
        """
        batch = b"".join([part for line in lines for part in (line, b"\n")])
        if not batch:
            return
        if self._fd < 0 or self._size + len(batch) > self._max_file_bytes or not os.fstat(self._fd).st_nlink:
            self._begin()  # also when a collector cleaned up during a long pause of the job: nobody reads a file without a name
        view = memoryview(batch)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._give_up()
            raise
        self._size += len(batch)

    def close(self) -> None:
        """Close the file; the next append begins a new one."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # a failed close loses nothing that write() had accepted
                os.close(fd)

    def _begin(self) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        name = record_file_name(self._run, time.time_ns(), os.getpid(), secrets.token_hex(3))
        self.path = self._folder / name
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = 0

    def _give_up(self) -> None:
        """Take back a half-written batch (disk full). Where that fails too, the file is left with a line that never ends."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self.close()

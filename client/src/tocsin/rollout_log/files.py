"""The files of the rollout log of one run: their names, writing a step whole or not at all, and room by the oldest.

Errors:

    OSError      the file system refuses, or has only what the job itself may need; nothing of the step is in the file, and it
                 may be tried again
    StepTooLarge the step alone takes more than half of what all files of the run may; nothing of it is in the file
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tocsin.spool import slug

LEVEL: Final = 1
"""Of compression: some 50 MB/s on one core, prose to half of its size; the next levels cost more time than they save disk."""
LEFT_FREE: Final = 1024**3
"""Bytes of the disk (or a twentieth of a small one) that are left to the job: a checkpoint must not fail for want of them."""
_CHUNK_BYTES: Final = 256 * 1024
_GZIP: Final = 31
_NAME: Final = re.compile(r"attempt\d+-rank\d+-step(\d+)-(\d{20})-(\d+-[0-9a-f]{6})\.jsonl\.gz")


class StepTooLarge(Exception):
    """A step would cost the log more than half of its files."""


class LogFile(NamedTuple):
    """A file of the log as the folder shows it."""

    created_ns: int
    path: Path
    size: int
    first_step: int
    sequence: str
    """Process and token: in the files of one sequence the steps never go back."""


def folder_name(run: str) -> str:
    """The name of a run's folder: the run id where a file name can be it, else its slug and a hash that keeps runs apart."""
    text = slug(run)
    return text if text == run else f"{text}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"


def file_name(step: int, attempt: int, rank: int, created_ns: int, token: str) -> str:
    """The name of a new file whose first step this is; `token` is 6 hex digits, the same while the steps go on."""
    return f"attempt{attempt:03d}-rank{rank}-step{step:09d}-{created_ns:020d}-{os.getpid()}-{token}.jsonl.gz"


def log_files(folder: Path) -> list[LogFile]:
    """The files in a run's folder, the oldest first; others are none of ours. Empty where there is no folder yet."""
    found = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                if match := _NAME.fullmatch(entry.name):
                    with contextlib.suppress(FileNotFoundError):  # another process made room in between
                        step, created_ns, sequence = match.groups()
                        size = entry.stat().st_size
                        found.append(LogFile(int(created_ns), folder / entry.name, size, int(step), sequence))
    except FileNotFoundError:
        return []
    return sorted(found)


def files_of_step(files: Sequence[LogFile], step: int) -> list[LogFile]:
    """Those of the files, in their order, that may hold a step: told by the names, none is opened."""
    found = []
    following: dict[str, int] = {}
    """First step of the next file, by sequence."""
    for file in reversed(files):
        # A file ends where the next of its sequence begins; both may have that step.
        if file.first_step <= step <= following.get(file.sequence, step):
            found.append(file)
        following[file.sequence] = file.first_step
    return found[::-1]


class FileWriter:
    """Appends steps to files, one file open at a time. Not thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._path: Path | None = None
        self._fd = -1
        self._size = 0
        self.deleted = 0
        """Files that went to make room."""

    def write(self, path: Path, lines: Iterable[bytes]) -> None:
        """Append one step, its lines without newlines, as one gzip member.

        Raises OSError, StepTooLarge, and what `lines` raises.
        """
        self._open(path)
        _check_room(path.parent)
        others = [file for file in log_files(path.parent) if file.path != path]
        total = self._size + sum(file.size for file in others)
        written = 0
        try:
            for chunk in _compressed(lines):
                view = memoryview(chunk)
                total += len(chunk)
                if written + len(chunk) > self._max_bytes // 2 or self._size + written + len(chunk) > self._max_bytes:
                    raise StepTooLarge(f"more than {self._max_bytes // 2} bytes")
                while total > self._max_bytes and others:
                    total -= self._delete(others.pop(0))
                while view:
                    count = os.write(self._fd, view)
                    written += count
                    view = view[count:]
        except BaseException:
            with contextlib.suppress(OSError):  # then the next write cuts it, or a reader meets a torn end
                os.ftruncate(self._fd, self._size)
            raise
        self._size += written

    def close(self) -> None:
        """Close the file; the next write opens its own."""
        fd, self._fd, self._path = self._fd, -1, None
        if fd >= 0:
            with contextlib.suppress(OSError):  # a failed close loses nothing that write() had accepted
                os.close(fd)

    def _open(self, path: Path) -> None:
        """Make `path` the open file, ending after its last whole step."""
        if path == self._path and self._fd >= 0 and os.fstat(self._fd).st_nlink:
            self._size = min(self._size, os.fstat(self._fd).st_size)  # less only if somebody else cut it
            os.ftruncate(self._fd, self._size)  # what a failed write left behind
            return
        self.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._path, self._size = path, os.fstat(self._fd).st_size

    def _delete(self, file: LogFile) -> int:
        """Delete a file; how many bytes that was. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):  # somebody else made room
            file.path.unlink()
            self.deleted += 1
        return file.size


def _check_room(folder: Path) -> None:
    """Raises OSError where the disk has no more than is left to the job."""
    disk = shutil.disk_usage(folder)
    if disk.free < (left := min(LEFT_FREE, disk.total // 20)):
        raise OSError(errno.ENOSPC, f"{disk.free} bytes are free, {left} of them are left to the job")


def _compressed(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of one gzip member that holds these lines."""
    member = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting += (line, b"\n")
        size += len(line) + 1
        if size >= _CHUNK_BYTES:
            # Large pieces: zlib lets go of the interpreter while it works on one.
            if chunk := member.compress(b"".join(waiting)):
                yield chunk
            waiting.clear()
            size = 0
    yield member.compress(b"".join(waiting)) + member.flush()

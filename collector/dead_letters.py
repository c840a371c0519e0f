"""Where values go that are no records, so that somebody can look at them: a rotated file, or memory.

Bounded in everything: a value is kept up to KEPT_VALUE_BYTES, a file up to its size, and so many files. Nothing here raises
into the loop: what could not be kept is counted. (`collector.sources.kafka.dead_letters` writes to a topic.)

One dead letter is one JSON object on one line:

    {"v":1,"partition":"tocsin.records/3","offset":1234,"reason":"not_json","detail":"...","size":57,"truncated":false,
     "value":"<base64>","rejected_at":1790000000.0}
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

KEPT_VALUE_BYTES: Final = 16 * 1024
"""The beginning of a value says what it is; the whole of a 4 MiB one would push a hundred others out of the file."""
KEPT_DETAIL_CHARS: Final = 1_000

log = logging.getLogger(__name__)


class DeadLetter(msgspec.Struct, kw_only=True, frozen=True):
    """One rejected value and where it was."""

    v: int = 1
    partition: str
    offset: int
    reason: str
    """The label of the rejection counter (`tocsin.wire.RejectReason`, or a word of the source)."""
    detail: str
    size: int
    """Bytes of the value as it came."""
    truncated: bool
    value: bytes
    """At most KEPT_VALUE_BYTES from its beginning; base64 in JSON."""
    rejected_at: float


def letter(*, partition: str, offset: int, reason: str, detail: str, value: bytes, rejected_at: float) -> DeadLetter:
    """The dead letter of a value, cut to what is kept."""
    return DeadLetter(
        partition=partition,
        offset=offset,
        reason=reason,
        detail=detail[:KEPT_DETAIL_CHARS],
        size=len(value),
        truncated=len(value) > KEPT_VALUE_BYTES,
        value=value[:KEPT_VALUE_BYTES],
        rejected_at=rejected_at,
    )


def encode(dead: DeadLetter) -> bytes:
    """One line of JSON without its newline."""
    fields: dict[str, Any] = msgspec.structs.asdict(dead)
    # Lone surrogates in a text (a detail quotes what was sent) are no UTF-8; their escape is.
    for key in ("partition", "reason", "detail"):
        fields[key] = fields[key].encode("utf-8", "backslashreplace").decode()
    fields["value"] = base64.b64encode(dead.value).decode("ascii")
    return msgspec.json.encode(fields)


def decode(line: bytes) -> DeadLetter:
    """The dead letter in a line. Raises msgspec.DecodeError for what is none."""
    return msgspec.json.decode(line, type=DeadLetter)


class MemoryDeadLetters:
    """The last `limit` dead letters, in memory."""

    def __init__(self, limit: int = 1_000) -> None:
        self.letters: deque[DeadLetter] = deque(maxlen=limit)
        self.kept = 0
        self.dropped = 0
        """Pushed out by younger ones."""
        self.closed = False

    def put(self, *, partition: str, offset: int, reason: str, detail: str, value: bytes, rejected_at: float) -> None:
        self.dropped += len(self.letters) == self.letters.maxlen
        self.kept += 1
        self.letters.append(
            letter(partition=partition, offset=offset, reason=reason, detail=detail, value=value, rejected_at=rejected_at)
        )

    def close(self) -> None:
        self.closed = True


class FileDeadLetters:
    """`<folder>/dead-letters.jsonl`, rotated to `.1`, `.2` ... at `max_bytes`; `files` files in all, the oldest goes.

    One writer per folder. A letter is written through to the operating system at once: the transaction that moves the
    position behind it may be committed next.

    `kept` counts letters in the file, `dropped` those that could not be written (disk full, folder gone, closed); the first
    failure of a row is logged. It tries again with each letter.
    """

    NAME: Final = "dead-letters.jsonl"

    def __init__(self, folder: Path, *, max_bytes: int = 64 * 1024 * 1024, files: int = 4) -> None:
        if max_bytes < 1 or files < 1:
            raise ValueError(f"max_bytes and files must be at least 1, not {max_bytes} and {files}")
        self._path = folder / self.NAME
        self._max_bytes = max_bytes
        self._files = files
        self._file: BinaryIO | None = None
        self._size = 0
        self._failing = False
        self._closed = False
        self.kept = 0
        self.dropped = 0

    def put(self, *, partition: str, offset: int, reason: str, detail: str, value: bytes, rejected_at: float) -> None:
        if self._closed:
            self.dropped += 1
            return
        dead = letter(partition=partition, offset=offset, reason=reason, detail=detail, value=value, rejected_at=rejected_at)
        try:
            self._write(encode(dead) + b"\n")
        except OSError as error:
            self.dropped += 1
            if not self._failing:
                log.error("dead letters cannot be written and are counted only: %s", error.strerror or error)
            self._failing = True
            self._release()
        else:
            self.kept += 1
            self._failing = False

    def close(self) -> None:
        self._closed = True
        self._release()

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
            self._size = self._mended(self._file)
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
            self._file = self._path.open("ab", buffering=0)
            self._size = 0
        view = memoryview(line)
        while view:
            written = self._file.write(view)
            self._size += written
            view = view[written:]

    def _mended(self, file: BinaryIO) -> int:
        """The size, after the half line that a crash or a full disk left is ended: the next letter gets its own line."""
        size = os.fstat(file.fileno()).st_size
        if size:
            with self._path.open("rb") as reader:
                reader.seek(size - 1)
                if reader.read(1) != b"\n":
                    size += file.write(b"\n")
        return size

    def _rotate(self) -> None:
        self._release()
        for number in range(self._files - 1, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            with contextlib.suppress(FileNotFoundError):  # fewer files than allowed so far
                os.replace(older, self._numbered(number))
        if self._files == 1:
            self._path.unlink()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self.NAME}.{number}")

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # every write was complete or counted before
                file.close()


class RejectedShare:
    """The share of rejected values among all that came in the last `window` seconds: 0 to 1, NaN when nothing came.

    Time is a parameter and may stand still; a step back counts into the newest second. Kept in `resolution` buckets, so the
    window's edge is as fine as window / resolution.
    """

    def __init__(self, window: float = 60.0, resolution: int = 60) -> None:
        if window <= 0 or resolution < 1:
            raise ValueError(f"window and resolution must be positive, not {window} and {resolution}")
        self._width = window / resolution
        self._resolution = resolution
        self._buckets: deque[tuple[int, int, int]] = deque()
        """(number of the bucket, accepted, rejected), oldest first."""
        self.accepted = 0
        self.rejected = 0

    def add(self, now: float, accepted: int, rejected: int) -> float:
        """Count what one batch brought and return the share of the window that ends now."""
        number = int(now // self._width)
        if self._buckets and number <= self._buckets[-1][0]:
            number, old_accepted, old_rejected = self._buckets.pop()
            self._buckets.append((number, old_accepted + accepted, old_rejected + rejected))
        else:
            self._buckets.append((number, accepted, rejected))
        self.accepted += accepted
        self.rejected += rejected
        while self._buckets[0][0] <= number - self._resolution:
            _, old_accepted, old_rejected = self._buckets.popleft()
            self.accepted -= old_accepted
            self.rejected -= old_rejected
        return self.share

    @property
    def share(self) -> float:
        """As of the last `add`."""
        total = self.accepted + self.rejected
        return self.rejected / total if total else float("nan")

"""Reading a log: gzip by content, lines of bounded length with their offsets, and a run id from a path."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from tocsin.formats.gunzip import GzipDamaged, GzipLog
from tocsin.wire import MAX_NAME_CHARS, MAX_RECORD_BYTES

MAX_LINE_BYTES: Final = MAX_RECORD_BYTES + 64 * 1024
_CHUNK: Final = 256 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GENERIC: Final = frozenset(
    "console history log logging logs metrics nohup out output progress raw record records results run stderr stdout train "
    "trainer_log trainer_state training training_log training_metrics train_log wandb runs tensorboard tensorboard_log".split()
)
_EXTENSIONS: Final = frozenset("csv err gz json jsonl log md ndjson out txt".split())

LogFile = BinaryIO | GzipLog


class Line(NamedTuple):
    """A line with its newline (the last may have none)."""

    offset: int
    value: bytes
    error: str = ""
    """Why this place is no line: over the limit (`value` is its beginning), or the compressed data end here."""
    skipped: int = 0
    """Bytes of the place beyond `value`."""
    complete: bool = True
    """False for what stands at the end of the data without a newline: more of it may come."""

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.value) + self.skipped


def open_log(path: Path) -> LogFile:
    """The log's bytes, uncompressed if the content is gzip. Raises OSError."""
    file = path.open("rb")
    try:
        packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return GzipLog(file) if packed else file


def is_gzip(path: Path) -> bool:
    """Whether the content is gzip. Raises OSError."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


def head(path: Path, size: int) -> bytes:
    """Up to `size` uncompressed bytes from the beginning; fewer when compressed data end early. Raises OSError."""
    buffer = io.BytesIO()
    with open_log(path) as file:
        try:
            while buffer.tell() < size and (chunk := file.read(min(_CHUNK, size - buffer.tell()))):
                buffer.write(chunk)
        except GzipDamaged:
            return buffer.getvalue()
    return buffer.getvalue()


def lines(file: LogFile, offset: int = 0, *, soft_break: bytes = b"", limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """The lines from where the file stands, in constant memory. `offset` is the place of the first.

    A line over `limit` is cut after its last `soft_break` where there is one; elsewhere it is one unreadable place, and
    reading goes on after it. The last line may lack its newline.
    """
    buffer = bytearray()
    over = 0  # bytes of an overlong line already given up
    while True:
        try:
            chunk = file.read(_CHUNK)
        except GzipDamaged as error:
            yield Line(offset, bytes(buffer), f"the compressed data end here: {error}", over)
            return
        if not chunk:
            break
        start = len(buffer)
        buffer += chunk
        begin = 0
        while (end := buffer.find(b"\n", max(begin, start))) >= 0:
            value = bytes(buffer[begin : end + 1])
            line = Line(offset, b"", _too_long(limit), over + len(value)) if over else Line(offset, value)
            over = 0
            yield line
            offset, begin = line.next_offset, end + 1
        del buffer[:begin]
        if len(buffer) <= limit:
            continue
        if soft_break and not over and (cut := buffer.rfind(soft_break)) > 0:
            value = bytes(buffer[:cut])
            yield Line(offset, value)
            offset += cut
            del buffer[:cut]
        else:
            over += len(buffer)
            buffer.clear()
    if over:
        yield Line(offset, b"", _too_long(limit), over + len(buffer), complete=False)
    elif buffer:
        yield Line(offset, bytes(buffer), complete=False)


def document(file: LogFile) -> Iterator[bytes]:
    """The parts of a file that is read as a whole, up to damage of compressed data: the reader of the document sees that."""
    try:
        while chunk := file.read(_CHUNK):
            yield chunk
    except GzipDamaged:
        return


def _too_long(limit: int) -> str:
    return f"a line of more than {limit} bytes"


def run_id(path: Path) -> str:
    """The id of a run whose log does not name it: the file's stem, or the folder where the stem says nothing.

    `runs/grpo-7b/raw.log.gz` is `grpo-7b`, and so is `grpo-7b/checkpoint-200/trainer_state.json`.
    """
    path = path.absolute()
    stem = path.name
    while (parts := stem.rpartition("."))[0] and parts[2].lower() in _EXTENSIONS:
        stem = parts[0]
    name = stem
    if stem.lower() in _GENERIC or "tfevents" in stem:
        folders = [folder for folder in (part.name for part in path.parents) if folder]
        name = next((folder for folder in folders if not folder.startswith("checkpoint-")), stem)
    return name[:MAX_NAME_CHARS] or "run"

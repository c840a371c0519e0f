"""The rows of a dump: JSON objects, one per line, read one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tocsin.formats.reading import LogFile, lines, open_log

MAX_ROW_BYTES: Final = 128 * 1024 * 1024
"""A row of 131,072 tokens with five numbers each takes some 10 MB."""


class Row(NamedTuple):
    """One line of a dump."""

    number: int
    """From 1, within what is read."""
    offset: int
    next_offset: int
    value: dict[str, Any] | None
    """None when the line is no JSON object; `error` says why."""
    error: str = ""
    complete: bool = True
    """False for what stands at the end without a newline."""


def rows(file: LogFile, offset: int = 0, first: int = 1) -> Iterator[Row]:
    """The rows from where the file stands; blank lines are none. Memory: one line and what it decodes to."""
    for index, line in enumerate(lines(file, offset, limit=MAX_ROW_BYTES), first):
        if line.error:
            yield Row(index, line.offset, line.next_offset, None, line.error, line.complete)
        elif value := line.value.strip():
            decoded, error = decode(value)
            yield Row(index, line.offset, line.next_offset, decoded, error, line.complete)


def file_rows(path: Path) -> Iterator[Row]:
    """All rows of a file, plain or gzip. Raises OSError."""
    with open_log(path) as file:
        yield from rows(file)


def decode(value: bytes) -> tuple[dict[str, Any] | None, str]:
    """The object in a line, literals NaN and Infinity included; None and why not."""
    try:
        row = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as strict:
        try:
            row = json.loads(value)
        except (ValueError, RecursionError):
            return None, f"not JSON: {strict}"
    return (row, "") if isinstance(row, dict) else (None, f"expected an object, got {type(row).__name__}")

"""Reading what a check compares from files: rows of JSON lines, arrays of .npz, gzip by content, errors with their place."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.values import CheckInputError
from tocsin.formats.reading import head, lines, open_log

MAX_ROW_BYTES: Final = 256 * 1024 * 1024
"""One response of a dump: four lists of 100,000 tokens are some 10 MB."""
_ZIP: Final = b"PK\x03\x04"
_EMPTY_ZIP: Final = b"PK\x05\x06"
_NPY: Final = b"\x93NUMPY"


class FileError(CheckInputError):
    """A file that cannot be used, with its place: `path`, `path, line 3`, `path, key 'mask'`."""

    def __init__(self, path: Path, place: str, why: str) -> None:
        super().__init__(f"{path}{', ' if place else ''}{place}: {why}")


def is_npz(path: Path) -> bool:
    """Whether the content is a zip archive, which .npz is. Raises FileError for a file that cannot be read, and for .npy."""
    try:
        start = head(path, 8)
    except OSError as error:
        raise FileError(path, "", error.strerror or str(error)) from None
    if start.startswith(_NPY):
        raise FileError(path, "", "a .npy file holds one array without a name; write numpy.savez(file, logprobs=..., mask=...)")
    return start.startswith((_ZIP, _EMPTY_ZIP))


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file. Raises FileError; pickled objects are refused, because loading one runs its code."""
    name = ""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {}
            for name in archive.files:
                arrays[name] = archive[name]
            return arrays
    except (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        raise FileError(path, f"key {name!r}" if name else "", f"cannot be read as .npz: {error}") from None


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file, one a line, with their line numbers (from 1). NaN and Infinity may be spelled so.

    Raises FileError at the first line that is no JSON object, and where compressed data end early.
    """
    try:
        with open_log(path) as file:
            for number, line in enumerate(lines(file, limit=MAX_ROW_BYTES), start=1):
                if line.error:
                    raise FileError(path, f"line {number}", line.error)
                if not line.value.strip():
                    continue
                yield number, _object(path, number, line.value)
    except OSError as error:
        raise FileError(path, "", error.strerror or str(error)) from None


def read_json(path: Path) -> dict[str, Any]:
    """A file that is one JSON object. Raises FileError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(path, "", error.strerror or str(error)) from None
    return _object(path, None, content)


def field(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these names that the row has with a value."""
    return next((name for name in names if row.get(name) is not None), None)


def _object(path: Path, number: int | None, content: bytes) -> dict[str, Any]:
    place = f"line {number}" if number else ""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise FileError(path, place, f"no JSON: {error}") from None
    except RecursionError:
        raise FileError(path, place, "JSON that is nested too deeply") from None
    if not isinstance(value, dict):
        raise FileError(path, place, f"a JSON {type(value).__name__} instead of an object")
    return value

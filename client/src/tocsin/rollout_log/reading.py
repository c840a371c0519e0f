"""Back from the files of the rollout log, whatever state the writer left them in."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, TypedDict

import msgspec

from tocsin.formats.gunzip import GzipDamaged, GzipLog
from tocsin.rollout_log.files import files_of_step, log_files
from tocsin.warn import log as logger

_READ_BYTES: Final = 256 * 1024
_SPELLED: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RolloutRow(TypedDict, total=False):
    """One response. A key is missing where the trainer gave no such column, None where it gave no value."""

    run: str
    attempt: int
    rank: int
    """Of the process that wrote it."""
    step: int
    index: int
    """Place among the responses of the step, from 0."""
    of: int
    """Responses of the step: fewer rows in the file mean that its writer was killed."""
    time: float
    """Seconds since the epoch, of the call."""
    prompt_id: str | None
    prompt: str
    response: str
    reward: float | str | None
    """Final, after penalties. A float, as `read_rollouts` gives it; in the file NaN and infinities are texts."""
    components: dict[str, float | str | None]
    """Raw rewards, by model or rule."""
    correct: bool | None
    truncated: bool | None
    policy_version: Any
    extra: dict[str, Any]


def read_rollouts(path: Path | str, step: int | None = None) -> Iterator[RolloutRow]:
    """The responses in a file, or in all files of a run's folder in the order in which they were begun; of one step if told.

    What is cut off or damaged ends its file, with a warning on the logger "tocsin"; the rows before it are there.
    Raises OSError for a path that cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        yield from _rows(path, step)
        return
    files = log_files(path)
    for file in files if step is None else files_of_step(files, step):
        with contextlib.suppress(FileNotFoundError):  # its writer made room
            yield from _rows(file.path, step)


def _rows(path: Path, step: int | None) -> Iterator[RolloutRow]:
    decode = msgspec.json.Decoder(RolloutRow).decode
    with path.open("rb") as file:
        for line in _lines(file, path):
            try:
                row = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                logger.warning("%s: a line is no response: %s", path, error)
                return
            if step is None or row.get("step") == step:
                yield _restored(row)


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The complete lines, as far as the file can be read."""
    rest: list[bytes] = []
    with GzipLog(file) as unpacked:
        try:
            while chunk := unpacked.read(_READ_BYTES):
                *ended, last = chunk.split(b"\n")
                for part in ended:
                    yield b"".join((*rest, part))
                    rest = []
                rest.append(last)
        except GzipDamaged as damage:
            logger.warning("%s: %s; the responses before it were read", path, damage)


def _restored(row: RolloutRow) -> RolloutRow:
    """Numbers that the file spells as text are numbers again."""
    if "reward" in row:
        row["reward"] = _number(row["reward"])
    if "components" in row:
        row["components"] = {name: _number(value) for name, value in row["components"].items()}
    return row


def _number(value: float | str | None) -> float | str | None:
    return _SPELLED.get(value, value) if isinstance(value, str) else value

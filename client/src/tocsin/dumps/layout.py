"""Where the steps of a dump lie in a folder."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tocsin.ship.bookmarks import fingerprint

_NEMO_STEP: Final = re.compile(r"train_data_step(\d{1,18})\.jsonl(?:\.gz)?")
_NEMO_FOLDER: Final = re.compile(r"exp_(\d{1,18})")
_VERL_STEP: Final = re.compile(r"(\d{1,18})\.jsonl(?:\.gz)?")
_TRL_STEP: Final = re.compile(r"completions_(\d{1,18})\.parquet")
_VERSION: Final = re.compile(r"(\d{1,18})")
_SHARD: Final = re.compile(r"(?P<run>.+)(?<!_filtered)_rollouts_(?P<shard>\d{1,18})\.jsonl")
COMPLETIONS: Final = "completions.jsonl"


class Mark(NamedTuple):
    """What a step looked like on the disk."""

    size: int
    """In bytes; of a folder that is long complete, in files."""
    mtime_ns: int
    tail: int = 0
    """Checksum of a file's last bytes."""


class Unit(NamedTuple):
    """One step on the disk."""

    folder: str
    """The attempt's folder, where a start of the trainer makes a new one; else empty."""
    step: int
    paths: tuple[Path, ...]
    mark: Mark
    """Without `tail`, which costs a read: see `marked`."""
    of_files: bool = False
    """A folder of files that come one by one."""


Units = Callable[[Path, int], list[Unit]]
"""The steps in a folder, by attempt and step, of which those up to the second argument have been taken. Raises OSError."""


def nemo_units(path: Path, taken: int = -1) -> list[Unit]:
    """`train_data_step<N>.jsonl` in the folder itself, or in its `exp_<NNN>`."""
    if own := _files(path, _NEMO_STEP):
        return own
    folders = sorted(_named(path, _NEMO_FOLDER, folders=True))
    return [unit for _, folder in folders for unit in _files(folder, _NEMO_STEP, folder.name)]


def verl_units(path: Path, taken: int = -1) -> list[Unit]:
    """`<step>.jsonl`."""
    return _files(path, _VERL_STEP)


def trl_units(path: Path, taken: int = -1) -> list[Unit]:
    """`completions_<step>.parquet`."""
    return _files(path, _TRL_STEP)


def areal_units(path: Path, taken: int = -1) -> list[Unit]:
    """`<version>/*.jsonl`, of versions that were not taken yet: there may be thousands of files in each. Only the two newest
    are looked at file by file, the others have long been complete."""
    units = []
    versions = sorted(item for item in _named(path, _VERSION, folders=True) if item[0] > taken)
    for at, (version, folder) in enumerate(versions, start=-len(versions)):
        files = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(".jsonl"))
        size = sum(file.stat().st_size for file in files) if at >= -2 else len(files)
        if files:
            units.append(Unit("", version, tuple(files), Mark(size, folder.stat().st_mtime_ns), of_files=True))
    return units


def shards(path: Path) -> list[tuple[str, Path]]:
    """(run, file) of open-instruct's shards, in the order of writing: each start of the trainer is a run of its own."""
    found = []
    for entry in os.scandir(path):
        if match := _SHARD.fullmatch(entry.name):
            found.append((match["run"], int(match["shard"]), Path(entry.path)))
    return [(run, file) for run, _, file in sorted(found)]


def completions(path: Path) -> list[tuple[str, Path]]:
    """ms-swift's one file, given itself or by its folder."""
    file = path / COMPLETIONS if path.is_dir() else path
    return [("", file)] if file.exists() else []


def marked(unit: Unit) -> Mark:
    """The unit's mark with its `tail`, as it stands now. Raises OSError."""
    if unit.of_files:
        return unit.mark
    with unit.paths[0].open("rb") as file:
        status = os.fstat(file.fileno())
        return Mark(status.st_size, status.st_mtime_ns, fingerprint(file, status.st_size).crc)


def grown(unit: Unit, before: Mark) -> bool:
    """Whether the file is what it was, with more behind it (it had not been complete). Raises OSError."""
    if unit.of_files or unit.mark.size <= before.size:
        return False
    with unit.paths[0].open("rb") as file:
        return fingerprint(file, before.size).crc == before.tail


def attempt_order(folder: str) -> int:
    """The number of an attempt's folder; -1 for none."""
    match = _NEMO_FOLDER.fullmatch(folder)
    return int(match[1]) if match else -1


def ends_whole(path: Path) -> bool:
    """Whether a file's last byte ends a line; gzip and other binary content always does. Raises OSError."""
    if not path.name.endswith(".jsonl"):
        return True
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return size > 0 and os.pread(file.fileno(), 1, size - 1) == b"\n"


def _files(path: Path, pattern: re.Pattern[str], folder: str = "") -> list[Unit]:
    """The step files of one folder, by step; one that vanishes meanwhile is not there."""
    found: dict[int, Unit] = {}
    for step, file in sorted(_named(path, pattern, folders=False)):
        with contextlib.suppress(FileNotFoundError):  # it vanished since it was listed
            status = file.stat()
            found[step] = Unit(folder, step, (file,), Mark(status.st_size, status.st_mtime_ns))
    return list(found.values())


def _named(path: Path, pattern: re.Pattern[str], *, folders: bool) -> Iterator[tuple[int, Path]]:
    for entry in os.scandir(path):
        if (match := pattern.fullmatch(entry.name)) and entry.is_dir() is folders:
            yield int(match[1]), Path(entry.path)

"""All dump formats, how one is recognised, and the follower of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tocsin.dumps import layout
from tocsin.dumps.appended import Appended
from tocsin.dumps.areal import AREAL
from tocsin.dumps.ms_swift import MS_SWIFT
from tocsin.dumps.nemo import NEMO
from tocsin.dumps.open_instruct import OPEN_INSTRUCT
from tocsin.dumps.rows import file_rows
from tocsin.dumps.sample import BadRow, Dump, Options
from tocsin.dumps.shards import Files
from tocsin.dumps.stepwise import Stepwise
from tocsin.dumps.trl_completions import TRL
from tocsin.dumps.verl import VERL
from tocsin.formats import UnknownFormat
from tocsin.formats.event_paths import holds_events
from tocsin.ship.source import Reading, Source

LOOKED_AT: Final = 20
"""Rows of a folder's newest file that are looked at before it is called no dump."""


class Known(NamedTuple):
    """A dump format and where its files lie."""

    dump: Dump
    units: layout.Units | None = None
    """For a file per step."""
    files: Files | None = None
    """For files that grow."""
    later: int = 1
    """Later steps that prove a step complete: AReaL's last samples of a version may come after the first of the next."""


_KNOWN: Final = (
    Known(NEMO, units=layout.nemo_units),
    Known(VERL, units=layout.verl_units),
    Known(OPEN_INSTRUCT, files=layout.shards),
    Known(MS_SWIFT, files=layout.completions),
    Known(AREAL, units=layout.areal_units, later=2),
    Known(TRL, units=layout.trl_units),
)
DUMPS: Final[Mapping[str, Dump]] = MappingProxyType({known.dump.name: known.dump for known in _KNOWN})


def follow_dump(path: Path, name: str, reading: Reading) -> Source:
    """A follower of the dump at `path`. Raises UnknownFormat for a configuration that means nothing to a dump."""
    known = next(known for known in _KNOWN if known.dump.name == name)
    try:
        if known.units is not None:
            return Stepwise(path, known.dump, known.units, reading, later=known.later)
        assert known.files is not None
        return Appended(path, known.dump, known.files, reading)
    except ValueError as error:
        raise UnknownFormat(f"--config {error}") from None


def recognise_dump(path: Path) -> str | None:
    """The name of the dump in a folder, or in a file of ms-swift's; None when it is none (yet).

    Told from names and, where names are no proof (`12.jsonl`), from a row. Raises OSError, and UnknownFormat for a folder that
    holds event files as well: one command ships one of them.
    """
    if not path.is_dir():
        return MS_SWIFT.name if path.name == layout.COMPLETIONS and _reads(MS_SWIFT, path) else None
    looks: tuple[tuple[Dump, Callable[[Path], list[Path]]], ...] = (
        (NEMO, lambda folder: [unit.paths[0] for unit in layout.nemo_units(folder)]),
        (TRL, lambda folder: [unit.paths[0] for unit in layout.trl_units(folder)]),
        (OPEN_INSTRUCT, lambda folder: [file for _, file in layout.shards(folder)]),
        (VERL, lambda folder: [unit.paths[0] for unit in layout.verl_units(folder)]),
        (AREAL, lambda folder: [unit.paths[0] for unit in layout.areal_units(folder)]),
    )
    for dump, find in looks:
        found = find(path)
        if found and (dump is TRL or any(_reads(dump, file) for file in (found[0], found[-1]))):
            if holds_events(path):
                raise UnknownFormat(
                    f"{path} holds event files and a dump of samples: ship each with a command of its own and the same --run, "
                    f"one with --format tensorboard, one with --format {dump.name}"
                )
            return dump.name
    return None


def _reads(dump: Dump, path: Path) -> bool:
    """Whether one of the first rows is a sample of this dump."""
    for row, _ in zip(file_rows(path), range(LOOKED_AT), strict=False):
        if row.value is not None:
            try:
                return bool(list(dump.read(row.value, Options())))
            except BadRow:
                continue
    return False

"""Logs that training frameworks write, as records: `read_records(path)` for a file, `FORMATS[name].parser()` to follow one.

Keys stay as logged (the collector knows the aliases); `names` of a record says whose keys they are. Each run opens with a
`RunRecord` and closes with an `EndRecord` only if its log says that it ended. Steps that go back, a file that was begun anew,
or a log that says so open a new attempt. Logs without a clock are dated 60 s per record from 0.

Errors:

    UnknownFormat    no format recognises the content
    OSError          the file cannot be read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tocsin.formats.areal_console import AREAL_CONSOLE
from tocsin.formats.base import Clock, Format, Parsed, Parser, UnknownFormat, unreadable
from tocsin.formats.canonical import CANONICAL
from tocsin.formats.console_dict import OPENRLHF_CONSOLE
from tocsin.formats.csv_table import CSV
from tocsin.formats.detection import detect, recognise
from tocsin.formats.flat_jsonl import FLAT_JSONL
from tocsin.formats.reading import LogFile, document, lines, open_log, run_id
from tocsin.formats.roll import ROLL_CONSOLE
from tocsin.formats.slime_console import SLIME_CONSOLE
from tocsin.formats.tensorboard import TENSORBOARD
from tocsin.formats.trainer_state import ROLL_STATE, TRAINER_STATE
from tocsin.formats.trl_console import TRL_CONSOLE
from tocsin.formats.verl_console import VERL_CONSOLE
from tocsin.formats.verl_jsonl import VERL_JSONL

_ALL: Final[tuple[Format, ...]] = (
    CANONICAL,
    TRL_CONSOLE,
    TRAINER_STATE,
    VERL_JSONL,
    VERL_CONSOLE,
    OPENRLHF_CONSOLE,
    SLIME_CONSOLE,
    AREAL_CONSOLE,
    ROLL_CONSOLE,
    ROLL_STATE,
    CSV,
    FLAT_JSONL,
    TENSORBOARD,
)
FORMATS: Mapping[str, Format] = MappingProxyType({format.name: format for format in _ALL})

__all__ = ["FORMATS", "Clock", "Format", "Parsed", "Parser", "UnknownFormat", "detect", "read_records", "recognise", "run_id"]


def read_records(path: Path, format: str = "auto", *, run: str | None = None, names: str | None = None) -> Iterator[Parsed]:
    """The records of one file, from its beginning, plain or gzip (by content), in constant memory for line formats.

    `format` is a name of `FORMATS` or "auto". `run` names a run that the log does not name (else the file's name does, see
    `run_id`); `names` overrides the vocabulary of the keys. An unreadable place comes as `Parsed.error` and the stream goes
    on; compressed data that end early are the last such place.

    Raises UnknownFormat (content not recognised, or no such format) and OSError, both before the first record.
    """
    if format == "auto":
        format = detect(path)
    if (chosen := FORMATS.get(format)) is None:
        raise UnknownFormat(f"no format {format!r}; there are: auto, {', '.join(FORMATS)}")
    if chosen.read is not None:
        return chosen.read(path, run=run or run_id(path), names=names)
    file = open_log(path)
    return _in_order(_records(file, chosen, run or run_id(path), names))


def _in_order(places: Iterator[Parsed]) -> Iterator[Parsed]:
    """The places with offsets that never fall, though a parser may give a row after what stands behind it."""
    reached = 0
    for place in places:
        if place.offset < reached:
            place = place._replace(offset=reached, next_offset=max(reached, place.next_offset))
        reached = max(reached, place.next_offset)
        yield place


def _records(file: LogFile, chosen: Format, run: str, names: str | None) -> Iterator[Parsed]:
    parser = chosen.parser(run=run, names=names)
    with file:
        if chosen.whole:
            for part in document(file):
                yield from parser.feed(part, 0)
        else:
            for line in lines(file, soft_break=chosen.soft_break):
                if line.error:
                    yield unreadable(line.offset, line.next_offset, line.error, line.value)
                else:
                    yield from parser.feed(line.value, line.offset)
        yield from parser.finish()

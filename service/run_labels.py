"""The labels of known runs, which overrides are held against: from recorded logs, or from a file that lists them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from collector.ports import SourceUnavailable
from collector.sources.file import FileSource
from rules.typed_yaml import load_path
from service.recordings import Recording, find
from tocsin import wire
from tocsin.formats import UnknownFormat

_HEAD: Final = 100
"""Records of a log that are read: the run says at its beginning what it is."""


class _FromTheStart:
    """Positions of a reader that has read nothing; a store would take longer to import than the rules to check."""

    def position(self, partition: str) -> int | None:
        return None


class NoLabels(Exception):
    """Nothing is known of the runs; the text says why."""


def of(path: Path) -> list[Mapping[str, str]]:
    """The labels of each run behind a path: a YAML list of labels, or a log or folder of logs.

    Raises NoLabels, and rules.config_errors.ConfigErrors for a list with faults.
    """
    if path.suffix == ".yaml":
        return [*load_path(path, list[dict[str, str]])]
    recordings, bad = find([path])
    if bad:
        raise NoLabels(f"{bad[0].path}: {bad[0].reason}")
    found: dict[str, Mapping[str, str]] = {}
    for recording in recordings:
        found |= _head(recording)
    if not found:
        raise NoLabels(f"{path}: no log of a run in it")
    return list(found.values())


def _head(recording: Recording) -> Mapping[str, Mapping[str, str]]:
    """The labels that the first records of a log declare, by run; a log that says nothing is a run without labels."""
    source = FileSource(recording.path, recording.format or "auto", run=recording.run, max_records=_HEAD)
    labels: dict[str, dict[str, str]] = {}
    source.open(_FromTheStart())
    try:
        records = source.poll(0.0).records
    except UnknownFormat:
        return {}  # a folder holds other files too
    except SourceUnavailable as error:
        raise NoLabels(str(error)) from error
    finally:
        source.close()
    for raw in records:
        try:
            record = wire.decode(raw.value, raw.content_type).record
        except wire.WireError:
            continue
        known = labels.setdefault(record.run, {})
        if isinstance(record, wire.RunRecord):
            known |= record.labels
    return labels

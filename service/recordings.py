"""Which logs a path means: a file is itself; a folder is what its labels name, or else every log that is recognised in it.

The event files of a run are one log, and its path is their folder.

A corpus of recorded runs has a `labels.yaml` that says for each run its file and format. It may lie in the folder that was
named or in one of the two above; then exactly the labelled files below the named folder are meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from service.labels import LABELS, Label, LabelsError, read
from tocsin.formats.event_paths import runs_below

_LEVELS: Final = 3
"""The folder itself and two above it."""
_SUFFIXES: Final = frozenset((".jsonl", ".json", ".log", ".txt", ".csv", ".out", ".ndjson"))
"""What is tried in a folder without labels; a file that is named by itself may be called anything."""


class Recording(NamedTuple):
    """One log to read."""

    path: Path
    format: str | None = None
    """Name of its format; None: recognised from its content."""
    run: str | None = None
    """Id of the run where the log has none; None: from the path."""
    labelled: bool = False
    named: bool = True
    """The user named this very file, so that not recognising it is an error."""
    label: Label | None = None
    """What the corpus says of the run."""


class Unreadable(NamedTuple):
    """A path that means nothing, and why."""

    path: Path
    reason: str


def find(paths: Iterable[Path]) -> tuple[list[Recording], list[Unreadable]]:
    """The logs that the paths mean, in order, each once; and the paths that mean none."""
    found: dict[Path, Recording] = {}
    bad: list[Unreadable] = []
    for path in paths:
        try:
            recordings: Sequence[Recording] = _folder(path) if path.is_dir() else [Recording(path)]
            if not path.exists():
                raise _Meaningless("there is no such file or folder")
            if not recordings:
                raise _Meaningless("no log lies in this folder")
        except _Meaningless as error:
            bad.append(Unreadable(path, str(error)))
            continue
        for recording in recordings:
            found.setdefault(recording.path.resolve(), recording)
    return list(found.values()), bad


class _Meaningless(Exception):
    """The text says why."""


def _folder(folder: Path) -> list[Recording]:
    for root in [folder.resolve(), *folder.resolve().parents][:_LEVELS]:
        if (root / LABELS).is_file():
            labelled = [found for found in _labelled(root) if found.path.is_relative_to(folder.resolve())]
            if labelled:
                return labelled
    logs = [path for path in sorted(folder.rglob("*")) if _is_log(path)]
    return [Recording(path, named=False) for path in (*logs, *runs_below(folder))]


def _is_log(path: Path) -> bool:
    if path.name.startswith(".") or not path.is_file():
        return False
    return Path(path.name.removesuffix(".gz")).suffix.lower() in _SUFFIXES


def _labelled(root: Path) -> list[Recording]:
    try:
        labels = read(root)
    except LabelsError as error:
        raise _Meaningless(str(error)) from error
    return [
        Recording((root / label.file).resolve(), label.format, run, labelled=True, label=label) for run, label in labels.items()
    ]

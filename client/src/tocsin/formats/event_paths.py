"""Which event files belong to a run.

A path means one event file, or a folder with the event files of one run: those in it, and those of the writers that
`add_scalars` and `add_hparams` open in folders below. If none lie in the folder itself, it may hold one run (OpenRLHF's
`<run_name>`), or one folder per start of the trainer (NeMo RL's `exp_001`, `exp_002`; names that are a date and time), or the
parts `train`, `eval` ... of one run. Several runs in one folder are an error that names them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tocsin.formats.base import UnknownFormat

MARK: Final = "tfevents"
DEPTH: Final = 4
"""How far below the folder event files are looked for."""
_PARTS: Final = frozenset({"train", "training", "eval", "evaluation", "val", "valid", "validation", "test"})
_START: Final = re.compile(r"exp_\d+|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+|\d{4}-?\d\d-?\d\d[-_T]?\d\d[-_:]?\d\d([-_:]?\d\d)?")
"""A folder that stands for one start of a trainer: NeMo RL, Hugging Face's Trainer (`Aug23_10-02-11_host`), ROLL."""
_HPARAMS_WRITER: Final = re.compile(r"\d{9,}\.\d+")
"""`add_hparams` names its folder by the time; its scalars are results of the experiment, logged under no step."""
_SKIPPED: Final = re.compile(r"checkpoint-\d+|global_step_?\d+|\..+|__pycache__")
_MAX_NAMED: Final = 5


def is_event_file(name: str) -> bool:
    """Whether a file's name is one of an event file, as TensorBoard itself decides; hidden files (of rsync, say) are none."""
    return MARK in name and not name.endswith(".profile-empty") and not name.startswith(".")


def holds_events(folder: Path) -> bool:
    """Whether event files lie in a folder or below."""
    return next(_walk(folder, DEPTH), None) is not None


def event_files(folder: Path) -> list[Path]:
    """The event files in a folder and below, in order of their names. Raises OSError when the folder cannot be listed."""
    return sorted(_walk(folder, DEPTH))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    below: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=depth == DEPTH):
                if depth > 0 and not _SKIPPED.fullmatch(entry.name):
                    below.append(Path(entry.path))
            elif is_event_file(entry.name):
                yield Path(entry.path)
    for path in sorted(below):
        try:
            yield from _walk(path, depth - 1)
        except OSError:  # removed or closed to us: the other folders are read all the same
            continue


def roots(folder: Path, files: list[Path]) -> list[Path]:
    """The folders of the run whose event files these are. Raises UnknownFormat when they are several runs."""
    tops = tops_of(files)
    if len(tops) == 1:
        return tops
    if len({without_start(folder, top) for top in tops}) == 1:  # folders differ, so each has a part that is a start
        return tops
    names = [top.relative_to(folder).as_posix() for top in tops]
    if _PARTS.issuperset(names):
        return [folder]
    shown = ", ".join(names[:_MAX_NAMED]) + (" ..." if len(names) > _MAX_NAMED else "")
    raise UnknownFormat(f"{folder}: the event files of {len(names)} runs ({shown}); name the folder of one")


def runs_below(folder: Path) -> list[Path]:
    """The folders of the runs whose event files lie in a folder or below: the folder itself when they are one run."""
    files = event_files(folder)
    try:
        return [folder] if files and roots(folder, files) else []
    except UnknownFormat:
        return tops_of(files)


def tops_of(files: list[Path]) -> list[Path]:
    """The folders that hold event files and lie in no other that does."""
    holding = sorted({path.parent for path in files})
    return [path for path in holding if not any(other != path and path.is_relative_to(other) for other in holding)]


def without_start(folder: Path, top: Path) -> tuple[str, ...]:
    """The way to a folder, without the parts that stand for one start of a trainer."""
    return tuple(part for part in top.relative_to(folder).parts if not _START.fullmatch(part))


def renamed(prefix: str, tag: str) -> str:
    """The name of a scalar of a sub-folder's writer; "" when it is none of the run's.

    `add_scalars("loss", {"a": 1})` writes the tag `loss` in the folder `loss_a` (PyTorch) or `loss/a` (tensorboardX): here
    `loss/a`. Elsewhere the folder stands before the tag, as TensorBoard shows it.
    """
    if _HPARAMS_WRITER.fullmatch(prefix.rpartition("/")[2]):
        return ""
    if prefix.startswith(f"{tag}/"):
        return prefix
    family = tag.replace("/", "_") + "_"
    return f"{tag}/{prefix.removeprefix(family)}" if prefix.startswith(family) else f"{prefix}/{tag}"

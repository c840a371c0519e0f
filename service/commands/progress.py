"""A bar on standard error while logs are read; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.commands.terminal import err
from service.recordings import Recording
from service.replay import CannotReplay

T = TypeVar("T")


class Outcome(NamedTuple):
    """What became of the logs that gave no result."""

    skipped: list[Path]
    """Files of a folder that are no known log."""
    problems: list[str]
    """Logs that somebody named, or that a label names, and why they cannot be read."""


def over(
    recordings: Sequence[Recording], work: Callable[[Recording, Callable[[int], None]], T], what: str, outcome: Outcome
) -> Iterator[T]:
    """The results of `work` on each log, one at a time; `work` gets the log and a function to tell its records so far."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[records]:,} records"),
        console=err(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task(what, total=len(recordings), records=0)
        before = latest = 0
        for recording in recordings:
            progress.update(task, description=recording.run or recording.path.name)

            def advance(records: int, base: int = before) -> None:
                nonlocal latest
                latest = base + records
                progress.update(task, records=latest)

            try:
                result = work(recording, advance)
            except CannotReplay as error:
                if recording.named or recording.labelled:
                    outcome.problems.append(str(error))
                else:
                    outcome.skipped.append(recording.path)
            else:
                yield result
                before = latest
            progress.advance(task)

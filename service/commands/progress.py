"""A bar on standard error while logs are read; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service import forking
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
                _cannot(recording, str(error), outcome)
            else:
                yield result
                before = latest
            progress.advance(task)


def by_processes(
    recordings: Sequence[Recording],
    work: Callable[[Recording, Callable[[int], None]], T],
    what: str,
    outcome: Outcome,
    jobs: int,
) -> list[T]:
    """As `over`, by several processes where that is safe; the bar then counts whole logs. The results are in order."""
    if jobs == 1 or len(recordings) < 2 or not forking.may_fork():
        return list(over(recordings, work, what, outcome))

    def one(recording: Recording) -> T | _Unread:
        try:
            return work(recording, lambda records: None)
        except CannotReplay as error:
            return _Unread(str(error))

    progress = without_thread()
    with progress:
        task = progress.add_task(what, total=len(recordings))
        progress.refresh()

        def done(result: T | _Unread) -> None:
            progress.advance(task)
            progress.refresh()

        found = forking.in_order(one, recordings, jobs, done)
    results: list[T] = []
    for recording, result in zip(recordings, found, strict=True):
        if isinstance(result, _Unread):
            _cannot(recording, result.reason, outcome)
        else:
            results.append(result)
    return results


def without_thread() -> Progress:
    """A bar that no thread redraws (`refresh` does): processes are forked while it stands."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=err(), transient=True, disable=not sys.stderr.isatty(), auto_refresh=False)


class _Unread(NamedTuple):
    """A log that cannot be read, and why."""

    reason: str


def _cannot(recording: Recording, reason: str, outcome: Outcome) -> None:
    if recording.named or recording.labelled:
        outcome.problems.append(reason)
    else:
        outcome.skipped.append(recording.path)

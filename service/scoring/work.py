"""All labelled runs of a corpus, watched by a few processes at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector.recorded import chooser
from rules.model import Severity
from service import bundles
from service.baselines import load_baselines
from service.labels import Label, scored
from service.recordings import Recording
from service.scoring.alarms import Grade
from service.scoring.figures import RuleFigure, Total, rules, total
from service.scoring.peers import load_peers
from service.scoring.watched import TOCSIN, Watched, watch

_PORTIONS: Final = 4
"""Per process: few, since each portion loads the rules, and more than one, since runs are of different length."""


@dataclass(frozen=True)
class Score:
    """The figures of a bundle over a corpus."""

    runs: tuple[Watched, ...]
    """In the order of the labels."""
    totals: tuple[Total, ...]
    rules: tuple[RuleFigure, ...]


@dataclass(frozen=True)
class Task:
    """What a process needs; everything in it can be sent to another one."""

    runs: tuple[tuple[Recording, Label], ...]
    rules: tuple[Path, ...]
    shipped: bool
    peers: bool
    baselines: Path | None = None
    """Folder or file of recorded clean baselines."""


def score(
    root: Path,
    own: Sequence[Path] = (),
    *,
    shipped: bool = True,
    peers: bool = False,
    baselines: Path | None = None,
    jobs: int = 2,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Score:
    """Watch every labelled run below `root` with the bundle, in `jobs` processes; `progress` gets runs done and runs in all.

    `baselines` are the recorded clean ones, as replay takes them; other tools know none. Memory is that of one run per process
    and of the alarms of all. Raises LabelsError, CannotReplay, ConfigErrors, and PeerMissing when `peers` are asked for and not
    installed.
    """
    if peers:
        load_peers()
    load_baselines(baselines)  # faults in them are told here, not by a process
    labels = scored(root)
    severities = {alert.name: alert.severity for alert in bundles.engine(own, shipped=shipped).bundle.alerts}
    runs = [
        (Recording((root / label.file).resolve(), label.format, run, labelled=True), label) for run, label in labels.items()
    ]
    tasks = [Task(tuple(portion), tuple(own), shipped, peers, baselines) for portion in _portions(runs, jobs)]
    watched: dict[str, Watched] = {}
    for portion in _done(tasks, jobs):
        watched.update((each.run, each) for each in portion)
        progress(len(watched), len(runs))
    return figures([watched[run] for run in labels], severities)


def figures(runs: Sequence[Watched], severities: dict[str, Severity]) -> Score:
    """The figures of runs that were watched; `severities` of the bundle's alerts by name."""
    tools = list(dict.fromkeys(tool for run in runs for tool in run.alarms))
    return Score(
        tuple(runs),
        tuple(total(tool, grade, runs, severities) for tool in tools or [TOCSIN] for grade in Grade),
        tuple(rules(runs, severities)),
    )


def work(task: Task) -> list[Watched]:
    """What one process does."""
    engine = bundles.engine(task.rules, shipped=task.shipped)
    peers = load_peers() if task.peers else []
    recorded_for = chooser(load_baselines(task.baselines))
    return [watch(recording, label, engine, peers, recorded_for) for recording, label in task.runs]


def _portions(runs: Sequence[tuple[Recording, Label]], jobs: int) -> list[list[tuple[Recording, Label]]]:
    """The runs dealt out, the largest first, so that no process is left alone with a long one at the end."""
    largest = sorted(runs, key=lambda each: _size(each[0].path), reverse=True)
    count = 1 if jobs == 1 else min(len(runs), jobs * _PORTIONS)
    return [largest[number::count] for number in range(count)]


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _done(tasks: Sequence[Task], jobs: int) -> Iterator[list[Watched]]:
    if jobs == 1:
        yield from map(work, tasks)
        return
    # Not forked: a copy of a process with threads may hold locks that nobody will release.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

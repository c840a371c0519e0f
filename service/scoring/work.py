"""All labelled runs of a corpus, watched by a few processes at once (`service.forking`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.recorded import chooser
from rules.model import Severity
from service import bundles, forking
from service.baselines import load_baselines
from service.labels import scored
from service.recordings import Recording
from service.scoring.alarms import Grade
from service.scoring.figures import RuleFigure, Total, rules, total
from service.scoring.peers import load_peers
from service.scoring.watched import TOCSIN, Watched, watch


@dataclass(frozen=True)
class Score:
    """The figures of a bundle over a corpus."""

    runs: tuple[Watched, ...]
    """In the order of the labels."""
    totals: tuple[Total, ...]
    rules: tuple[RuleFigure, ...]


def score(
    root: Path,
    own: Sequence[Path] = (),
    *,
    shipped: bool = True,
    peers: bool = False,
    baselines: Path | None = None,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Score:
    """Watch every labelled run below `root` with the bundle, in `jobs` processes; `progress` gets runs done and runs in all.

    `baselines` are the recorded clean ones, as replay takes them; other tools know none. Memory is that of one run per process
    and of the alarms of all. Raises LabelsError, CannotReplay, ConfigErrors, and PeerMissing when `peers` are asked for and not
    installed.
    """
    others = load_peers() if peers else []
    recorded_for = chooser(load_baselines(baselines))
    engine = bundles.engine(own, shipped=shipped)
    labels = scored(root)
    # The largest first, so that no process is left alone with a long one at the end.
    largest = sorted(labels, key=lambda run: _size(root / labels[run].file), reverse=True)

    def work(run: str) -> Watched:
        label = labels[run]
        recording = Recording((root / label.file).resolve(), label.format, run, labelled=True)
        return watch(recording, label, engine, others, recorded_for)

    watched: dict[str, Watched] = {}

    def done(result: Watched) -> None:
        watched[result.run] = result
        progress(len(watched), len(labels))

    forking.in_order(work, largest, jobs, done)
    return figures([watched[run] for run in labels], {alert.name: alert.severity for alert in engine.bundle.alerts})


def figures(runs: Sequence[Watched], severities: dict[str, Severity]) -> Score:
    """The figures of runs that were watched; `severities` of the bundle's alerts by name."""
    tools = list(dict.fromkeys(tool for run in runs for tool in run.alarms))
    return Score(
        tuple(runs),
        tuple(total(tool, grade, runs, severities) for tool in tools or [TOCSIN] for grade in Grade),
        tuple(rules(runs, severities)),
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0

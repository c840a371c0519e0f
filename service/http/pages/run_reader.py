"""What the pages show of a run beside its row: its main metrics, its configuration, its links. From the store, so that nobody
waits for the evaluation and a run that is no longer in memory has its page all the same.

The last few runs that were asked for are kept, each until its next record, and for some seconds beyond: making a run anew takes
the time of folding its records since the last checkpoint, which the evaluation lacks meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from collector.model import Baseline
from collector.run import Run
from collector.runs import Runs
from service.evidence.gather import masked
from service.live import ClockKind, UnusableCheckpoint, restored
from service.store.model import RunRow
from service.store.store import Store

log = logging.getLogger(__name__)

MAIN: Final = (
    ("reward_mean", "eval_score", "correct_ratio"),
    ("policy_entropy",),
    ("response_length_mean",),
    ("grad_norm", "grad_norm_max"),
    ("rollout_kl_k3", "rollout_kl_abs", "rollout_logprob_abs_diff_mean"),
    ("kl_reference", "kl_old_policy"),
    ("ppo_clip_ratio", "ppo_clip_high_ratio"),
    ("zero_variance_group_ratio",),
    ("truncated_ratio",),
    ("learning_rate",),
)
"""Of each line the first one that a run has."""
_FEW: Final = 6
_KEPT: Final = 8
AT_LEAST_SECONDS: Final = 10.0
"""For which a run is shown as it was, whatever came since."""
_MAX_CONFIG: Final = 300
_MAX_VALUE: Final = 300


class Metric(NamedTuple):
    """One series."""

    key: str
    steps: Sequence[int]
    values: Sequence[float]
    normal: tuple[float, float] | None
    """Lowest and highest value within three scales of its baseline."""


class RunFacts(NamedTuple):
    """A run as the pages show it."""

    metrics: Sequence[Metric]
    links: Mapping[str, str]
    config: Sequence[tuple[str, str]]
    """Dotted names and values, in order, at most 300."""
    config_more: int
    on_stop: str
    end_reason: str


class _Found(NamedTuple):
    """What was found of a run when it had so many rows."""

    sequence: int
    until: float
    facts: RunFacts


class RunReader:
    """Safe to call from several threads, one of which looks at a time."""

    def __init__(self, store: Store, runs: Runs, clock: ClockKind, now: Callable[[], float] = time.monotonic) -> None:
        """`runs` makes the runs, with its limits and recorded baselines; none is added to it. `now` (seconds) only runs on."""
        self._store = store
        self._runs = runs
        self._clock: ClockKind = clock
        self._now = now
        self._lock = threading.Lock()
        self._found: OrderedDict[str, _Found] = OrderedDict()

    def read(self, row: RunRow) -> RunFacts | None:
        """None when the store holds nothing of the run that this version can read. Raises StoreError."""
        with self._lock:
            known = self._found.get(row.run)
            if known is not None and (known.sequence == row.sequence or self._now() < known.until):
                self._found.move_to_end(row.run)
                return known.facts
            facts = self._look(row.run)
            if facts is not None:
                self._found[row.run] = _Found(row.sequence, self._now() + AT_LEAST_SECONDS, facts)
                self._found.move_to_end(row.run)
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)
            return facts

    def _look(self, run: str) -> RunFacts | None:
        stored = self._store.restore(run)
        if stored is None:
            return None
        try:
            live = restored(stored, self._runs, self._clock)
        except UnusableCheckpoint as error:
            log.warning("run %s: its page has no metrics, the checkpoint cannot be read: %s", run, error)
            return None
        return facts_of(live.run)


def facts_of(run: Run) -> RunFacts:
    """What is kept of a run for its page."""
    config = list(_flat(masked(run.config)))
    return RunFacts(
        [_metric(run, key) for key in _main(run)],
        dict(run.links),
        config[:_MAX_CONFIG],
        max(0, len(config) - _MAX_CONFIG),
        run.on_stop,
        run.end_reason,
    )


def normal_range(baseline: Baseline | None) -> tuple[float, float] | None:
    """Three scales to either side of the centre."""
    if baseline is None:
        return None
    return baseline.centre - 3 * baseline.scale, baseline.centre + 3 * baseline.scale


def _main(run: Run) -> list[str]:
    series = run.series
    found = [next((name for name in names if name in series), "") for names in MAIN]
    return [key for key in found if key] or [key for key in series if series[key].provenance.value != "signal"][:_FEW]


def _metric(run: Run, key: str) -> Metric:
    series = run.series[key]
    steps: array[int] = series.steps[-run.depth :]
    return Metric(key, steps, series.values[-len(steps) :], normal_range(run.baselines.get(key)))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    else:
        text = str(value)
        yield name, text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}… (+{len(text) - _MAX_VALUE:,} characters)"

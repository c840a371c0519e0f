"""How long one scrape takes, and how large it is: 200 and 2,000 runs of 60 metrics, signals and rules included.

Each run takes a record between two scrapes, so no number of the text is what it was. Runs are alike when they log the same keys
in the same order, as those of one framework do; unlike when each has an order of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from benchmarks.records import encoded
from collector.exporter import Exporter
from collector.health import Health
from collector.model import RulesExposed
from collector.run import Run
from collector.runs import Runs
from rules.engine import Engine
from rules.loader import load_bundle, shipped_packs
from rules.run_states import RunStates
from tocsin import wire

STEPS = 40
JUDGED = 8
"""The last steps of those are judged by all rules."""
ROUNDS = 5
SEEDS = 4


@dataclass(slots=True)
class Watched:
    """A run with the states of its rules and what is shown of them, which is made anew at each commit."""

    run: Run
    states: RunStates
    records: Iterator[wire.Record]
    shown: RulesExposed


class Fleet:
    """Runs with some history, each under its own name."""

    def __init__(self, count: int, *, alike: bool = True) -> None:
        self._engine = Engine(load_bundle([shipped_packs()]))
        self.runs = Runs(max_runs=count)
        self.watched: list[Watched] = []
        logs = [[wire.decode(value).record for value in encoded("bench", STEPS + ROUNDS + 1, seed)] for seed in range(SEEDS)]
        for number in range(count):
            log = logs[number % SEEDS] if alike else _in_own_order(logs[number % SEEDS], number)
            run, states = self.runs.make(f"grpo-{number:05d}"), RunStates()
            self.runs.add(run)
            each = Watched(run, states, iter(log), self._engine.exposed(states))
            for step in range(STEPS + 1):  # a run record comes first
                self._take(each, judged=step > STEPS - JUDGED)
            self.watched.append(each)
        self.exporter = Exporter(self.runs.exposed, lambda: [(each.run.run, each.shown) for each in self.watched], Health())

    def move(self) -> None:
        """One more record of each run."""
        for each in self.watched:
            self._take(each, judged=True)

    def _take(self, each: Watched, *, judged: bool) -> None:
        record = next(each.records)
        each.run.apply(record, received_at=record.time, arrival=record.time)
        if judged:
            each.run.extend(self._engine.record(each.run))
            self._engine.evaluate(each.run, each.states, each.run.event_time)
            each.shown = self._engine.exposed(each.states)


def _in_own_order(log: Sequence[wire.Record], number: int) -> list[wire.Record]:
    """The same log, but its first step has its metrics in another order, in which the run then has its series."""
    opening, first, *rest = log
    assert isinstance(first, wire.StepRecord)
    names = list(first.metrics)
    random.Random(number).shuffle(names)
    return [opening, replace(first, metrics={name: first.metrics[name] for name in names}), *rest]


def seconds(fleet: Fleet) -> tuple[float, float, int]:
    """Of the first scrape and, in the median, of those after it; bytes."""
    taken, size = [], 0
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        parts = fleet.exporter.parts()
        taken.append(time.perf_counter() - started)
        size = sum(map(len, parts))
        del parts
        if len(taken) <= ROUNDS:
            fleet.move()
    return taken[0], median(taken[1:]), size


def run() -> dict[str, float]:
    """Seconds of a first scrape and of those after it, and the body's size; the same of 2,000 runs that are all unlike."""
    figures: dict[str, float] = {}
    for count in (200, 2_000):
        first, later, size = seconds(Fleet(count))
        figures[f"scrape_{count}_runs_first_s"] = first
        figures[f"scrape_{count}_runs_s"] = later
        figures[f"scrape_{count}_runs_mb"] = size / 2**20
    figures["scrape_2000_unlike_runs_s"] = seconds(Fleet(2_000, alike=False))[1]
    return figures

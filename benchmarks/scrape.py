"""How long one scrape takes, and how large it is: 200 and 2,000 runs of 60 metrics, signals and rules included."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.records import encoded
from collector.exporter import Exporter
from collector.health import Health
from collector.run import Run
from rules.engine import Engine
from rules.loader import load_bundle, shipped_packs
from rules.run_states import RunStates
from tocsin import wire

STEPS = 40
ROUNDS = 5


def fleet(count: int) -> tuple[list[Run], list[RunStates], Engine]:
    """Runs with some history, each under its own name."""
    engine = Engine(load_bundle([shipped_packs()]))
    values = encoded("bench", STEPS)
    records = [wire.decode(value).record for value in values]
    runs, states = [], []
    for number in range(count):
        run, state = Run(f"grpo-{number:05d}", depth=256), RunStates()
        for record in records:
            run.apply(record, received_at=record.time, arrival=record.time)
        engine.evaluate(run, state, run.event_time)
        runs.append(run)
        states.append(state)
    return runs, states, engine


def exporter_of(runs: list[Run], states: list[RunStates], engine: Engine) -> Exporter:
    """Shows these runs and what the rules say of them."""
    return Exporter(
        lambda: [run.exposed for run in runs],
        lambda: [(run.run, engine.samples(state)) for run, state in zip(runs, states, strict=True)],
        Health(),
    )


def run() -> dict[str, float]:
    """Seconds of a first scrape (label text is not yet cached) and of those after it, and the body's size."""
    figures: dict[str, float] = {}
    for count in (200, 2_000):
        exporter = exporter_of(*fleet(count))
        started = time.perf_counter()
        body = exporter.render()
        figures[f"scrape_{count}_runs_first_s"] = time.perf_counter() - started
        rounds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            exporter.render()
            rounds.append(time.perf_counter() - started)
        figures[f"scrape_{count}_runs_s"] = median(rounds)
        figures[f"scrape_{count}_runs_mb"] = len(body) / 2**20
    return figures

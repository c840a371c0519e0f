"""What an incident costs: the briefs and the evidence when it opens, and its chart when a receiver asks for one.

A run of 200 records with 60 metrics and rollouts at each, on which a rule fires at the last; the first chart loads the library.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from alerts.config import default_config
from alerts.incidents import IncidentBook
from collector.runs import Runs
from rules.engine import Engine
from rules.loader import load_text
from rules.run_states import RunStates
from service.evidence.bundle import Bundle
from service.evidence.clerk import Clerk
from service.live import Live
from service.store.model import EvidenceRow
from service.store.store import Store
from tocsin import wire

RULES = """
group: bench
layer: 4
question: Is it well?
rules:
  - {alert: High, id: high, expr: grad_norm > 10 * baseline(grad_norm), severity: page, summary: "high"}
"""
RECORDS, METRICS, TIMES = 200, 60, 20


def run() -> dict[str, float]:
    """`incident_ms` (briefs and evidence), `evidence_kb` in the store, `chart_first_ms`, `chart_ms`, `chart_mb` of memory."""
    with Store() as store:
        looked, bundle, size = _opened(Engine(load_text(RULES)), store)
    from service.evidence.picture import png

    before, began = _resident(), time.perf_counter()
    png(bundle)
    first = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(TIMES):
        png(bundle)
    each = (time.perf_counter() - began) / TIMES
    return {
        "incident_ms": 1e3 * looked,
        "evidence_kb": size / 1024,
        "chart_first_ms": 1e3 * first,
        "chart_ms": 1e3 * each,
        "chart_mb": _resident() - before,
    }


def _opened(engine: Engine, store: Store) -> tuple[float, Bundle, int]:
    """Seconds per incident, its bundle, and how many bytes it takes."""
    config = default_config()
    live = Live(Runs().make("bench"), RunStates(), "p/0")
    chance = random.Random(0)
    for step in range(1, RECORDS + 1):
        live.run.apply(_record(step, chance), received_at=60.0 * step, arrival=60.0 * step)
        events = engine.evaluate(live.run, live.states, 60.0 * step).events
    assert events, "the rule fires at the last record"
    rows: dict[str, EvidenceRow] = {}
    began = time.perf_counter()
    for _ in range(TIMES):
        book = IncidentBook(config.router, config.reach)
        clerk = Clerk(book, store.evidence)
        rows.clear()
        looked = clerk.look(live, engine, events, 0.0)
        clerk.note(live, looked, book.apply(events, 0.0, looked.briefs), rows, 0.0)
    seconds = (time.perf_counter() - began) / TIMES
    (row,) = rows.values()
    return seconds, _unpacked(row), len(row.value)


def _unpacked(row: EvidenceRow) -> Bundle:
    from service.evidence.bundle import unpack

    return unpack(row.value)


def _record(step: int, chance: random.Random) -> wire.StepRecord:
    metrics: dict[str, float | str] = {f"metric_{number}": chance.gauss(1.0, 0.1) for number in range(METRICS - 1)}
    metrics["grad_norm"] = 50.0 if step == RECORDS else chance.gauss(1.0, 0.1)
    texts = [" ".join(chance.choices(("a", "so", "then", "therefore"), k=100)) for _ in range(8)]
    rollouts = [wire.Rollout(prompt="why?", response=text, reward=1.0) for text in texts]
    return wire.StepRecord(run="bench", step=step, time=60.0 * step, attempt=1, metrics=metrics, rollouts=rollouts)


def _resident() -> float:
    """Megabytes of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")

"""A pipeline over a log in memory and a store of your choice, which can be killed and restarted on the same two."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import pytest

from alerts.config import default_config
from alerts.incidents import IncidentBook, MuteBy, Reach, Route
from alerts.timing import AT_ONCE, Timing
from collector.dead_letters import MemoryDeadLetters
from collector.health import Health
from collector.model import Batch
from collector.run_state import DEPTH, RecordedFor
from collector.runs import Runs
from collector.sources.memory import MemoryLog, MemorySource
from rules.engine import Engine
from rules.loader import load_text
from rules.model import AlertEvent
from service import bundles
from service.evidence.clerk import Clerk
from service.live import ClockKind, Facts
from service.own_alerts import OwnAlerts
from service.parts import ROUND_BYTES, Parts
from service.pipeline import Pipeline
from service.shelf import Shelf
from service.stop_requests import Stops
from service.store.store import Store

RULES = """
group: test
layer: 2
question: Is it well?
vars:
  limit: {value: 10, unit: "1", doc: "gradient norm"}
rules:
  - record: grad_mean
    expr: mean(grad_norm[3])
  - alert: High
    id: high
    expr: grad_norm > $limit
    for: 2 records
    severity: page
    summary: "Gradient norm {{ value | sig(3) }}"
  - alert: MeanHigh
    id: mean-high
    expr: grad_mean > 5 * baseline(grad_mean)
    severity: warning
    summary: "Mean {{ value | sig(3) }}"
  - alert: Quiet
    id: quiet
    expr: silence >= stall_after
    independent: true
    severity: page
    summary: "Silent"
"""


@cache
def engine(text: str = RULES) -> Engine:
    """The engine of a rule file."""
    return Engine(load_text(text))


@cache
def shipped() -> Engine:
    """The engine of the shipped packs."""
    return bundles.engine([])


def step(run: str = "r", number: int = 1, *, time: float | None = None, **metrics: Any) -> bytes:
    """A step record, a minute after the one before unless `time` says otherwise."""
    at = 60.0 * number if time is None else time
    more = {"rollouts": metrics.pop("rollouts")} if "rollouts" in metrics else {}
    return json.dumps({"v": 1, "kind": "step", "run": run, "step": number, "time": at, "metrics": metrics, **more}).encode()


def begin(run: str = "r", **labels: str) -> bytes:
    return json.dumps({"v": 1, "kind": "run", "run": run, "time": 0.0, "labels": labels, "links": {"board": "x"}}).encode()


def end(run: str = "r", number: int = 100, status: str = "finished") -> bytes:
    record = {"v": 1, "kind": "end", "run": run, "step": number, "time": 60.0 * number, "status": status}
    return json.dumps(record).encode()


class Bench:
    """One collector. `restart` is another one on the same store and log; `shut` closes what it opened."""

    def __init__(
        self,
        url: str = "sqlite://",
        *,
        rules: Engine | None = None,
        log: MemoryLog | None = None,
        store: Store | None = None,
        clock: ClockKind = "received",
        batch: int = 500,
        max_runs: int = 100,
        max_series: int = 1_000,
        checkpoint_rows: int = 200,
        route: Route | None = None,
        mute: MuteBy | None = None,
        timing: Timing = AT_ONCE,
        reach: Mapping[str, Reach] | None = None,
        own: bool = True,
        recorded_for: RecordedFor | None = None,
        stops: bool = False,
        evidence: bool = False,
        round_bytes: int = ROUND_BYTES,
        rejected_share: float = 0.05,
    ) -> None:
        self._options: dict[str, Any] = {
            "rules": rules,
            "clock": clock,
            "batch": batch,
            "max_runs": max_runs,
            "max_series": max_series,
            "checkpoint_rows": checkpoint_rows,
            "route": route,
            "mute": mute,
            "timing": timing,
            "reach": reach,
            "own": own,
            "recorded_for": recorded_for,
            "stops": stops,
            "evidence": evidence,
            "round_bytes": round_bytes,
            "rejected_share": rejected_share,
        }
        self.url = url
        self.now = 0.0
        self.log = log or MemoryLog(lambda: self.now)
        self.store = store or Store(url)
        self.engine = rules or engine()
        self.letters = MemoryDeadLetters()
        self.health = Health()
        alerts = default_config()
        self.book = IncidentBook(route or alerts.router, reach or alerts.reach, mute, timing, own="tocsin" if own else "")
        runs = Runs(
            max_runs=max_runs,
            max_series_per_run=max_series,
            depth=max(self.engine.depth, DEPTH),
            recorded_for=recorded_for,
        )
        self.shelf = Shelf(self.store, self.book, runs, clock=clock)
        self.own = OwnAlerts("tocsin")
        self.clerk = Clerk(self.book, self.store.evidence)
        self.pipeline = Pipeline(
            Parts(
                self.store,
                self.shelf,
                self.engine,
                self.book,
                self.letters,
                self.health,
                clock=clock,
                own=self.own if own else None,
                clerk=self.clerk if evidence else None,
                stops=Stops(3_600.0, mute or (lambda _event, _now: None)) if stops else None,
                checkpoint_rows=checkpoint_rows,
                round_bytes=round_bytes,
                rejected_share=rejected_share,
            )
        )
        self.source = MemorySource(self.log, max_records=batch)
        self.source.open(self.store)
        self.events: list[AlertEvent] = []

    def push(self, *values: bytes, partition: str = "memory/0", every: float = 0.0) -> None:
        """Records come in, `every` seconds apart."""
        for value in values:
            self.now += every
            self.log.push(value, partition, received_at=self.now)

    def read(self) -> list[AlertEvent]:
        """Everything that waits, batch by batch; the events of it."""
        found: list[AlertEvent] = []
        while True:
            batch = self.source.poll(0.0)
            found += self.pipeline.process(batch, self.now).events
            self.source.committed({})
            if batch.caught_up:
                self.events += found
                return found

    def idle(self) -> None:
        """Time has passed in which the loop came round again and again and found what it finds now; it reads no record."""
        if not self.source.lag():
            self.pipeline.process(Batch(caught_up=True), self.now)

    def tick(self) -> list[AlertEvent]:
        self.idle()
        found = list(self.pipeline.tick(self.now).events)
        self.events += found
        return found

    def restart(self, **changes: Any) -> Bench:
        """What a killed process leaves, taken up by the next one."""
        other = Bench(self.url, log=self.log, store=self.store, **(self._options | changes))
        other.now = self.now
        return other

    def shut(self) -> None:
        self.store.close()


def told(events: Iterable[AlertEvent]) -> list[tuple[str, str, str, int]]:
    """(run, alert, state, step) of each event."""
    return [(event.run, event.alert, event.state.value, event.step) for event in events]


def steps(run: str, values: Sequence[float], first: int = 1) -> list[bytes]:
    """A run that logs its gradient norm."""
    return [step(run, number, grad_norm=value) for number, value in enumerate(values, start=first)]


def a_record_raises(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> None:
    """The `number`-th record that is evaluated from now on raises, after its run and the states of its rules have taken it.

    Planted where nothing is compiled (hatch_build.py): compiled modules call each other without looking a name up.
    """
    evaluated, whole = count(1), Facts.pack

    def pack(facts: Facts) -> bytes | None:
        if next(evaluated) == number:
            raise error
        return whole(facts)

    monkeypatch.setattr(Facts, "pack", pack)

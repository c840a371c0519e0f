"""A run in memory for rule tests: the smallest thing that satisfies `RunView`, and a loop that drives an engine with it.

    run = FakeRun()
    run.row(1, grad_norm=0.5)                                    # step 1
    events = drive(Engine(bundle), run, [{"x": 1.0}, {"x": 2.0}])  # steps 1, 2, ... one row each

Semantics are those of docs/architecture.md: rows of one step merge, steps within a series increase, windows end at `step`.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from collector.model import Baseline, Provenance, SeriesView
from collector.series import Series
from rules.engine import Engine, Evaluation
from rules.model import AlertEvent
from rules.run_states import RunStates


class FakeRun:
    """A run that a test fills by hand. All attributes of RunView are plain and may be set."""

    def __init__(
        self, run: str = "run", labels: Mapping[str, str] | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        self.run = run
        self.attempt = 1
        self.labels: Mapping[str, str] = labels or {}
        self.config: Mapping[str, Any] = config or {}
        self.step = 0
        self.record = 0
        self.event_time = 0.0
        self.started_at = 0.0
        self.last_arrival = 0.0
        self.arrived: list[str] = []
        self.fakes: dict[str, Series] = {}
        self.members: dict[str, list[str]] = {}
        self.steps: array[int] = array("q")
        self.times: array[float] = array("d")
        self.baselines: dict[str, Baseline] = {}
        self.recorded: dict[str, float] = {}
        self.reasons: dict[str, tuple[str, ...]] = {}
        self.provenances: dict[str, Provenance] = {}
        """Of series that are not exact, by key."""

    @property
    def series(self) -> Mapping[str, SeriesView]:
        return self.fakes

    def row(self, step: int, values: Mapping[str, float] | None = None, *, time: float | None = None, **more: float) -> None:
        """One row; `time` is a minute per step unless it is given. A key may be `name{label="value"}`."""
        when = step * 60.0 if time is None else time
        self.step = step
        self.event_time = self.last_arrival = when
        if not self.steps:
            self.started_at = when
        place = bisect_left(self.steps, step)
        if place == len(self.steps) or self.steps[place] != step:
            self.steps.insert(place, step)
            self.times.insert(place, when)
            self.record += 1
        self.arrived = []
        self.add({**(values or {}), **more})

    def add(self, values: Mapping[str, float] | Iterable[tuple[str, float]]) -> None:
        """Samples of the current step, such as those of record rules; new ones count as arrived."""
        for key, value in dict(values).items():
            series = self.fakes.get(key)
            if series is None:
                series = self.fakes[key] = Series(self.provenances.get(key, Provenance.EXACT))
                if match := re.match(r"([^{]*)\{", key):
                    self.members.setdefault(match[1], []).append(key)
            if series.put(self.step, value):
                self.arrived.append(key)

    def cut(self, step: int) -> None:
        """A resume at `step`: everything from it on is forgotten, in a new attempt."""
        self.attempt += 1
        for series in self.fakes.values():
            end = bisect_left(series.steps, step)
            del series.steps[end:], series.values[end:]
        end = bisect_left(self.steps, step)
        del self.steps[end:], self.times[end:]


def judge(engine: Engine, run: FakeRun, states: RunStates, now: float | None = None) -> Evaluation:
    """Record rules, then alerts, for the row that the run has just taken: what the pipeline does."""
    run.add(engine.record(run))
    return engine.evaluate(run, states, run.event_time if now is None else now)


def drive(
    engine: Engine,
    run: FakeRun,
    rows: Iterable[Mapping[str, float] | None],
    states: RunStates | None = None,
    *,
    first_step: int = 1,
    seconds: float = 60.0,
) -> list[AlertEvent]:
    """Feeds one row per step and gives the events of all of them; None is a step without a row."""
    states = RunStates() if states is None else states
    events: list[AlertEvent] = []
    for offset, row in enumerate(rows):
        if row is not None:
            step = first_step + offset
            run.row(step, row, time=step * seconds)
            events += judge(engine, run, states).events
    return events


def timeline(events: Sequence[AlertEvent]) -> list[tuple[int, str, str]]:
    """(step, alert, state) of each event: what most tests compare."""
    return [(event.step, event.alert, str(event.state)) for event in events]

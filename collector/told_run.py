"""A run for the tests of rules: one to which the value of a signal may be told instead of what it is derived from.

Here and not with those tests, as the compiled form (hatch_build.py) lets only compiled classes inherit from `Run`.
"""

from __future__ import annotations

from collections.abc import Mapping

from collector.applied import Applied
from collector.model import Baseline
from collector.run import Run
from collector.signals.baseline import ABSOLUTE_FLOOR, COUNT, RELATIVE_FLOOR
from tocsin import wire


class ToldRun(Run):
    """`told` are the series and values that each step has besides those of its record, until they are told anew."""

    def __init__(self, run_id: str, recorded: Mapping[str, float], depth: int) -> None:
        """`recorded` are centres of recorded baselines."""
        baselines = {key: Baseline(centre, _scale(centre), COUNT) for key, centre in recorded.items()}
        super().__init__(run_id, depth=depth, recorded_for=lambda labels: baselines)
        self.told: dict[str, float] = {}

    def apply(self, record: wire.Record, *, received_at: float, arrival: float) -> Applied:
        applied = super().apply(record, received_at=received_at, arrival=arrival)
        if self.told and isinstance(record, wire.StepRecord):
            self.extend(self.told.items())
            self.arrived = self.arrived.union(self.told)
        return applied


def _scale(centre: float) -> float:
    """Of a series that hardly moved: rules read the centre, and a test names no more."""
    return max(RELATIVE_FLOOR * abs(centre), ABSOLUTE_FLOOR)

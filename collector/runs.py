"""The runs in memory: so many at most, the first ones kept; finished ones for a while, silent ones long after their stall.

A run that vanishes here is not lost: the store has its checkpoint, and it comes back with its next record.
"""

from __future__ import annotations

from typing import Final

from collector.model import RunStatus
from collector.names import Vocabularies
from collector.run import Run
from collector.run_state import DEPTH, MAX_SERIES, RecordedFor
from collector.signals import definitions
from collector.snapshot import RunExposed

MAX_RUNS: Final = 2_000
LINGER: Final = 900.0
"""Seconds for which a finished run is still shown, so that its last state is scraped and seen."""
FORGET_SILENT: Final = 86_400.0
"""Seconds after its stall deadline after which a silent run is let go; its stall alert has fired long before."""


class Runs:
    """Runs by id. One thread changes it; `exposed` may be asked by any thread."""

    def __init__(
        self,
        *,
        max_runs: int = MAX_RUNS,
        max_series_per_run: int = MAX_SERIES,
        linger: float = LINGER,
        forget_silent: float = FORGET_SILENT,
        depth: int = DEPTH,
        recorded_for: RecordedFor | None = None,
    ) -> None:
        self.max_runs = max_runs
        self.max_series_per_run = max_series_per_run
        self.linger = linger
        self.forget_silent = forget_silent
        self.depth = depth
        self.recorded_for = recorded_for
        self.vocabularies = Vocabularies(frozenset(definitions()))
        """Shared by all runs, so that each vocabulary is compiled once."""
        self._runs: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, run_id: str) -> Run | None:
        """The run, if it is in memory."""
        return self._runs.get(run_id)

    def make(self, run_id: str) -> Run:
        """A new run with these limits, which is not in here yet (see `add`)."""
        return Run(
            run_id,
            depth=self.depth,
            max_series=self.max_series_per_run,
            vocabularies=self.vocabularies,
            recorded_for=self.recorded_for,
        )

    def load(self, data: bytes) -> Run:
        """A run from its dump, with these limits; not in here yet. Raises collector.run_state.IncompatibleDump."""
        return Run.load(
            data,
            depth=self.depth,
            max_series=self.max_series_per_run,
            vocabularies=self.vocabularies,
            recorded_for=self.recorded_for,
        )

    def create(self, run_id: str) -> Run | None:
        """A new run, in here; None when there are as many as there may be. The caller knows that it is new."""
        run = self.make(run_id)
        return run if self.add(run) else None

    def add(self, run: Run) -> bool:
        """Take a run in (a restored one); False when there are as many as there may be."""
        if run.run not in self._runs and len(self._runs) >= self.max_runs:
            return False
        self._runs[run.run] = run
        return True

    def use_recorded(self, recorded_for: RecordedFor) -> None:
        """Other recorded baselines for all runs, from their next record on."""
        self.recorded_for = recorded_for
        for run in self._runs.values():
            run.use_recorded(recorded_for)

    def forget(self, run_id: str) -> None:
        """Let a run go: its partition is another collector's now."""
        self._runs.pop(run_id, None)

    def expired(self, now: float) -> list[str]:
        """Runs that need not be kept at `now` (by the clock of arrivals): finished and shown long enough, or silent for very
        long. The caller stores and forgets them."""
        return [run.run for run in self._runs.values() if self._is_over(run, now)]

    def exposed(self) -> tuple[RunExposed, ...]:
        """What the exporter shows: one immutable snapshot per run."""
        return tuple(run.exposed for run in list(self._runs.values()))

    def _is_over(self, run: Run, now: float) -> bool:
        if run.status is not RunStatus.RUNNING:
            return now > run.last_arrival + self.linger
        # Without a deadline (fewer than two records) there is no stall alert to wait for, but no hurry either.
        deadline = run.stall_at
        return now > (run.last_arrival if deadline is None else deadline) + self.forget_silent

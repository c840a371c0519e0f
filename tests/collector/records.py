"""Records for tests of the run state: short to write, with times that grow by 20 s per step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collector.applied import Applied
from collector.run import Run
from tocsin import wire

START = 1_790_000_000.0
GAP = 20.0


def time_of(step: int) -> float:
    """The usual event time of a step."""
    return START + GAP * step


def opened(run: str = "r", *, attempt: int = 1, time: float = START, **config: Any) -> wire.RunRecord:
    return wire.RunRecord(run=run, time=time, attempt=attempt, labels={"team": "lab"}, config={"group_size": 8} | config)


def row(step: int, *, time: float | None = None, attempt: int = 1, run: str = "r", **metrics: Any) -> wire.StepRecord:
    """A row of canonical metrics; `groups` among the arguments is the groups block."""
    groups = metrics.pop("groups", None)
    at = time_of(step) if time is None else time
    return wire.StepRecord(run=run, step=step, time=at, attempt=attempt, metrics=metrics, groups=groups)


def ended(step: int, status: str = "finished", *, time: float | None = None, attempt: int = 1) -> wire.EndRecord:
    at = time_of(step) + 1.0 if time is None else time
    return wire.EndRecord(run="r", time=at, attempt=attempt, step=step, status=status)


def apply(run: Run, *records: wire.Record) -> list[Applied]:
    """Fold records in, as a replay does: arrivals at event time."""
    return [run.apply(record, received_at=record.time, arrival=record.time) for record in records]


def played(records: Iterable[wire.Record], **options: Any) -> Run:
    """A run that has all these records."""
    run = Run("r", **options)
    apply(run, *records)
    return run


def groups(*success: int | None, size: int = 8, prompts: Iterable[str] | None = None) -> wire.Groups:
    """A groups block; prompts are p0, p1 ... unless given."""
    names = [f"p{at}" for at in range(len(success))] if prompts is None else list(prompts)
    return wire.Groups(size=size, prompt=names, success=list(success))

"""JSON lines with the metrics at the top level: ms-swift's `logging.jsonl`, prime-rl's `metrics.jsonl`, and home-made ones.

ms-swift has no step key: `"global_step/max_steps": "12/100"` (Megatron: `"iteration": "12/100"`). Its last line is another
record (`log_history`, `last_model_checkpoint`) and says that training ended. prime-rl has `step` and `time`; trainer and
orchestrator write to one file, several rows per step and not always in order: the rows of a step are joined (see `merge`), each
writer's by themselves, and a row may be up to `LATE_STEPS` behind without being a restart. A row whose step is null tells what
held at that moment; it goes with the next row that has a step. Two processes append to that file: a torn line is an unreadable
place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tocsin.formats import prime_rl
from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, readable_step, unreadable
from tocsin.formats.merge import Merger, kept, restored
from tocsin.formats.vocabulary import vocabulary

LATE_STEPS: Final = 8
"""The collector's reorder window."""
MAX_GAUGES: Final = 500
"""Values that may wait for a row with a step."""
_STEP_KEYS: Final = ("global_step/max_steps", "iteration", "step")
_SKIP: Final = frozenset({*_STEP_KEYS, "time", "producer"})
_EARLIEST: Final = 946684800.0
"""2000-01-01: a smaller `time` is a duration."""


class FlatJsonlParser:
    """Reads one file."""

    def __init__(self, log: RunLog, names: str | None, state: State | None) -> None:
        self._log = log
        self._names = names
        self._merger = Merger(log, state["merger"] if state else None)
        self._gauges: dict[str, Any] = restored(state["gauges"]) if state else {}
        """The newest values of rows without a step."""
        self._looked_at: frozenset[str] = frozenset()
        """Keys from which it could not be told whose names these are."""

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records that one line completes; a blank line is nothing."""
        next_offset = offset + len(line)
        value = line.strip()
        if not value:
            return ()
        row = decoded(value)
        if row is None:
            return (unreadable(offset, next_offset, "no JSON object", value),)
        if "log_history" in row:
            return [*self._merger.close(), *placed(self._log.end(), offset, next_offset)]
        step = step_of(row)
        if step is None and row.get("step", 0) is None and "time" in row:
            self._gauge(metrics_of(row, skip=_SKIP))
            return ()
        if step is None:
            return (unreadable(offset, next_offset, f"no step: one of {', '.join(_STEP_KEYS)}", value),)
        if self._names is None and self._log.names == "canonical" and row.keys() != self._looked_at:
            # A first row may say too little. Rows of the same keys say the same.
            self._looked_at = frozenset(row)
            self._log.names = self._log.framework = written_by(row)
        return self._row(row, step, offset, next_offset)

    def _row(self, row: dict[str, Any], step: int, offset: int, next_offset: int) -> list[Parsed]:
        metrics = metrics_of(row, skip=_SKIP)
        if self._gauges:
            metrics, self._gauges = self._gauges | metrics, {}
        if self._log.names != "prime_rl":
            return placed(self._log.step(step, metrics, _time(row)), offset, next_offset)
        writer = prime_rl.wrote(row)
        return self._merger.add(
            step,
            prime_rl.told_apart(metrics, writer),
            offset=offset,
            next_offset=next_offset,
            time=_time(row),
            writer=writer,
            steps=prime_rl.steps_of(row, writer),
        )

    def _gauge(self, values: dict[str, Any]) -> None:
        self._gauges |= values
        while len(self._gauges) > MAX_GAUGES:
            del self._gauges[next(iter(self._gauges))]

    def overdue(self, now: float) -> Iterable[Parsed]:
        """Steps whose rows have waited for each other long enough."""
        return self._merger.overdue(now)

    def finish(self) -> Iterable[Parsed]:
        """The steps that are held. Values that never met a row with a step are told of no step, so they are not told."""
        return self._merger.close()

    def restarted(self) -> None:
        """The file was begun anew."""
        self._merger.begun_anew()

    def state(self) -> State | None:
        """Attempt, newest steps, and what waits."""
        merger = self._merger.state()
        return None if merger is None else {**self._log.state(), "merger": merger, "gauges": kept(self._gauges)}


def decoded(value: bytes) -> dict[str, Any] | None:
    """The object in a line, literals NaN and Infinity included; None when it is none."""
    try:
        row = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        try:
            row = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return row if isinstance(row, dict) else None


def step_of(row: Mapping[str, Any]) -> int | None:
    """The step of a row; None when it has none."""
    for key in _STEP_KEYS:
        if key in row:
            value = row[key]
            return readable_step(value.partition("/")[0] if isinstance(value, str) else value)
    return None


def written_by(row: Mapping[str, Any]) -> str:
    """Whose names a row has."""
    if isinstance(row.get("global_step/max_steps", row.get("iteration")), str):
        return "ms_swift"
    if prime_rl.is_row(row):
        return "prime_rl"
    return vocabulary(row)


def is_row(value: bytes) -> bool:
    """Whether a line is certainly a row: an object with a step and a number beside it, and none of the other formats."""
    row = decoded(value)
    if row is None or "kind" in row or isinstance(row.get("data"), dict) or step_of(row) is None:
        return False
    return any(isinstance(value, int | float) for key, value in row.items() if key not in _SKIP)


def _time(row: Mapping[str, Any]) -> float | None:
    """When a row was written, by its own word."""
    time = row.get("time")
    return float(time) if isinstance(time, int | float) and _EARLIEST <= time < 1e11 else None


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> FlatJsonlParser:
    """A parser that tells by the first row whose names these are."""
    log = RunLog(run=run, names=names or "canonical", clock=clock, state=state, late_steps=LATE_STEPS)
    return FlatJsonlParser(log, names, state)


FLAT_JSONL = Format(
    "flat-jsonl", "JSON lines of metrics: ms-swift's logging.jsonl, prime-rl's metrics.jsonl, {\"step\": 1, ...}", make
)

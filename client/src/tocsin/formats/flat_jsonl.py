"""JSON lines with the metrics at the top level: ms-swift's `logging.jsonl`, prime-rl's `metrics.jsonl`, and home-made ones.

ms-swift has no step key: `"global_step/max_steps": "12/100"` (Megatron: `"iteration": "12/100"`). Its last line is another
record (`log_history`, `last_model_checkpoint`) and says that training ended. prime-rl has `step` and `time`; trainer and
orchestrator write to one file, several rows per step and not always in order, so a row may be up to `LATE_STEPS` behind without
being a restart. Two processes append to that file: a torn line is an unreadable place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, readable_step, unreadable
from tocsin.formats.csv_table import vocabulary

LATE_STEPS: Final = 8
"""The collector's reorder window."""
_STEP_KEYS: Final = ("global_step/max_steps", "iteration", "step")
_SKIP: Final = frozenset({*_STEP_KEYS, "time"})
_EARLIEST: Final = 946684800.0
"""2000-01-01: a smaller `time` is a duration."""
_PRIME_RL: Final = ("mismatch_kl/", "optim/", "progress/", "off_policy/", "is_masked", "train/agg/")


class FlatJsonlParser:
    """Reads one file."""

    def __init__(self, log: RunLog, names: str | None) -> None:
        self._log = log
        self._names = names

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records of one line; a blank line is nothing."""
        next_offset = offset + len(line)
        value = line.strip()
        if not value:
            return ()
        row = decoded(value)
        if row is None:
            return (unreadable(offset, next_offset, "no JSON object", value),)
        if "log_history" in row:
            return placed(self._log.end(), offset, next_offset)
        step = step_of(row)
        if step is None:
            return (unreadable(offset, next_offset, f"no step: one of {', '.join(_STEP_KEYS)}", value),)
        if self._names is None and not self._log.opened:
            self._log.names = self._log.framework = written_by(row)
        return placed(self._log.step(step, metrics_of(row, skip=_SKIP), _time(row)), offset, next_offset)

    def finish(self) -> Iterable[Parsed]:
        """Nothing is held."""
        return ()

    def restarted(self) -> None:
        """The file was begun anew."""
        self._log.cut = True

    def state(self) -> State:
        """Attempt and newest step."""
        return self._log.state()


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
    if "time" in row and any(key.startswith(_PRIME_RL) for key in row):
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
    return FlatJsonlParser(RunLog(run=run, names=names or "canonical", clock=clock, state=state, late_steps=LATE_STEPS), names)


FLAT_JSONL = Format(
    "flat-jsonl", "JSON lines of metrics: ms-swift's logging.jsonl, prime-rl's metrics.jsonl, {\"step\": 1, ...}", make
)

"""verl's `file` logger: one line per step, `{"step": 12, "data": {"actor/grad_norm": 0.81, ...}}`.

verl >= 0.7.1 writes null for what is not finite, 0.6 to 0.7.0 the literal NaN. The file is opened with "wb": a restart
empties it (the follower sees that; here a step that goes back opens a new attempt as well). Several lines may carry one
step (fully asynchronous training): each becomes a row of that step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, readable_step, unreadable


class VerlJsonlParser:
    """Reads the lines of one verl JSONL file."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records of one line; a blank line is nothing."""
        next_offset = offset + len(line)
        value = line.strip()
        if not value:
            return ()
        row, error = _row(value)
        if row is None:
            return (unreadable(offset, next_offset, error, value),)
        step, data = row
        return placed(self._log.step(step, metrics_of(data)), offset, next_offset)

    def finish(self) -> Iterable[Parsed]:
        """Nothing is held; the format does not say that a run ended."""
        return ()

    def restarted(self) -> None:
        """The file was emptied by a restart."""
        self._log.cut = True

    def state(self) -> State:
        """Attempt and last step."""
        return self._log.state()


def _row(value: bytes) -> tuple[tuple[int, dict[str, object]] | None, str]:
    """(step, data), or None and why not."""
    try:
        body = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as strict:
        try:
            body = json.loads(value)  # reads the literals NaN and Infinity
        except (ValueError, RecursionError):
            return None, f"not JSON: {strict}"
    if not isinstance(body, dict) or not isinstance(data := body.get("data"), dict):
        return None, 'expected an object with "step" and "data"'
    if (step := readable_step(body.get("step"))) is None:
        return None, f"step is {body.get('step')!r:.40}, expected a number of 0 or more"
    return (step, data), ""


def is_row(value: bytes) -> bool:
    """Whether a line is a row of this format."""
    return _row(value)[0] is not None


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> VerlJsonlParser:
    """A parser whose keys are verl's unless told otherwise."""
    return VerlJsonlParser(RunLog(run=run, names=names or "verl", framework="verl", clock=clock, state=state))


VERL_JSONL = Format("verl-jsonl", 'verl\'s file logger: {"step": 12, "data": {"actor/grad_norm": 0.81, ...}}', make)

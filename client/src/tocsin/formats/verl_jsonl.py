"""verl's `file` logger: one line per step, `{"step": 12, "data": {"actor/grad_norm": 0.81, ...}}`.

verl >= 0.7.1 writes null for what is not finite, 0.6 to 0.7.0 the literal NaN. The file is opened with "wb": a restart
empties it (the follower sees that; here a step that goes back opens a new attempt as well). Fully asynchronous training writes
several lines per step: they are joined (see `merge`). Otherwise a step is one line, and is sent at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, readable_step, unreadable
from tocsin.formats.merge import Merger

ASYNC: Final = "fully_async/"
"""Keys of fully asynchronous training."""


class VerlJsonlParser:
    """Reads the lines of one verl JSONL file."""

    def __init__(self, merger: Merger) -> None:
        self._merger = merger

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records that one line completes; a blank line is nothing."""
        next_offset = offset + len(line)
        value = line.strip()
        if not value:
            return ()
        row, error = _row(value)
        if row is None:
            return (unreadable(offset, next_offset, error, value),)
        step, data = row
        self._merger.joins = self._merger.joins or any(key.startswith(ASYNC) for key in data)
        return self._merger.add(step, metrics_of(data), offset=offset, next_offset=next_offset)

    def overdue(self, now: float) -> Iterable[Parsed]:
        """A step whose rows have waited for each other long enough."""
        return self._merger.overdue(now)

    def finish(self) -> Iterable[Parsed]:
        """The step that is held; the format does not say that a run ended."""
        return self._merger.close()

    def restarted(self) -> None:
        """The file was emptied by a restart."""
        self._merger.begun_anew()

    def state(self) -> State | None:
        """Attempt, last step, and what waits."""
        merger = self._merger.state()
        return None if merger is None else {"log": self._merger.log.state(), "merger": merger}


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


def merger_of(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> Merger:
    """The run of one of verl's logs, in which rows are joined once they need it; the keys are verl's unless told otherwise."""
    log = RunLog(run=run, names=names or "verl", framework="verl", clock=clock, state=state["log"] if state else None)
    return Merger(log, state["merger"] if state else None, joins=False)


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> VerlJsonlParser:
    """A parser for one file."""
    return VerlJsonlParser(merger_of(run=run, names=names, clock=clock, state=state))


VERL_JSONL = Format("verl-jsonl", 'verl\'s file logger: {"step": 12, "data": {"actor/grad_norm": 0.81, ...}}', make)

"""ROLL's console with `track_with: stdout`: `... metrics_tag: {"step": 12, "metrics": {"actor/lr": 1e-06, ...}}` per step.

Before it stand the logger's time and place and Ray's `(pid=...)`, after it perhaps colour codes. NaN and Infinity stand as
literals.

When ROLL resumes from a checkpoint it logs the whole history once more, from step 0 on. Those rows were told before, and
rules must not see step 0 of a run that is at step 100. So a row that was sent before, with the same numbers, is not sent
again; it tells that the job was restarted, and the next row that is new opens an attempt. Where the earlier rows are not in
this log, the line `resume_from_checkpoint: .../checkpoint-100` says up to where rows are history. Times and the system's
counters are not compared: ROLL adds to them when it saves.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, readable_step, unreadable

_MARK: Final = b"metrics_tag: {"
_RESUMED: Final = re.compile(rb"resume_from_checkpoint: \S*checkpoint-(\d{1,18})\b")
_CHANGING: Final = ("time/", "system/")
REMEMBERED: Final = 4096
"""Steps whose numbers are remembered, newest first; a row of an older step counts as sent."""


class RollParser:
    """Reads a console capture of ROLL."""

    def __init__(self, log: RunLog, state: State | None) -> None:
        self._log = log
        self._sent: dict[int, int] = {int(step): int(sum) for step, sum in state["sent"]} if state else {}
        """step -> checksum of its numbers, in the order of the steps."""
        self._history_to: int | None = state["history_to"] if state else None
        """Rows up to this step are history, by the word of the log."""

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records of one line; noise is nothing."""
        begin = line.find(_MARK)
        if begin < 0:
            if b"resume_from_checkpoint" in line and (match := _RESUMED.search(line)):
                self._history_to = int(match[1])
            return ()
        next_offset = offset + len(line)
        row, why = read_row(line[begin + len(_MARK) - 1 :])
        if row is None:
            return (unreadable(offset, next_offset, why, line),)
        step, metrics = row
        return placed(self._log.step(step, metrics), offset, next_offset) if self._is_new(step, metrics) else ()

    def _is_new(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """Whether a row is to be sent. Notices a restart."""
        if self._history_to is not None:
            if step <= self._history_to:
                self._log.cut = self._log.opened
                return False
            self._history_to = None
        last = self._log.last_step
        numbers = checksum(metrics)
        if last is not None and (step in self._sent or step < next(iter(self._sent), 0)):
            if self._sent.get(step, numbers) == numbers:
                self._log.cut = self._log.cut or step != last  # the newest row twice is no restart
                return False
            self._sent = {earlier: sum for earlier, sum in self._sent.items() if earlier < step}
        self._sent[step] = numbers
        if len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]
        return True

    def finish(self) -> Iterable[Parsed]:
        """Nothing is held; ROLL does not say that a run ended."""
        return ()

    def restarted(self) -> None:
        """The capture was begun anew."""
        self._log.cut = True

    def state(self) -> State:
        """Attempt, and what was sent."""
        return {"log": self._log.state(), "sent": list(self._sent.items()), "history_to": self._history_to}


def read_row(text: bytes) -> tuple[tuple[int, dict[str, Any]] | None, str]:
    """(step, metrics) from the object at the beginning of a text, or None and why not."""
    try:
        body, _ = json.JSONDecoder().raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        return None, f"no JSON after metrics_tag: {error}"
    if (step := readable_step(body.get("step"))) is None:
        return None, f"step is {body.get('step')!r:.40}, expected a number of 0 or more"
    metrics = body.get("metrics")
    if not isinstance(metrics, dict):
        return None, 'expected an object with "step" and "metrics"'
    return (step, metrics_of(metrics)), ""


def is_row(line: bytes) -> bool:
    """Whether a line holds a row of this format."""
    begin = line.find(_MARK)
    return begin >= 0 and read_row(line[begin + len(_MARK) - 1 :])[0] is not None


def checksum(metrics: Mapping[str, Any]) -> int:
    """Of the numbers of a step that do not change when it is told again."""
    items = sorted((key, repr(value)) for key, value in metrics.items() if not key.startswith(_CHANGING))
    return zlib.crc32(repr(items).encode("utf-8", "replace"))


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> RollParser:
    """A parser whose keys are ROLL's unless told otherwise."""
    log = RunLog(run=run, names=names or "roll", framework="roll", clock=clock, state=state["log"] if state else None)
    return RollParser(log, state)


ROLL_CONSOLE = Format(
    "roll-console", 'ROLL\'s console, track_with: stdout: metrics_tag: {"step": 12, "metrics": {...}}', make, soft_break=b"\r"
)

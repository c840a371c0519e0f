"""AReaL's console: `Epoch 1/10 Step 3/100 Train step 3/1000 done.`, then `Stats (1/2):` and a table in a frame, for each part.

    ╒═════════════════════════╤════════════╤══════════════════════╤════════════╕
    │ ppo_actor/n_seqs        │ 6.4000e+01 │ ppo_actor/update/lr  │ 1.0000e-06 │
    ├─────────────────────────┼────────────┼──────────────────────┼────────────┤

The console counts from 1 and TensorBoard from 0; here a step is TensorBoard's. All tables of a step are one record. Values have
five digits. Words of other processes may stand before a row or between rows; a table that breaks off gives what was read of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tocsin import wire
from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, placed

_DONE: Final = re.compile(r"Epoch \d+/\d+ Step \d+/\d+ Train step (\d{1,18})/\d+ done\.")
_STATS: Final = re.compile(r"Stats \((\d{1,4})/(\d{1,4})\):")
_WALL: Final = "│"
_BOTTOM: Final = "╘"
_SIGNS: Final = tuple(sign.encode() for sign in (_WALL, _BOTTOM, "Stats (", " done."))


class ArealParser:
    """Reads a console capture of AReaL."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._step: int | None = None
        """The step whose tables are read; None between steps."""
        self._metrics: dict[str, Any] = {}
        self._begin = self._end = 0
        self._in_table = self._last_table = False

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The record of a step comes with the last line of its last table."""
        if not any(sign in line for sign in _SIGNS):
            return ()
        text = line.decode("utf-8", "replace")
        if done := _DONE.search(text):
            out = self._close()
            self._step = max(0, int(done[1]) - 1)
            self._begin, self._end = offset, offset + len(line)
            return out
        if self._step is None:
            return ()
        self._end = offset + len(line)
        if stats := _STATS.search(text):
            self._in_table, self._last_table = True, stats[1] == stats[2]
        elif self._in_table and _WALL in text:
            for key, value in _pairs(text):
                if key in self._metrics or len(self._metrics) < wire.MAX_METRICS:
                    self._metrics[key] = value
        elif self._in_table and _BOTTOM in text:
            self._in_table = False
            return self._close() if self._last_table else ()
        return ()

    def _close(self) -> list[Parsed]:
        step, metrics = self._step, self._metrics
        self._forget()
        if step is None or not metrics:
            return []
        return placed(self._log.step(step, metrics), self._begin, self._end)

    def _forget(self) -> None:
        self._step, self._metrics = None, {}
        self._in_table = self._last_table = False

    def finish(self) -> Iterable[Parsed]:
        """What was read of a table that breaks off."""
        return self._close()

    def restarted(self) -> None:
        """The capture was begun anew; a table that was being read went with it."""
        self._forget()
        self._log.cut = True

    def state(self) -> State | None:
        """Attempt and last step; None inside of a step's tables."""
        return self._log.state() if self._step is None else None


def _pairs(text: str) -> Iterator[tuple[str, float]]:
    """The keys and numbers of a row; the last row may be shorter."""
    cells = [cell.strip() for cell in text.split(_WALL)[1:-1]]
    for key, value in zip(cells[::2], cells[1::2], strict=False):
        if not 0 < len(key) <= wire.MAX_NAME_CHARS:
            continue
        try:
            yield key, float(value)
        except ValueError:
            continue


def is_row(text: str) -> bool:
    """Whether a line says that a step is done."""
    return _DONE.search(text) is not None


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> ArealParser:
    """A parser whose keys are AReaL's unless told otherwise."""
    return ArealParser(RunLog(run=run, names=names or "areal", framework="areal", clock=clock, state=state))


AREAL_CONSOLE = Format("areal-console", "AReaL's console: Train step 3/1000 done., Stats (1/1): and a table", make)

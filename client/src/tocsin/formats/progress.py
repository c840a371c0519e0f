"""Which step a row of a Trainer's console belongs to. The rows carry none; the text around them does.

Evidence, best first:
1. tqdm wipes its bar before it lets a row be printed and draws it anew after: `| 40/200 [..]\\r      \\r{'loss': ...}`. The
   wipes stand at the right places even when standard output is buffered and its rows come in bunches later, so the
   n-th row belongs to the n-th wipe.
2. The distance between rows (`logging_steps`), once known. A leap of `epoch` then says that rows are missing.
3. `epoch` times the updates per epoch of the header, while epoch is printed finely enough.
4. Without wipes (a screen copied from a terminal): how far the bar is when a bunch of rows is over.
5. No bar at all: rows are counted.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final

_BAR: Final = re.compile(r"\s*\d{1,3}%\|[^|]*\|\s*(\d{1,12})/(\d{1,12}) \[")
_HEADER: Final = re.compile(r"(Total optimization steps|Total steps|Num update steps per epoch) = ([\d,]{1,18})")
_RESUMED: Final = re.compile(r"Continuing training from global step (\d{1,12})")
_BEGUN: Final = "***** Running training *****"
_WIPE_WIDTH: Final = 8
_EPOCH_STEP: Final = 0.01
"""Older versions print epoch with two decimals: the worst resolution."""
MAX_WIPES: Final = 8192
_FIELDS: Final = (
    "total",
    "from_header",
    "per_epoch",
    "base",
    "now",
    "shown",
    "every",
    "last",
    "epoch",
    "first",
    "rival",
    "redrawn",
)


class Progress:
    """What is known of the steps of one attempt."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.reset()
        if state:
            for field in _FIELDS:
                value = state[field]
                setattr(self, field, tuple(value) if isinstance(value, list) else value)
            self.wipes.extend(int(wipe) for wipe in state["wipes"])

    def reset(self) -> None:
        """Forget: another attempt begins."""
        self.total: int | None = None
        """N of the training bar."""
        self.from_header = False
        self.per_epoch: int | None = None
        self.base = 0
        """The step at which the attempt began (resumed from a checkpoint)."""
        self.now = 0
        """Where the training bar stands."""
        self.shown = 0
        """How many places of the bar were seen; few on a copied screen, all of them in a captured stream."""
        self.every: int | None = None
        """Steps from row to row."""
        self.last: int | None = None
        self.epoch: float | None = None
        """Of the last row."""
        self.first: tuple[int, float] | None = None
        """Step and epoch of the first row that had one."""
        self.rival: tuple[int, int] | None = None
        """Where another bar stands, and its N: an evaluation's, or that of a training that began anew unnoticed."""
        self.redrawn = False
        """The bar was drawn again after a wipe: it was wiped for a row, not because it was closed."""
        self.wipes: deque[int] = deque(maxlen=MAX_WIPES)

    def begin_at_rival(self) -> None:
        """Forget, but for another bar that was under way: a row has shown that it belongs to the new attempt."""
        rival = self.rival
        self.reset()
        if rival is not None and 0 < rival[0] < rival[1]:
            self.now, self.total = rival
            self.shown = 1
            self.wipes.append(self.now)

    def state(self) -> dict[str, Any]:
        """Plain JSON for the constructor."""
        return {field: getattr(self, field) for field in _FIELDS} | {"wipes": list(self.wipes)}

    def begins(self, segment: str, has_rows: bool) -> bool:
        """Whether this text says that training begins (again), after rows of an attempt."""
        if not has_rows:
            return False
        if _BEGUN in segment or "| Total steps = " in segment:
            return True
        bar = _BAR.match(segment)
        return bar is not None and int(bar[1]) == 0 and int(bar[2]) == self.total

    def text(self, segment: str) -> bool:
        """Take what text between carriage returns says. True when it moved the training bar."""
        if len(segment) >= _WIPE_WIDTH and segment.isspace():
            if self.now > self.base and not (self.wipes and self.wipes[-1] == self.now):
                self.wipes.append(self.now)
            return False
        if bar := _BAR.match(segment):
            return self._bar(int(bar[1]), int(bar[2]))
        for header in _HEADER.finditer(segment):
            number = int(header[2].replace(",", "") or 0)
            if header[1].startswith("Total"):
                self.total, self.from_header = number, True
            elif number:
                self.per_epoch = number
        if resumed := _RESUMED.search(segment):
            self.base = int(resumed[1])
        return False

    def _bar(self, done: int, total: int) -> bool:
        another = self.total is not None and total != self.total
        if another and (self.last is not None or not self._may_be_over()):
            self.rival = (done, total)
            return False
        if self.total is None or another:
            self.total, self.shown = total, 0
            self.wipes.clear()
        if self.wipes and self.wipes[-1] == done == self.now:
            self.redrawn = True
        if done != self.now or not self.shown:
            self.shown += 1
        self.now, self.rival = done, None
        return True

    def _may_be_over(self) -> bool:
        """Whether the bar so far was not the training's (an evaluation before it): finished, and no row belongs to it."""
        finished = not self.from_header and self.now == self.total
        return finished and not self.redrawn and all(wipe == self.total for wipe in self.wipes)

    def about_to_move(self, segment: str) -> bool:
        """Whether this text draws the training bar while it already stood somewhere: rows that wait belong there."""
        bar = _BAR.match(segment)
        return bar is not None and int(bar[2]) == self.total and self.now > self.base

    def place(self, epoch: float | None) -> int | None:
        """The step of the next row; None when it cannot be told yet."""
        step = self._wiped()
        if step is None:
            step = self._counted(epoch)
        if step is not None:
            self._placed(step, epoch)
        return step

    def other(self, epoch: float | None) -> None:
        """A row that is no step (an evaluation) was printed: its own wipe, if it had one, is no later row's."""
        if self.wipes and epoch != self.epoch:
            self.wipes.popleft()

    def settle(self, rows: int, final: bool) -> bool:
        """Find the distance of `rows` rows that wait, now that the bar has moved or nothing more comes (`final`)."""
        done = self.now - self.base
        if done > 0:
            # A full buffer is emptied by the row that does not fit: the bar is one row ahead of the last one seen.
            ahead = rows > 1 and not final and self.shown >= 0.6 * done
            counts = (rows + 1, rows) if ahead else (rows, rows + 1)
            self.every = next((done // count for count in counts if done % count == 0), max(1, done // rows))
        elif final:
            self.every = 1
        return self.every is not None

    def _wiped(self) -> int | None:
        last = self.base if self.last is None else self.last
        if self.every is not None and last + self.every in self.wipes:
            while self.wipes[0] != last + self.every:
                self.wipes.popleft()
        while self.wipes:
            if (step := self.wipes.popleft()) > last:
                return step
        return None

    def _counted(self, epoch: float | None) -> int | None:
        last = self.base if self.last is None else self.last
        if self.every is None and epoch is not None and self.per_epoch:
            step = round(epoch * self.per_epoch)
            if step > last and 0.5 * 10.0 ** -_decimals(epoch) * self.per_epoch < 0.5:
                return step
        if self.every is None and not self.shown:
            self.every = 1
        if self.every is None:
            return None
        return last + max(self.every, self._leap(last, epoch))

    def _leap(self, last: int, epoch: float | None) -> int:
        """Steps to this row by its epoch, when that is certainly more than one row; else 0."""
        if epoch is None or self.epoch is None or self.every is None or self.first is None:
            return 0
        rows_span, epoch_span = last - self.first[0], self.epoch - self.first[1]
        if rows_span <= 0 or epoch_span <= 0.0:
            return 0
        steps = (epoch - self.epoch) / epoch_span * rows_span
        error = (rows_span + steps) * _EPOCH_STEP / epoch_span
        if not 1.5 * self.every < steps - error < 1e12:
            return 0
        leap = self.every * round(steps / self.every)
        return 0 if self.total is not None and last + leap > self.total else leap

    def _placed(self, step: int, epoch: float | None) -> None:
        gap = step - (self.base if self.last is None else self.last)
        if gap > 0:
            self.every = gap if self.every is None else min(self.every, gap)
        self.last, self.epoch = step, epoch
        if self.first is None and epoch is not None:
            self.first = (step, epoch)


def _decimals(value: float) -> int:
    """Decimals of a number as it was printed (the shortest text that reads back)."""
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    return max(0, len(mantissa.partition(".")[2]) - int(exponent or 0))

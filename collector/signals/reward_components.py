"""The components of a reward against each other: which are dead, which have topped out, which stay behind.

Per component, over its finite values, the last 200 samples at most:

    began        mean of its first 5 values in the run
    rose         mean of the last 20 is more than half of its range above where it began; the range includes where it began
    flat-topped  rose, that mean is in the upper fifth of the range, and the mean of the 20 before is within 5 % of the range
    behind       not flat-topped, no rise (z of Mann-Kendall below 2 over the last 50, which it must have), and the mean of the
                 last 5 is below nine tenths of what it could be: its own maximum, or 1 if that is larger
    dead         exactly the same for its last 20 samples, not above where it began, and below 1

"Behind" is flat for long as well as falling after a plateau: a fall is no rise. A component that rose and stands still has
been solved, and is neither dead nor behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from math import inf, isfinite
from typing import Any, Final

from collector.series import Series, window
from collector.signals.protocol import RunState
from collector.signals.trend import MannKendall, finite

WINDOW: Final = 200
FIRST: Final = 5
STILL: Final = 20
PLATEAU: Final = 50
SURE: Final = 2.0
ALL: Final = 1.0
"""What a component gives for a response that it finds right, unless it has given more."""


class Extremes:
    """The smallest and the largest finite value among the last `size` samples of a series; (inf, -inf) without any.

    A cache: candidates in order, those that a later one outdoes left out, so that a sample costs O(1) in the mean.
    """

    __slots__ = ("_high", "_low", "_seen", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._low: deque[tuple[int, float]] = deque()
        self._high: deque[tuple[int, float]] = deque()
        self._seen = -1
        """Step of the newest sample that was taken in."""

    def forget(self) -> None:
        """The series was changed by anything but a newest sample."""
        self._low.clear()
        self._high.clear()
        self._seen = -1

    def of(self, series: Series, step: int) -> tuple[float, float]:
        """Up to and including a step, which never goes back without `forget`."""
        steps, end = series.steps, series.end(step)
        start = end - self._size if end > self._size else 0
        at = end
        while at > start and steps[at - 1] > self._seen:
            at -= 1
        for place in range(at, end):
            self._take(steps[place], series.values[place])
        low, high = self._low, self._high
        oldest = steps[start] if end else step
        while low and low[0][0] < oldest:
            low.popleft()
        while high and high[0][0] < oldest:
            high.popleft()
        return (low[0][1], high[0][1]) if low else (inf, -inf)

    def _take(self, step: int, value: float) -> None:
        self._seen = step
        if not isfinite(value):
            return
        low, high = self._low, self._high
        while low and low[-1][1] >= value:
            low.pop()
        low.append((step, value))
        while high and high[-1][1] <= value:
            high.pop()
        high.append((step, value))


class Components:
    """Where each component began, and caches of what the series hold."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, int]] = {}
        """Mean of the first values, and of how many, by series key."""
        self._ranges: dict[str, Extremes] = {}

    def judge(self, run: RunState, members: Sequence[str], late: bool) -> tuple[float, float]:
        """(dead components, 1 if two diverge) at the row being applied, which brings at least one of them."""
        step, moving, dead = run.step, 0, 0
        topped: list[str] = []
        others: list[tuple[str, float]] = []
        for key in members:
            series = run.series[key]
            if not late and key in run.arrived:
                self._begin(key, series.values[-1])
            recent = finite(window(series, step, STILL))
            began, known = self._began.get(key, (0.0, 0))
            if len(recent) < STILL or known < FIRST:
                continue
            if min(recent) < max(recent):
                moving += 1
            elif recent[-1] <= began and recent[-1] < ALL:
                dead += 1
            ranges = Extremes(WINDOW) if late else self._ranges.setdefault(key, Extremes(WINDOW))
            low, high = ranges.of(series, step)
            if _flat_topped(series, step, recent, began, min(low, began), high):
                topped.append(key)
            else:
                others.append((key, high))
        diverge = bool(topped) and any(_behind(run.series[key], step, high) for key, high in others)
        return float(dead if moving else 0), float(diverge)

    def _begin(self, key: str, value: float) -> None:
        mean, count = self._began.get(key, (0.0, 0))
        if count < FIRST and isfinite(value):
            self._began[key] = (mean + (value - mean) / (count + 1), count + 1)

    def changed(self, keys: Collection[str]) -> None:
        """Samples of these series were overwritten, or put in between."""
        for key in keys & self._ranges.keys():
            del self._ranges[key]

    def cut(self) -> None:
        """Where the components began stays."""
        self._ranges.clear()

    def dump(self) -> Any:
        return self._began

    def load(self, state: Any) -> None:
        self._began = {key: (mean, count) for key, (mean, count) in state.items()}
        self._ranges.clear()


def _flat_topped(series: Series, step: int, recent: Sequence[float], began: float, low: float, high: float) -> bool:
    reach = high - low
    mean = sum(recent) / len(recent)
    if not reach > 0.0 or mean - began <= 0.5 * reach or mean < low + 0.8 * reach:
        return False
    before = finite(window(series, step, STILL, offset=STILL))
    return len(before) == STILL and abs(sum(before) / len(before) - mean) <= 0.05 * reach


def _behind(series: Series, step: int, high: float) -> bool:
    samples = window(series, step, PLATEAU)
    recent = finite(samples[-FIRST:])
    if len(samples) < PLATEAU or not recent or sum(recent) / len(recent) >= 0.9 * max(ALL, high):
        return False
    z = MannKendall(PLATEAU, samples).z()
    return z is not None and z < SURE

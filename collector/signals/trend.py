"""How a series moves over its last records: its level, the least-squares line and the Mann-Kendall test.

    score    = sum over pairs i < j of sign(x_j - x_i)                 a whole number, so it never drifts
    variance = [n(n-1)(2n+5) - sum over ties t(t-1)(2t+5)] / 18        likewise
    z        = (score - sign(score)) / sqrt(variance)                  0 for a score or a variance of 0

About +-2 is significant at 5 %. One sample in and one sample out, O(n) for a window of n; a sample that is not finite only
takes its place. Source: Kendall, Rank Correlation Methods; the rule language's `trend` computes the same from a whole window.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from math import copysign, isfinite, sqrt
from operator import mul
from typing import Final

from collector.samples import INF
from collector.series import Series, window
from collector.signals.protocol import Row, RunState

LEAST: Final = 8
"""Values that a line is put through at least."""


def level(series: Series, step: int, count: int) -> float | None:
    """The mean of the finite ones among the last `count` values at or before a step; None without any."""
    values = (series.values[-count:] if series.steps[-1] <= step else window(series, step, count)).tolist()
    total: float = sum(values)
    if -INF < total < INF:
        return total / len(values) if values else None
    kept = [value for value in values if isfinite(value)]
    if not kept:
        return None
    total = sum(kept)
    # Divided first only where their sum is too large: a number next to 0 would be lost.
    return total / len(kept) if isfinite(total) else sum([value / len(kept) for value in kept])


class MannKendall:
    """The last `size` samples, the order of the finite ones, their score and their ties."""

    __slots__ = ("_ordered", "_score", "_ties", "_values", "size")

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        self.size = size
        self._values: deque[float] = deque()
        self._ordered: list[float] = []
        self._score = 0
        self._ties = 0
        """Sum of t(t-1)(2t+5) over the ties."""
        for value in values:
            self.push(value)

    def __len__(self) -> int:
        """Finite samples in the window."""
        return len(self._ordered)

    def push(self, value: float) -> None:
        """Take one sample in; the oldest leaves when the window is full."""
        ordered = self._ordered
        if len(self._values) == self.size and -INF < (oldest := self._values.popleft()) < INF:
            low = bisect_left(ordered, oldest)
            del ordered[low]
            high = bisect_right(ordered, oldest, low)
            self._score -= len(ordered) - high - low
            if high > low:
                self._ties -= _one_more(high - low)
        if -INF < value < INF:
            low = bisect_left(ordered, value)
            high = bisect_right(ordered, value, low)
            self._score += low + high - len(ordered)
            if high > low:
                self._ties += _one_more(high - low)
            ordered.insert(high, value)
        self._values.append(value)

    def z(self) -> float | None:
        """The statistic; None with fewer than 2 finite ones."""
        size = len(self._ordered)
        if size < 2:
            return None
        variance = size * (size - 1) * (2 * size + 5) - self._ties
        if variance == 0 or self._score == 0:
            return 0.0
        return (self._score - copysign(1.0, self._score)) / sqrt(variance / 18)


def _one_more(tied: int) -> int:
    """What t(t-1)(2t+5) gains when a tie of `tied` values gets one more."""
    return 6 * tied * (tied + 2)


class Trend:
    """The test over the last `size` samples of one series, at the row that is being applied.

    A cache of what the series holds: made anew from it whenever anything but a newest sample changed it, so it is not state.
    """

    __slots__ = ("_least", "_size", "_test", "name")

    def __init__(self, name: str, size: int, least: int) -> None:
        self.name = name
        self._size = size
        self._least = least
        self._test: MannKendall | None = None

    def forget(self) -> None:
        """The series was cut, or is another one."""
        self._test = None

    def follow(self, run: RunState, row: Row) -> None:
        """To be called at every row: what it adds to the series, or changes in it."""
        if row.fresh and not row.late:
            if self._test is not None and self.name in run.arrived:
                self._test.push(run.series[self.name].values[-1])
        elif self.name in row.present:
            self._test = None

    def z(self, run: RunState, row: Row) -> float | None:
        """After `follow`; None with fewer than the least number of finite values, or without the series."""
        test = None if row.late else self._test  # a late row's window ends at its own step
        if test is None:
            series = run.series.get(self.name)
            if series is None:
                return None
            test = MannKendall(self._size, window(series, run.step, self._size))
            if not row.late:
                self._test = test
        return test.z() if len(test) >= self._least else None


def line(values: array[float] | list[float]) -> tuple[float, float, list[float]] | None:
    """(slope per place, mean) of the least-squares line through the finite ones of some values, which close ranks, and these
    values; None with fewer than `LEAST` of them, or where they are too large to be added and multiplied."""
    kept = values if isinstance(values, list) else values.tolist()
    total: float = sum(kept)
    if not -INF < total < INF:
        kept = [value for value in kept if isfinite(value)]
        total = sum(kept)
    count = len(kept)
    if count < LEAST:
        return None
    offsets, spread = _places(count)
    moment = 0.0
    for place in range(count):
        moment += offsets[place] * kept[place]
    slope = moment / spread
    return (slope, total / count, kept) if -INF < slope < INF and -INF < total < INF else None


def explained(slope: float, mean: float, values: list[float]) -> float:
    """Share of the variance that a line explains, 0..1; 0 for values that are all the same. All values are finite."""
    variance = 0.0
    for value in values:
        variance += (value - mean) * (value - mean)
    along = slope * slope * _places(len(values))[1]
    return along / variance if 0.0 < variance < INF else 0.0


def finite(values: Sequence[float]) -> Sequence[float]:
    """The values without those that are not finite, which is nearly always: the values."""
    return values if isfinite(sum(values)) else [value for value in values if isfinite(value)]


@functools.cache
def _places(count: int) -> tuple[list[float], float]:
    """Places less their mean, and the sum of their squares."""
    offsets = [place - (count - 1) / 2.0 for place in range(count)]
    return offsets, sum(map(mul, offsets, offsets))

"""Mean, standard deviation and extrema of a stream of blocks: one number each, however the stream is cut."""

from __future__ import annotations

import math
from functools import partial

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.contract import OnHost, Scalar


class Spread:
    """Mean, population standard deviation, maximum and minimum over all values of all blocks, in one pass.

    The squares are taken about each block's own mean, and blocks are merged as by Chan, Golub and LeVeque (1983): sums of x and
    x^2 would lose the spread of values that lie close together (ratios: all of them are near 1). Values that are all the same
    have exactly this mean and the deviation 0, whatever rounding does to their sum.
    NaN among the values gives NaN everywhere; an infinity gives an infinite mean and extremum, and no deviation (NaN).
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self.count = 0
        """n, as a Python number."""
        self._mean: Scalar = 0.0
        self._squares: Scalar = 0.0
        self._highest: list[Scalar] = []
        self._lowest: list[Scalar] = []

    def add(self, x: Array) -> None:
        """Fold [n] values; none is fine."""
        fresh = len(x)
        if fresh == 0:
            return
        total = self.count + fresh
        mean, squares = self._ops.moments(x)
        step = mean - self._mean
        self._squares = self._squares + squares + step * step * (self.count * fresh / total)
        # Not mean + step * fresh / total, which is NaN where both means are infinite.
        self._mean = self._mean * (self.count / total) + mean * (fresh / total) if self.count else mean
        self.count = total
        self._highest.append(self._ops.max(x))
        self._lowest.append(self._ops.min(x))

    @property
    def mean(self) -> OnHost | None:
        """None without any value."""
        return OnHost((self._mean, self.max, self.min), _mean) if self.count else None

    @property
    def std(self) -> OnHost | None:
        """Population standard deviation (divided by n); None without any value."""
        return OnHost((self._squares / self.count, self.max, self.min), _std) if self.count else None

    @property
    def error(self) -> OnHost | None:
        """Standard error of the mean, std / sqrt(n); None without any value."""
        return OnHost((self._squares / self.count, self.max, self.min), partial(_error, self.count)) if self.count else None

    @property
    def centre(self) -> Scalar:
        """The mean as a scalar on the device, off by rounding where all values are the same; 0 without any value."""
        return self._mean

    @property
    def squares(self) -> Scalar:
        """Sum of the squares about the mean; 0 without any value."""
        return self._squares

    @property
    def max(self) -> Scalar:
        """None without any value."""
        return self._ops.max(self._ops.stack(self._highest)) if self.count else None

    @property
    def min(self) -> Scalar:
        """None without any value."""
        return self._ops.min(self._ops.stack(self._lowest)) if self.count else None

    def metrics(self, name: str) -> dict[str, Scalar]:
        """The four under the names {name}_mean, _std, _max and _min."""
        return {f"{name}_mean": self.mean, f"{name}_std": self.std, f"{name}_max": self.max, f"{name}_min": self.min}


def _mean(mean: float, highest: float, lowest: float) -> float:
    return highest if highest == lowest else mean


def _std(variance: float, highest: float, lowest: float) -> float:
    return 0.0 if highest == lowest and math.isfinite(highest) else math.sqrt(variance)


def _error(count: int, variance: float, highest: float, lowest: float) -> float:
    return _std(variance, highest, lowest) / math.sqrt(count)

"""Sums over pairs of gradients, in float64 and in constant memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tocsin.checks.values import CheckInputError, blocks, numeric


@dataclass(frozen=True)
class Sums:
    """Sums over the finite elements of one tensor pair, in float64."""

    first: float
    second: float
    dot: float
    difference: float
    """sum (second - first)^2."""
    size: int
    nonfinite: int

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.first + other.first,
            self.second + other.second,
            self.dot + other.dot,
            self.difference + other.difference,
            self.size + other.size,
            self.nonfinite + other.nonfinite,
        )

    @property
    def ratio(self) -> float | None:
        """|second| / |first|; None if the first is zero or a sum of squares is beyond float64."""
        if not (self.first > 0 and math.isfinite(self.first) and math.isfinite(self.second)):
            return None
        return math.sqrt(self.second) / math.sqrt(self.first)

    @property
    def cosine(self) -> float | None:
        """None if either is zero, or `ratio` is None."""
        if self.ratio is None or not self.second > 0:
            return None
        return max(-1.0, min(1.0, self.dot / math.sqrt(self.first) / math.sqrt(self.second)))


NOTHING: Final = Sums(0.0, 0.0, 0.0, 0.0, 0, 0)


def compare(name: str, first: Any, second: Any) -> Sums:
    """The sums of two tensors of one shape, in blocks, so that the float64 copies stay small.

    What is not finite on either side is counted and left out. Raises CheckInputError for other shapes and for no numbers.
    """
    a, b = numeric(first, f"g1 {name}"), numeric(second, f"g2 {name}")
    if a.shape != b.shape:
        raise CheckInputError(f"{name}: shape {a.shape} in g1 and {b.shape} in g2")
    total = NOTHING
    for x, y in zip(blocks(a), blocks(b), strict=True):
        x, y = x.astype(np.float64), y.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        lost = x.size - int(np.count_nonzero(finite))
        if lost:
            x, y = x[finite], y[finite]
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float64 the sums are infinite, and `ratio` says None
            delta = y - x
            total += Sums(float(x @ x), float(y @ y), float(x @ y), float(delta @ delta), x.size + lost, lost)
    return total

"""What the search for causes looks at, and what it asks for before it believes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.pair import Pair
from tocsin.checks.values import Bools, Floats

DISTINCT: Final = 32
"""Fewer tokens or different values than this say nothing about a distribution."""
HALF: Final = 0.5
"""A cause explains the gap when undoing it leaves less than this share of the whole."""


@dataclass(frozen=True)
class Case:
    """What the causes look at: A and C whole (to undo a shift), their pair, and the limits."""

    a: NDArray[Any]
    c: NDArray[Any]
    mask: Bools
    engines: Pair
    repeat: Pair | None
    healthy: float
    stop: float
    suspicious: bool
    """The mean of A=C is not healthy, or A=C failed for another reason: only then a cause is looked for."""

    @property
    def mean(self) -> float:
        """Mean |l| of A=C."""
        return float(np.mean(self.engines.gap))

    def row_sums(self, values: Floats) -> Floats:
        """[responses]: sums over each row of one value per token of A=C."""
        sums: Floats = np.bincount(self.engines.tokens.row, weights=values, minlength=len(self.mask)).astype(np.float64)
        return sums

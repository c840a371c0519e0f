"""Recognising and making rounded numbers: bfloat16, float16, and a few decimals in a text file."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.values import Floats

DECIMALS: Final = {f"{digits} decimals": digits for digits in (1, 2, 3, 4)}
GRIDS: Final = ("bfloat16", "float16", *DECIMALS)


def bfloat16(values: NDArray[Any]) -> NDArray[np.float32]:
    """`values` rounded to bfloat16 (to nearest, ties to even) and widened to float32. NaN and infinities stay.

    Values beyond float32 become infinite, as a cast in two steps does.
    """
    with np.errstate(over="ignore"):
        wide = np.ascontiguousarray(values, dtype=np.float32)
    bits = wide.view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(wide), wide, rounded.view(np.float32))


def float16(values: NDArray[Any]) -> NDArray[np.float32]:
    """`values` rounded to float16 and widened to float32; beyond 65,504 they become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float32).astype(np.float16).astype(np.float32)


def round_to(values: Floats, grid: str) -> Floats:
    """`values` rounded to one of GRIDS."""
    if grid == "bfloat16":
        return bfloat16(values).astype(np.float64)
    if grid == "float16":
        return float16(values).astype(np.float64)
    return np.round(values, DECIMALS[grid])


def coarsest_grid(values: Floats, distinct: int) -> str | None:
    """The first of GRIDS on which all these values lie; None if there is none, or fewer than `distinct` different values.

    A few values (0, -0.5, -1) lie on every grid and say nothing.
    """
    if len(values) < distinct or not _at_least(values, distinct):
        return None
    return next((grid for grid in GRIDS if _lies_on(values, grid)), None)


def _at_least(values: Floats, distinct: int) -> bool:
    for size in (64 * distinct, len(values)):  # most arrays show it at their beginning
        if len(np.unique(values[:size])) >= distinct:
            return True
    return False


def _lies_on(values: Floats, grid: str) -> bool:
    for part in (values[:1000], values):
        rounded = round_to(part, grid)
        scale = np.maximum(1.0, np.abs(part))
        limit = 1e-6 * scale if grid in DECIMALS else np.zeros(1)  # a decimal is itself rounded to float32 on its way
        if not (np.abs(part - rounded) <= limit).all():
            return False
    return True

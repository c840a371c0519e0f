"""Array operations on numpy. See `arrays.Ops`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


_SMALL_FLOATS: Final = ("bfloat16", "float8", "float6", "float4")
"""Types that other packages add to numpy, which does not count them among its floats."""


def numbers_of(values: Any) -> Array:
    """Anything array-like as an array of booleans, whole numbers or floats; a view where possible.

    Raises ValueError for ragged lists and texts, TypeError for complex numbers, dates and the like.
    """
    found = np.asarray(values)
    if found.dtype == object:
        return found.astype(np.float64)  # None becomes NaN; text raises ValueError
    if found.dtype.kind in "bifu":
        return found
    if found.dtype.name.startswith(_SMALL_FLOATS):
        small: Array = found.astype(np.float32)
        return small
    raise TypeError(f"numbers were expected, these are {found.dtype}")


class NumpyOps:
    """numpy, one core."""

    block_tokens: int = 1 << 16

    def array(self, values: Any) -> Array:
        """A view of an array; a new one of a list."""
        return numbers_of(values)

    def hold(self, values: Any) -> Array:
        return self.array(values)

    def floats(self, x: Array) -> Array:
        if x.dtype in (np.float32, np.float64):
            return x
        return x.astype(np.float64 if x.dtype.kind == "f" and x.dtype.itemsize > 8 else np.float32)

    def flags(self, x: Array) -> Array:
        return x if x.dtype == np.bool_ else np.asarray(x != 0)

    def take(self, x: Array, mask: Array) -> Array:
        return x[mask]

    def places(self, mask: Array) -> Array:
        return np.flatnonzero(mask)

    def pick(self, x: Array, places: Array) -> Array:
        return x.reshape(-1).take(places)

    def lay(self, x: Array, places: Array | None, shape: tuple[int, ...]) -> Array:
        if places is None:
            return x.reshape(shape)
        found = np.zeros(shape, dtype=x.dtype)
        found.reshape(-1)[places] = x
        return found

    def repeat(self, x: Array, counts: Array, total: int | None = None) -> Array:
        return np.repeat(x, counts)

    def exp(self, x: Array) -> Array:
        return np.exp(x)

    def expm1(self, x: Array) -> Array:
        return np.asarray(np.expm1(x))

    def log(self, x: Array) -> Array:
        return np.log(x)

    def sqrt(self, x: Array) -> Array:
        return np.sqrt(x)

    def clip(self, x: Array, low: float | None, high: float | None) -> Array:
        return np.asarray(np.clip(x, low, high))

    def where(self, condition: Array, x: Any, y: Any) -> Array:
        return np.asarray(np.where(condition, x, y))

    def is_finite(self, x: Array) -> Array:
        return np.isfinite(x)

    def full(self, rows: int, value: int) -> Array:
        return np.full(rows, value, dtype=np.int64)

    def count(self, flags: Array) -> Array:
        return np.asarray(np.count_nonzero(flags))

    def count_rows(self, flags: Array) -> Array:
        return np.asarray(np.count_nonzero(flags, axis=1))

    def count_segments(self, flags: Array, counts: Array) -> Array:
        ends = np.concatenate(([0], np.cumsum(counts)))
        before = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
        return np.asarray(before[ends[1:]] - before[ends[:-1]])

    def sum(self, x: Array) -> Array:
        return np.asarray(np.sum(x, dtype=np.float64))

    def dot(self, x: Array, y: Array) -> Array:
        return np.asarray(np.einsum("i,i->", x, y, dtype=np.float64))  # np.dot would wake the threads of BLAS

    def moments(self, x: Array) -> tuple[Array, Array]:
        apart = x.astype(np.float64)
        mean = apart.mean() if len(apart) else np.float64(np.nan)
        apart -= mean
        return np.asarray(mean), np.asarray(np.einsum("i,i->", apart, apart))  # np.dot would wake the threads of BLAS

    def max(self, x: Array) -> Array:
        return np.asarray(np.max(x))

    def min(self, x: Array) -> Array:
        return np.asarray(np.min(x))

    def segment_sum(self, x: Array, counts: Array) -> Array:
        sums = np.zeros(len(counts), dtype=np.float64)
        filled = counts > 0
        if filled.any():
            starts = np.concatenate(([0], np.cumsum(counts[filled])[:-1]))
            sums[filled] = np.add.reduceat(x, starts, dtype=np.float64)
        return sums

    def segment_max(self, x: Array, counts: Array) -> Array:
        found = np.full(len(counts), -np.inf)
        filled = counts > 0
        if filled.any():
            starts = np.concatenate(([0], np.cumsum(counts[filled])[:-1]))
            found[filled] = np.maximum.reduceat(x, starts)
        return found

    def quantiles(self, x: Array, levels: Sequence[float]) -> list[Array]:
        return [np.asarray(value) for value in select_quantiles(x, levels)]

    def top(self, x: Array, k: int) -> Array:
        return np.asarray(np.partition(x, len(x) - k)[len(x) - k :])

    def join(self, parts: Sequence[Array]) -> Array:
        return np.concatenate(parts)

    def stack(self, scalars: Sequence[Array]) -> Array:
        return np.asarray(scalars)

    def numbers(self, scalars: Sequence[Any]) -> list[float]:
        return [float(value) for value in scalars]


def select_quantiles(x: Array, levels: Sequence[float]) -> list[float]:
    """Quantiles of [n] by linear interpolation, in the order of `levels`; NaN if there is a NaN. Raises for an empty array.

    By selection, lowest level first: each further one looks only at what lies above the one before. numpy's own asks for all
    order statistics at once, which takes seven times as long for two levels of 4 million values.
    """
    rest = x.copy()
    start = 0
    found: dict[float, float] = {}
    for level in sorted(set(levels)):
        place = level * (len(x) - 1)
        low = int(place)
        rest.partition(low - start)
        rest = rest[low - start :]
        start = low
        if not found and np.isnan(rest).any():  # NaN is sorted last, so it is in the rest if there is one
            return [float("nan")] * len(levels)
        value = float(rest[0])
        if place > low:
            above = float(rest[1:].min())
            value = value if above == value else value + (above - value) * (place - low)
        found[level] = value
    return [found[level] for level in levels]

"""The arithmetic of the rule language: functions from the samples of a window to a number. No state, no run.

A window is a sequence of floats, oldest first, never empty. What all of them do:

    NaN       is passed on, except by min and max (which skip it unless all is NaN), count, last, first and changes
    None      the result does not exist ("degenerate"): a scale of zero, a slope through one sample

Definitions are those of the public test suites restated in the conformance vectors: population statistics, quantiles by
linear interpolation, slopes by least squares.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

_INF: Final = math.inf
_fsum: Final = math.fsum
MAD_TO_SIGMA: Final = 1.4826
"""Makes the MAD of normal data estimate its standard deviation: 1 / Phi^-1(3/4)."""

_LONG: Final = 48
"""From so many samples on numpy finds an extreme faster than `max` does: 1 instead of 7 microseconds for 200 samples."""

Samples = Sequence[float]


def has_nan(window: Samples) -> bool:
    check = sum(window)
    return check != check and any(value != value for value in window)


def in_order(window: Samples) -> list[float]:
    """The samples from the smallest on."""
    ordered = window.tolist() if isinstance(window, array) else list(window)  # at half the cost of asking an array for each
    ordered.sort()
    return ordered


def total(window: Samples) -> float:
    """The sum; infinite when it is beyond float, NaN with a NaN or two opposite infinities."""
    try:
        return math.fsum(window)
    except OverflowError:
        return _INF if sum(value / len(window) for value in window) > 0 else -_INF
    except ValueError:  # +inf and -inf
        return math.nan


def mean(window: Samples) -> float:
    """The arithmetic mean; finite whenever all samples are, also where their sum is not."""
    count = len(window)
    try:
        return _fsum(window) / count
    except OverflowError:
        return _fsum(value / count for value in window)
    except ValueError:
        return math.nan


def median(window: Samples) -> float:
    """The middle sample, or the mean of the two in the middle."""
    ordered = in_order(window)
    check = sum(ordered)
    if check != check and has_nan(ordered):  # an infinity of either sign makes it NaN too
        return math.nan
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    low, high = ordered[middle - 1], ordered[middle]
    return low if low == high else low / 2 + high / 2


def minimum(window: Samples) -> float:
    """The smallest sample that is a number; NaN when none is."""
    if len(window) >= _LONG and type(window) is array:
        found: float = window[np.frombuffer(window).argmin()]  # of equal ones the first, as `min` has it; or a NaN
        if found == found:
            return found
    low = min(window)  # passes over a NaN unless it comes first
    return low if low == low else min((value for value in window if value == value), default=math.nan)


def maximum(window: Samples) -> float:
    """The largest sample that is a number; NaN when none is."""
    if len(window) >= _LONG and type(window) is array:
        found: float = window[np.frombuffer(window).argmax()]
        if found == found:
            return found
    high = max(window)
    return high if high == high else max((value for value in window if value == value), default=math.nan)


def std(window: Samples) -> float:
    """The population standard deviation (divides by n); exactly 0 for equal samples, NaN with a non-finite one."""
    first = window[0]
    size = len(window)
    # Shifted by the first sample: equal samples give exactly zero, and large offsets cost no digits.
    shifted = [value - first for value in window]
    try:
        centre = math.fsum(shifted) / size
        return math.sqrt(math.fsum([(value - centre) * (value - centre) for value in shifted]) / size)
    except OverflowError:
        return _INF
    except ValueError:
        return math.nan


def mad(window: Samples) -> float:
    """The median absolute deviation from the median, unscaled."""
    centre = median(window)
    return median([abs(value - centre) for value in window])


def quantile(window: Samples, q: float) -> float:
    """The q-quantile, 0 <= q <= 1, by linear interpolation between the order statistics."""
    if has_nan(window):
        return math.nan
    ordered = in_order(window)
    place = q * (len(ordered) - 1)
    below = int(place)
    part = place - below
    if part == 0.0 or ordered[below] == ordered[below + 1]:
        return ordered[below]
    return ordered[below] * (1 - part) + ordered[below + 1] * part


def slope(steps: Sequence[int], window: Samples) -> float | None:
    """The least-squares slope per step over the steps that the samples stand at; NaN with a non-finite sample."""
    count = len(window)
    if count < 2:
        return None
    origin = steps[0]
    xs = [step - origin for step in steps]
    x_mean = math.fsum(xs) / count
    y_mean = mean(window)
    spread = math.fsum([(x - x_mean) ** 2 for x in xs])
    if spread == 0.0:
        return None
    try:
        return math.fsum([(x - x_mean) * (y - y_mean) for x, y in zip(xs, window, strict=True)]) / spread
    except (OverflowError, ValueError):
        return math.nan


def delta(window: Samples) -> float:
    """The last sample minus the first; nothing is extrapolated to the window's edges."""
    return window[-1] - window[0]


def first(window: Samples) -> float:
    return window[0]


def last(window: Samples) -> float:
    return window[-1]


def count(window: Samples) -> float:
    """How many samples there are, NaN included."""
    return float(len(window))


def changes(window: Samples) -> float:
    """How often a sample differs from the one before it; from NaN to NaN is no change, into NaN and out of it are."""
    number = 0
    before = window[0]
    for value in window[1:]:
        number += value != before and (value == value or before == before)
        before = value
    return float(number)


def nonfinite(window: Samples) -> float:
    """How many samples are NaN or infinite."""
    return float(sum(1 for value in window if not -_INF < value < _INF))


def trend(window: Samples) -> float | None:
    """The z of the Mann-Kendall test for a monotone trend: ties corrected, with continuity correction.

    About +-2 is significant at 5 %. 0 when all samples are equal. O(n log n).
    """
    size = len(window)
    if size < 2:
        return None
    if has_nan(window):
        return math.nan
    score = 0
    seen: list[float] = []
    variance = size * (size - 1) * (2 * size + 5)
    if len(set(window)) == size:
        for index, value in enumerate(window):
            low = bisect_left(seen, value)
            score += 2 * low - index
            seen.insert(low, value)
    else:
        for value in window:
            low = bisect_left(seen, value)
            high = bisect_right(seen, value, low)
            score += low - (len(seen) - high)
            seen.insert(high, value)
        variance -= sum(tied * (tied - 1) * (2 * tied + 5) for tied in Counter(seen).values())
    if variance == 0 or score == 0:
        return 0.0
    return (score - math.copysign(1.0, score)) / math.sqrt(variance / 18)


def ewma(window: Samples, half_life: float) -> float:
    """The mean with weights that halve every `half_life` samples into the past."""
    factor = 0.5 ** (1.0 / half_life)
    weight, weights, result = 1.0, 0.0, 0.0
    for value in reversed(window):
        result += weight * value
        weights += weight
        weight *= factor
    return result / weights


def drop(window: Samples) -> float | None:
    """1 - last / max: the share of its highest value that the series has lost. None unless the maximum is above 0."""
    if has_nan(window):
        return math.nan
    top = max(window)
    return 1.0 - window[-1] / top if top > 0 else None


def zscore(window: Samples) -> float | None:
    """How many standard deviations the last sample is from the mean of those before it. None when they are all equal."""
    before = window[:-1]
    if len(before) < 2:
        return None
    scale = std(before)
    return (window[-1] - mean(before)) / scale if scale else None


def rzscore(window: Samples) -> float | None:
    """The robust form: from the median of those before it, in units of 1.4826 MAD. None when that is zero."""
    before = window[:-1]
    if len(before) < 2:
        return None
    scale = MAD_TO_SIGMA * mad(before)
    return (window[-1] - median(before)) / scale if scale else None


WindowFunction = Callable[[Samples], float | None]

WINDOW_FUNCTIONS: Final[dict[str, WindowFunction]] = {
    "mean": mean,
    "median": median,
    "min": minimum,
    "max": maximum,
    "sum": total,
    "std": std,
    "mad": mad,
    "delta": delta,
    "first": first,
    "last": last,
    "count": count,
    "changes": changes,
    "trend": trend,
    "drop": drop,
    "zscore": zscore,
    "rzscore": rzscore,
    "nonfinite": nonfinite,
}
"""Functions of one window and nothing else; `slope`, `quantile` and `ewma` take more."""

SMALLEST_WINDOW: Final = {
    "slope": 2,
    "trend": 2,
    "delta": 2,
    "changes": 2,
    "drop": 2,
    "zscore": 3,
    "rzscore": 3,
    "std": 2,
    "mad": 2,
}
"""Fewer records than this give the same answer always; a window by records that is shorter is an error at load."""


def absolute(value: float) -> float | None:
    return abs(value)


def logarithm(value: float) -> float | None:
    """The natural logarithm; None (degenerate) at 0 and below."""
    if value <= 0:
        return None
    return math.log(value)


def exponential(value: float) -> float | None:
    try:
        return math.exp(value)
    except OverflowError:
        return _INF


def square_root(value: float) -> float | None:
    """The square root; None (degenerate) below 0."""
    if value < 0:
        return None
    return math.sqrt(value)


SCALAR_FUNCTIONS: Final[dict[str, Callable[[float], float | None]]] = {
    "abs": absolute,
    "log": logarithm,
    "exp": exponential,
    "sqrt": square_root,
}
"""Functions of one number."""


def smaller(values: Samples) -> float:
    """The smallest of several numbers; NaN with a NaN among them, for a limit must not hide it."""
    return math.nan if has_nan(values) else min(values)


def larger(values: Samples) -> float:
    """The largest of several numbers; NaN with a NaN among them."""
    return math.nan if has_nan(values) else max(values)


def clamp(value: float, low: float, high: float) -> float:
    """The value, moved into low..high; NaN stays NaN."""
    if value != value or low != low or high != high:
        return math.nan
    return min(max(value, low), high)

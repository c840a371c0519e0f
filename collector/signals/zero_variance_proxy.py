"""The expectation of B2 for trainers that log ratios and no success counts per group.

Beta(m s, (1 - m) s) over prompts: the mean m is the run's earlier `correct_ratio` (or a `reward_mean` that stays within 0..1),
the strength s is what makes the expected share match the earlier observed shares at their group sizes. So a new group size or
a new mean moves the expectation, and what is left is a change that neither explains. All values are `proxy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, isfinite, log, log1p
from typing import Any, Final

from collector.model import Provenance
from collector.signals.beta import compare, group_probabilities
from collector.signals.protocol import Block, Derived, RunState
from tocsin import wire

HISTORY: Final = 20
RECENT: Final = 5
"""Earlier records that give the mean, and how many there must be."""
DEFAULT_GROUPS: Final = 32
"""Groups per step when the configuration does not say `prompts_per_step`."""
MOST: Final = 1_000_000
"""A group size or a number of groups beyond this is a mistake in the configuration."""
_WEAKEST, _STRONGEST = 0.01, 1000.0
_NARROWEST, _WIDEST = -log1p(_STRONGEST), -log1p(_WEAKEST)
"""The same as logarithms of the spread 1 / (strength + 1)."""
_CLOSE: Final = 1e-10
_MOST_STEPS: Final = 60
_USUAL_POWER: Final = 1.3
"""By which the share follows the spread: 1 for pairs, 1.4 for groups of 8 at a mean of 0.5, less towards the edges."""
_PROXY: Final = Block("zero_variance_expected", "zero_variance_excess", "zero_variance_z", provenance=Provenance.PROXY)


class RatioHistory:
    """The last (mean, observed share, group size) of the run."""

    def __init__(self) -> None:
        self._earlier: list[tuple[float, float, int]] = []
        self._pending: tuple[float, float, int] | None = None

    def update(self, run: RunState, groups: wire.Groups | None, derived: Derived) -> None:
        """Compare the row's observed share with what earlier rows let expect."""
        observed = _observed(run, groups)
        mean = _mean_at(run)
        size = groups.size if groups is not None else run.config.get("group_size")
        if observed is None or mean is None or not isinstance(size, int) or not 2 <= size <= MOST:
            return
        earlier = self._earlier
        if self._pending is not None:
            earlier.append(self._pending)
            del earlier[:-HISTORY]
        self._pending = (mean, observed, size)
        if len(earlier) < RECENT:
            return
        recent = sum([entry[0] for entry in earlier[-RECENT:]]) / RECENT
        expected = _expected(recent, fit_strength(earlier), size)
        count = len(groups.prompt) if groups is not None else run.config.get("prompts_per_step")
        count = count if isinstance(count, int) and 0 < count <= MOST else DEFAULT_GROUPS
        derived.add(_PROXY, *compare(observed, expected, expected * (1.0 - expected) / count))

    def cut(self) -> None:
        self._pending = None

    def breaching(self) -> None:
        self._pending = None

    def dump(self) -> Any:
        return [self._earlier, self._pending]

    def load(self, state: Any) -> None:
        earlier, pending = state
        self._earlier = [(entry[0], entry[1], entry[2]) for entry in earlier]
        self._pending = None if pending is None else (pending[0], pending[1], pending[2])


def fit_strength(earlier: Sequence[tuple[float, float, int]]) -> float:
    """The s at which the mean expected share equals the mean observed one, within 1e-10 (and within its bounds).

    The share at s runs from m^G + (1 - m)^G (s without end: all prompts alike) to 1 (s = 0: all decided), and over that range
    it is close to a power of the spread 1 / (s + 1). So the secant method on the logarithms of both gets there in four or
    five steps where bisection takes forty, and what it finds is a function of the history alone.
    """
    means, shares, sizes = zip(*earlier, strict=True)
    if sizes.count(sizes[0]) == len(sizes):
        points = [(_bounded(sum(means) / len(means)), sizes[0], len(means))]
    else:
        by_size: dict[int, list[float]] = {}
        for mean, size in zip(means, sizes, strict=True):
            by_size.setdefault(size, []).append(mean)
        points = [(_bounded(sum(found) / len(found)), size, len(found)) for size, found in by_size.items()]
    count, target = float(len(shares)), sum(shares)
    floor = sum([weight * (mean**size + (1.0 - mean) ** size) for mean, size, weight in points])
    if target <= floor:
        return _STRONGEST
    if target >= count:
        return _WEAKEST
    wanted = log((target - floor) / (count - floor))
    low, high = _NARROWEST, _WIDEST
    last_at = last_log = 0.0  # where all is decided, spread and share are both 1
    at = min(max(wanted / _USUAL_POWER, low), high)
    for _ in range(_MOST_STEPS):
        strength = exp(-at) - 1.0
        share = 0.0
        for mean, size, weight in points:
            right, wrong = group_probabilities(size, mean * strength, (1.0 - mean) * strength)
            share += weight * (right + wrong)
        if abs(share - target) <= _CLOSE * count or at == (high if share < target else low):
            break
        if share < target:
            low = at
        else:
            high = at
        found = log((share - floor) / (count - floor)) if share > floor else -inf
        power = (found - last_log) / (at - last_at)
        last_at, last_log = at, found
        ahead = min(max(at + (wanted - found) / power, _NARROWEST), _WIDEST) if power > 0.0 else at
        at = ahead if low <= ahead <= high and ahead != last_at else (low + high) / 2.0
    return exp(-at) - 1.0


def _expected(mean: float, strength: float, size: int) -> float:
    mean = _bounded(mean)
    return sum(group_probabilities(size, mean * strength, (1.0 - mean) * strength))


def _bounded(mean: float) -> float:
    return min(max(mean, 0.01), 0.99)


def _observed(run: RunState, groups: wire.Groups | None) -> float | None:
    if groups is not None and groups.reward_std:
        spreads = [wire.metric_value(value) for value in groups.reward_std if _is_number(value)]
        known = [spread for spread in spreads if spread is not None and isfinite(spread)]
        return sum(spread == 0.0 for spread in known) / len(known) if known else None
    return _ratio_at(run, "zero_variance_group_ratio")


def _mean_at(run: RunState) -> float | None:
    mean = _ratio_at(run, "correct_ratio")
    return mean if mean is not None else _ratio_at(run, "reward_mean")


def _ratio_at(run: RunState, key: str) -> float | None:
    """The value of a series at this very step, if it is a ratio."""
    series = run.series.get(key)
    value = series.at(run.step) if series is not None else None
    return value if value is not None and 0.0 <= value <= 1.0 else None


def _is_number(value: object) -> bool:
    try:
        return wire.metric_value(value) is not None
    except (ValueError, OverflowError):
        return False

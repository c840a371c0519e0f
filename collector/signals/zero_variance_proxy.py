"""The expectation of B2 for trainers that log ratios and no success counts per group.

Beta(m s, (1 - m) s) over prompts: the mean m is the run's earlier `correct_ratio` (or a `reward_mean` that stays within 0..1),
the strength s is what makes the expected share match the earlier observed shares at their group sizes. So a new group size or
a new mean moves the expectation, and what is left is a change that neither explains. All values are `proxy`.

The strength says how the difficulty of the prompts is spread, which changes slowly: it is fitted anew after every fifth
record that is learnt, while the mean it is used with is that of the five records before.
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
REFIT: Final = 5
"""Records learnt between two fits of the strength."""
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
    """The last means, observed shares and group sizes of the run; those of the newest record wait until it is clean."""

    def __init__(self) -> None:
        self._means: list[float] = []
        self._shares: list[float] = []
        self._sizes: list[int] = []
        self._pending: tuple[float, float, int] | None = None
        self._strength = 0.0
        self._learnt = REFIT
        """Records since it was fitted."""

    def update(self, run: RunState, groups: wire.Groups | None, derived: Derived) -> None:
        """Compare the row's observed share with what earlier rows let expect."""
        observed = _observed(run, groups)
        mean = _mean_at(run)
        size = groups.size if groups is not None else run.config.get("group_size")
        if observed is None or mean is None or not isinstance(size, int) or not 2 <= size <= MOST:
            return
        if self._pending is not None:
            self._learn(*self._pending)
        self._pending = (mean, observed, size)
        if len(self._means) < RECENT:
            return
        if self._learnt >= REFIT:
            self._strength = fit_strength(self._means, self._shares, self._sizes)
            self._learnt = 0
        mean, strength = _bounded(sum(self._means[-RECENT:]) / RECENT), self._strength
        right, wrong = group_probabilities(size, mean * strength, (1.0 - mean) * strength)
        expected = right + wrong
        count = len(groups.prompt) if groups is not None else run.config.get("prompts_per_step")
        count = count if isinstance(count, int) and 0 < count <= MOST else DEFAULT_GROUPS
        derived.blocks.append(_PROXY)
        derived.values += compare(observed, expected, expected * (1.0 - expected) / count)

    def _learn(self, mean: float, share: float, size: int) -> None:
        means, shares, sizes = self._means, self._shares, self._sizes
        means.append(mean)
        shares.append(share)
        sizes.append(size)
        self._learnt += 1
        if len(means) > HISTORY:
            del means[0], shares[0], sizes[0]

    def cut(self) -> None:
        self._pending = None

    def breaching(self) -> None:
        self._pending = None

    def dump(self) -> Any:
        return [self._means, self._shares, self._sizes, self._pending, self._strength, self._learnt]

    def load(self, state: Any) -> None:
        self._means, self._shares, self._sizes, pending, self._strength, self._learnt = state
        self._pending = None if pending is None else (pending[0], pending[1], pending[2])


def fit_strength(means: Sequence[float], shares: Sequence[float], sizes: Sequence[int]) -> float:
    """The s at which the mean expected share equals the mean observed one, within 1e-10 (and within its bounds).

    The share at s runs from m^G + (1 - m)^G (s without end: all prompts alike) to 1 (s = 0: all decided), and over that range
    it is close to a power of the spread 1 / (s + 1). So the secant method on the logarithms of both gets there in four or
    five steps where bisection takes forty, and what it finds is a function of the history alone.
    """
    count = len(sizes)
    target = sum(shares) / count
    points = _points(means, sizes)
    floor = sum([weight * (mean**size + (1.0 - mean) ** size) for mean, size, weight in points])
    if target <= floor:
        return _STRONGEST
    if target >= 1.0:
        return _WEAKEST
    room = 1.0 - floor
    wanted = log((target - floor) / room)
    low, high = _NARROWEST, _WIDEST
    last_at = last_log = 0.0  # where all is decided, spread and share are both 1
    at = min(max(wanted / _USUAL_POWER, low), high)
    for _ in range(_MOST_STEPS):
        strength = exp(-at) - 1.0
        share = 0.0
        for mean, size, weight in points:
            right, wrong = group_probabilities(size, mean * strength, (1.0 - mean) * strength)
            share += weight * (right + wrong)
        error = share - target
        if -_CLOSE <= error <= _CLOSE or at == (high if error < 0.0 else low):
            break
        if error < 0.0:
            low = at
        else:
            high = at
        found = log((share - floor) / room) if share > floor else -inf
        ahead = at + (wanted - found) * (at - last_at) / (found - last_log) if found != last_log else at
        last_at, last_log = at, found
        if low < ahead < high:
            at = ahead
        else:  # once to the bound, if that is still open; else halve, which always gets on
            bound = _NARROWEST if ahead <= low else _WIDEST
            at = bound if low <= bound <= high and bound != last_at else (low + high) / 2.0
    return exp(-at) - 1.0


def _points(means: Sequence[float], sizes: Sequence[int]) -> list[tuple[float, int, float]]:
    """Mean, group size and share of the records, for each group size among them."""
    count = len(sizes)
    if sizes.count(sizes[0]) == count:
        return [(_bounded(sum(means) / count), sizes[0], 1.0)]
    by_size: dict[int, list[float]] = {}
    for mean, size in zip(means, sizes, strict=True):
        by_size.setdefault(size, []).append(mean)
    return [(_bounded(sum(found) / len(found)), size, len(found) / count) for size, found in by_size.items()]


def _bounded(mean: float) -> float:
    return 0.01 if mean < 0.01 else 0.99 if mean > 0.99 else mean


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

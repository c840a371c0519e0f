"""The expectation of B2 for trainers that log ratios and no success counts per group.

Beta(m s, (1 - m) s) over prompts: the mean m is the run's earlier `correct_ratio` (or a `reward_mean` that stays within 0..1),
the strength s is what makes the expected share match the earlier observed shares at their group sizes. So a new group size or
a new mean moves the expectation, and what is left is a change that neither explains. All values are `proxy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from collector.model import Provenance
from collector.signals.beta import compare, group_probabilities
from collector.signals.protocol import Emission, RunState
from tocsin import wire

HISTORY: Final = 20
RECENT: Final = 5
"""Earlier records that give the mean, and how many there must be."""
DEFAULT_GROUPS: Final = 32
"""Groups per step when the configuration does not say `prompts_per_step`."""
MOST: Final = 1_000_000
"""A group size or a number of groups beyond this is a mistake in the configuration."""
_WEAKEST, _STRONGEST, _HALVINGS = 0.01, 1000.0, 30


class RatioHistory:
    """The last (mean, observed share, group size) of the run."""

    def __init__(self) -> None:
        self._earlier: list[tuple[float, float, int]] = []
        self._pending: tuple[float, float, int] | None = None

    def update(self, run: RunState, groups: wire.Groups | None) -> Iterator[Emission]:
        """Compare the row's observed share with what earlier rows let expect."""
        observed = _observed(run, groups)
        mean = _mean_at(run)
        size = groups.size if groups is not None else run.config.get("group_size")
        if observed is None or mean is None or not isinstance(size, int) or not 2 <= size <= MOST:
            return
        if self._pending is not None:
            self._earlier = [*self._earlier, self._pending][-HISTORY:]
        self._pending = (mean, observed, size)
        if len(self._earlier) < RECENT:
            return
        recent = sum(entry[0] for entry in self._earlier[-RECENT:]) / RECENT
        expected = _expected(recent, fit_strength(self._earlier), size)
        count = len(groups.prompt) if groups is not None else run.config.get("prompts_per_step")
        count = count if isinstance(count, int) and 0 < count <= MOST else DEFAULT_GROUPS
        _, excess, z = compare(observed, expected, expected * (1.0 - expected) / count)
        yield "zero_variance_expected", expected, Provenance.PROXY
        yield "zero_variance_excess", excess, Provenance.PROXY
        yield "zero_variance_z", z, Provenance.PROXY

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


def fit_strength(earlier: list[tuple[float, float, int]]) -> float:
    """The s at which the mean expected share equals the mean observed one; by bisection, as the share falls with s."""
    by_size: dict[int, list[float]] = {}
    for mean, _, size in earlier:
        by_size.setdefault(size, []).append(mean)
    points = [(sum(means) / len(means), size, len(means)) for size, means in by_size.items()]
    target = sum(observed for _, observed, _ in earlier)
    low, high = math.log(_WEAKEST), math.log(_STRONGEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        strength = math.exp(middle)
        if sum(weight * _expected(mean, strength, size) for mean, size, weight in points) > target:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2.0)


def _expected(mean: float, strength: float, size: int) -> float:
    mean = min(max(mean, 0.01), 0.99)
    return sum(group_probabilities(size, mean * strength, (1.0 - mean) * strength))


def _observed(run: RunState, groups: wire.Groups | None) -> float | None:
    if groups is not None and groups.reward_std:
        spreads = [wire.metric_value(value) for value in groups.reward_std if _is_number(value)]
        known = [spread for spread in spreads if spread is not None and math.isfinite(spread)]
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

"""B1: what is normal for this run, per series: robust centre and scale of its first clean records, frozen.

    centre = median of 20 values
    scale  = max(1.4826 * median |x - centre|, 1 % of |centre|, 1e-9)

The first 5 records of the run (and of a declared new phase) are warm-up and left out; so are values that are not
finite, and values at which a rule breached. Since a breach is known only after the record was evaluated, a value counts
from the next record on. The floor keeps a series that hardly moves from turning every move into many sigmas.

A recorded clean baseline (`collector.recorded`) of the same series wins; the run learns its own all the same, for the day on
which the recorded one is taken away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, Final

from collector.model import Baseline
from collector.samples import INF
from collector.signals.protocol import Row, RunState

SKIP: Final = 5
COUNT: Final = 20
RELATIVE_FLOOR: Final = 0.01
ABSOLUTE_FLOOR: Final = 1e-9
MAD_TO_SIGMA: Final = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""


class Baselines:
    """The baselines of one run's series, and those that are still being learnt."""

    def __init__(self, skip: int = SKIP, count: int = COUNT) -> None:
        self.frozen: dict[str, Baseline] = {}
        """What the run has learnt itself."""
        self.in_force: dict[str, Baseline] = {}
        """By series key: the recorded one, else the run's own."""
        self._recorded: Mapping[str, Baseline] = {}
        self._skip = skip
        self._count = count
        self._learning: dict[str, list[float]] = {}
        self._tentative: dict[str, float] = {}
        """Values of the row applied last: they count unless a rule says that they breach."""
        self._known = 0
        self._phase = 0
        """Record number at which the present phase began."""

    def update(self, run: RunState, row: Row) -> None:
        """Learn from the row; after `COUNT` clean values of every series there is nothing left to do."""
        if self._tentative:
            self._commit()
        series = run.series
        if len(series) != self._known:
            # Only so can there be one that is neither learnt nor being learnt; series are never renamed.
            for key in series:
                if key not in self.frozen and key not in self._learning:
                    self._begin(key)
            self._known = len(series)
        if not self._learning or run.record - self._phase <= self._skip:
            return
        arrived, step = run.arrived, run.step
        for key in self._learning:
            if key in arrived:
                value = series[key].at(step)
                if value is not None and isfinite(value):
                    self._tentative[key] = value

    def note(self, record: int, key: str, value: float) -> None:
        """One value that came after the row's signals (a `record:` rule); learnt like the others."""
        if key not in self.frozen and record - self._phase > self._skip and isfinite(value):
            if key not in self._learning:
                self._begin(key)
            self._tentative[key] = value

    def _begin(self, key: str) -> None:
        self._learning[key] = []
        if key in self._recorded:
            self.in_force[key] = self._recorded[key]

    def _commit(self) -> None:
        for key, value in self._tentative.items():
            values = self._learning[key]
            values.append(value)
            if len(values) >= self._count:
                self.frozen[key] = learnt = baseline_of(values)
                if key not in self._recorded:
                    self.in_force[key] = learnt
                del self._learning[key]
        self._tentative = {}

    def breaching(self, keys: Collection[str]) -> None:
        """These series breach at the row applied last: their values do not count."""
        for key in keys:
            self._tentative.pop(key, None)

    def prefer(self, recorded: Mapping[str, Baseline]) -> None:
        """These recorded baselines win from now on; others that were preferred before do not any more."""
        self._recorded = recorded
        self._settle()

    def _settle(self) -> None:
        self.in_force.clear()  # in place: the run shows this very mapping
        self.in_force.update(self.frozen)
        # Of series that the run has: who finds a baseline may count on its series.
        known = (key for key in self._recorded if key in self.frozen or key in self._learning)
        self.in_force.update((key, self._recorded[key]) for key in known)

    def restart(self, record: int) -> None:
        """A new phase was declared: forget everything that was learnt and learn again, after a new warm-up."""
        self.frozen.clear()
        self._settle()
        self._learning.clear()
        self._tentative.clear()
        self._known = 0
        self._phase = record

    def dump(self) -> Any:
        frozen = [[key, b.centre, b.scale, b.count] for key, b in self.frozen.items()]
        return [frozen, self._learning, self._tentative, self._known, self._phase]

    def load(self, state: Any) -> None:
        frozen, self._learning, self._tentative, self._known, self._phase = state
        self.frozen = {key: Baseline(centre, scale, count) for key, centre, scale, count in frozen}
        self._settle()


def baseline_of(values: Collection[float]) -> Baseline:
    """Robust centre and scale of finite values, at least one."""
    centre, scale = centre_and_scale(sorted(values))
    return Baseline(centre, scale, len(values))


def centre_and_scale(ordered: list[float]) -> tuple[float, float]:
    """Median and 1.4826 MAD, with the floors and never 0, of finite values in order, at least one.

    No second sort: the half of the values that is nearest to the centre are neighbours. Their window is moved from a quarter
    on until it is the nearest one, a few steps. All in one function, as a record asks for several.
    """
    count = len(ordered)
    middle = count // 2
    odd = count % 2
    centre = ordered[middle] if odd else ordered[middle - 1] / 2.0 + ordered[middle] / 2.0
    near = middle + odd
    start = count // 4
    while start > 0 and centre - ordered[start - 1] < ordered[start + near - 1] - centre:
        start -= 1
    while start + near < count and ordered[start + near] - centre < centre - ordered[start]:
        start += 1
    left, right = centre - ordered[start], ordered[start + near - 1] - centre
    mad = left if left > right else right
    if not odd:  # the next one outside is the upper of the two middle deviations
        outer = INF if start == 0 else centre - ordered[start - 1]
        if start + near < count and ordered[start + near] - centre < outer:
            outer = ordered[start + near] - centre
        mad = mad / 2.0 + outer / 2.0
    sigma = MAD_TO_SIGMA * mad
    floor = RELATIVE_FLOOR * abs(centre)
    if sigma < floor:
        sigma = floor
    return centre, sigma if sigma > ABSOLUTE_FLOOR else ABSOLUTE_FLOOR


def median(ordered: list[float]) -> float:
    """The median of sorted values, at least one. Halves before adding, so that two huge values do not overflow."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else ordered[middle - 1] / 2.0 + ordered[middle] / 2.0

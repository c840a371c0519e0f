"""B4: how far a value stands out of the records just before it.

    ratio   = |x| / median |previous|                                  materially large
    sigmas  = (|x| - median) / max(1.4826 MAD, 1 % of the median)      statistically large
    records = spikes in a row, this one included; 0 when this one is none

over the last 20 finite values before the record (5 at least). Both must be large for a spike: on a tight series the MAD alone
cries wolf, on a wild one the ratio does. The values are magnitudes, as KL estimates may be negative. A
value that is not finite gives a ratio and sigmas that are not finite (NaN is an answer) and leaves the count as it is. A median
of 0 has no ratio: nothing is said then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any, Final

from collector.catalogue import Metric
from collector.samples import INF
from collector.series import window
from collector.signals.baseline import centre_and_scale
from collector.signals.protocol import Block, Derived, Row, RunState, Signal

WATCHED: Final = ("grad_norm", "kl_reference", "kl_old_policy", "policy_ratio_p99", "response_length_mean")
WINDOW: Final = 20
LEAST: Final = 5
RATIO: Final = 3.0
SIGMAS: Final = 6.0

METRICS: Final[tuple[Metric, ...]] = tuple(
    metric
    for name in WATCHED
    for metric in (
        Metric(f"{name}_spike_ratio", "1", f"magnitude of {name} over its median in the 20 records before"),
        Metric(f"{name}_spike_sigmas", "1", f"{name} above that median in robust standard deviations"),
        Metric(f"{name}_spike_records", "count", f"records in a row at which {name} is 3 times and 6 sigmas above that median"),
    )
)
_BLOCKS: Final = {name: Block(f"{name}_spike_ratio", f"{name}_spike_sigmas", f"{name}_spike_records") for name in WATCHED}


class _Watched:
    """One metric."""

    __slots__ = ("block", "in_a_row", "ordered")

    def __init__(self, block: Block) -> None:
        self.block: Final = block
        self.in_a_row = 0
        """Spikes in a row; everything else follows from the stored samples."""
        self.ordered: list[float] | None = None
        """The magnitudes of its last `WINDOW` values in order, all finite. A cache of what the series holds, so that a record
        costs one insertion and one removal instead of a sort; dropped when anything but a newest value changes it."""


class Spikes(Signal):
    """The watched metrics of one run."""

    def __init__(self) -> None:
        self._watched: Final = {name: _Watched(block) for name, block in _BLOCKS.items()}

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        """Compare each watched metric that the row brings with what was before it."""
        arrived = run.arrived
        if row.late or not row.fresh:
            for name, watched in self._watched.items():
                if name in row.present:  # what was overwritten or put in between is in the window now
                    watched.ordered = None
        newest, series = not row.late, run.series
        for name, watched in self._watched.items():
            if name in arrived:
                found = self._newest(series[name].values, watched) if newest else self._late(run, name)
                if found is not None:
                    derived.blocks.append(watched.block)
                    derived.values += found

    def _newest(self, values: array[float], watched: _Watched) -> tuple[float, float, int] | None:
        magnitude = abs(values[-1])
        ordered = watched.ordered
        if ordered is None:
            ordered = watched.ordered = magnitudes(values[-WINDOW - 1 : -1])
        count = len(ordered)
        middle, scale = centre_and_scale(ordered) if count >= LEAST else (0.0, 1.0)
        if magnitude < INF:
            # The window of the next record, if all in it are finite: this one with one value in and at most one out.
            if count == WINDOW:
                del ordered[bisect_left(ordered, abs(values[-WINDOW - 1]))]
            elif count != len(values) - 1:
                watched.ordered = None
            insort(ordered, magnitude)
        else:  # an infinity or a NaN
            watched.ordered = None
        if middle == 0.0:
            return None
        ratio, sigmas = magnitude / middle, (magnitude - middle) / scale
        if magnitude < INF:
            watched.in_a_row = watched.in_a_row + 1 if ratio >= RATIO and sigmas >= SIGMAS else 0
        return ratio, sigmas, watched.in_a_row

    def _late(self, run: RunState, name: str) -> tuple[float, float, int] | None:
        """A late row is judged where it belongs, and says nothing about the newest ones."""
        series = run.series[name]
        value = series.at(run.step)
        if value is None:
            return None
        found = standing_out(abs(value), magnitudes(window(series, run.step, WINDOW, offset=1)))
        if found is None:
            return None
        return found[0], found[1], int(found[0] >= RATIO and found[1] >= SIGMAS)

    def cut(self, step: int) -> None:
        self.load({})

    def phase_changed(self, changed: Collection[str]) -> None:
        """A declared change explains the next jump no better than an undeclared one: the window forgets by itself."""

    def breaching(self, keys: Collection[str]) -> None:
        """The median of the window bears spikes; nothing is learnt here."""

    def dump(self) -> Any:
        return {name: watched.in_a_row for name, watched in self._watched.items() if watched.in_a_row}

    def load(self, state: Any) -> None:
        for name, watched in self._watched.items():
            watched.in_a_row = state.get(name, 0)
            watched.ordered = None


def magnitudes(values: Sequence[float]) -> list[float]:
    """The finite ones of some values, as magnitudes in order."""
    return sorted([abs(x) for x in values if isfinite(x)])


def standing_out(magnitude: float, ordered: list[float]) -> tuple[float, float] | None:
    """(ratio, sigmas) of a magnitude against earlier ones in order; None when they are too few or their median is 0."""
    if len(ordered) < LEAST:
        return None
    middle, scale = centre_and_scale(ordered)
    return None if middle == 0.0 else (magnitude / middle, (magnitude - middle) / scale)

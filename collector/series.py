"""Bounded windows: the last samples of one metric, in two flat arrays.

Windows are exact: they hold the samples themselves and no running sums, which drift and never forget a huge value. Whoever
needs a statistic computes it from the slice it looks at.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from collector.model import Provenance
from collector.samples import SeriesView

SLACK: Final = 8
"""A series is trimmed when it is longer than depth + depth / SLACK: 1.125 times the depth at most, and O(1) per append."""


class Series(SeriesView):
    """A series as the collector keeps it."""

    __slots__ = ("alone", "shared")

    def __init__(self, provenance: Provenance, steps: array[int] | None = None, values: array[float] | None = None) -> None:
        # `values` keeps its identity for the life of the series: the hot path and the exporter hold on to it.
        super().__init__(provenance, array("q") if steps is None else steps, array("d") if values is None else values)
        self.shared = False
        """`steps` is that of other series too (collector.columns): it changes with all of them or not at all."""
        self.alone = False
        """It gets samples by itself and shares no more."""

    def __len__(self) -> int:
        return len(self.steps)

    def put(self, step: int, value: float) -> bool:
        """Add or overwrite the sample of a step, at whatever place; True when the step had none before."""
        steps = self.steps
        if not steps or step > steps[-1]:
            steps.append(step)
            self.values.append(value)
            return True
        at = bisect_left(steps, step)
        if at < len(steps) and steps[at] == step:
            self.values[at] = value
            return False
        steps.insert(at, step)
        self.values.insert(at, value)
        return True

    def at(self, step: int) -> float | None:
        """The sample of exactly this step."""
        steps = self.steps
        if not steps:
            return None
        if steps[-1] == step:
            return self.values[-1]
        place = bisect_left(steps, step)
        return self.values[place] if place < len(steps) and steps[place] == step else None

    def end(self, step: int) -> int:
        """Index behind the last sample at or before `step`: a window that ends there is `values[:end]`."""
        steps = self.steps
        if not steps or steps[-1] <= step:
            return len(steps)
        return bisect_right(steps, step)

    def cut(self, step: int) -> None:
        """Forget the samples of `step` and later."""
        at = bisect_left(self.steps, step)
        del self.steps[at:]
        del self.values[at:]

    def trim(self, depth: int) -> None:
        """Keep the last `depth` samples. Of series that share their steps, all are to be trimmed, as they are to be cut."""
        if (excess := len(self.values) - depth) > 0:
            del self.values[:excess]
            if len(self.steps) > depth:
                del self.steps[:-depth]


def window(series: Series, step: int, count: int, offset: int = 0) -> array[float]:
    """The last `count` values at or before `step`, without the newest `offset` of them; shorter at the start of a run."""
    end = series.end(step) - offset
    return series.values[max(0, end - count) : end] if end > 0 else array("d")

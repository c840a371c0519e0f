"""The recorded values of the record that is being computed, which the run itself does not have yet."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from collector.model import Provenance, SeriesView


class _Extended:
    """A series up to the current step, with one more sample."""

    __slots__ = ("provenance", "steps", "values")

    def __init__(self, base: SeriesView | None, step: int, value: float) -> None:
        self.provenance = Provenance.RECORDED
        count = 0 if base is None else bisect_right(base.steps, step)
        self.steps: array[int] = array("q") if base is None else base.steps[:count]
        self.values: array[float] = array("d") if base is None else base.values[:count]
        self.steps.append(step)
        self.values.append(value)


def extended(base: SeriesView | None, step: int, value: float) -> SeriesView:
    """What a record rule sees of another one: its series (None if it has none yet) with a value of the current step."""
    return _Extended(base, step, value)

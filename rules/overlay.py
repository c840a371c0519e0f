"""The recorded values of the record that is being computed, which the run itself does not have yet."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from collector.model import Provenance, SeriesView


def extended(base: SeriesView | None, step: int, value: float) -> SeriesView:
    """What a record rule sees of another one: its series (None if it has none yet) with a value of the current step."""
    count = 0 if base is None else bisect_right(base.steps, step)
    steps = array("q") if base is None else base.steps[:count]
    values = array("d") if base is None else base.values[:count]
    steps.append(step)
    values.append(value)
    return SeriesView(Provenance.RECORDED, steps, values)

"""Series that get their samples together: one append of the step for all of them, and no Python loop over their values.

Most series of a run have a sample at every record, so their steps are the same array over and over. They share one: half the
memory, half the work. A shared array is never changed for one of its series alone:

    together      `join` finds series with equal steps, now and then; after it whoever holds `Columns` makes them anew
    apart         `Columns` of some of the sharers give these an array of their own before the first sample is appended
    alone         `part` does so for one series that gets a sample by itself, a late one say; it stays alone
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from collector.series import Series

_append: Final = array.append


class Columns:
    """Some series of a run, by key: each gets its newest sample by `append` and by nothing else while this is used."""

    __slots__ = ("_steps", "_values", "forked", "keys")

    def __init__(self, chosen: Mapping[str, Series], every: Mapping[str, Series]) -> None:
        """`every` are all series of the run: those that share an array of steps with the chosen ones keep it."""
        self.keys = frozenset(chosen)
        self._values = tuple([series.values for series in chosen.values()])
        others = {id(series.steps) for key, series in every.items() if series.shared and key not in self.keys}
        copies: dict[int, array[int]] = {}
        for series in chosen.values():
            if series.shared and (place := id(series.steps)) in others:
                series.steps = copies.setdefault(place, series.steps[:])
        self.forked = bool(copies)
        """Some array of steps is another one now: other columns that hold it are void."""
        self._steps = tuple({id(series.steps): series.steps for series in chosen.values()}.values())

    def append(self, step: int, values: Iterable[float]) -> None:
        """One sample for each, in the order in which they were chosen; `step` is above all that they have."""
        for steps in self._steps:
            steps.append(step)
        deque(map(_append, self._values, values), 0)


def part(series: Series) -> bool:
    """Before a sample of this series alone: whether it had to be parted, so that columns that hold it are void."""
    if not series.shared:
        return False
    series.steps = series.steps[:]
    series.shared = False
    series.alone = True
    return True


def join(every: Mapping[str, Series]) -> bool:
    """Let series with equal steps share them; whether any began to, so that columns that hold it are void."""
    single = [series for series in every.values() if not series.shared and not series.alone]
    if not single:
        return False
    known = {id(series.steps): series for series in every.values() if series.shared}
    by_steps = {series.steps.tobytes(): series for series in known.values()}
    joined = False
    for series in single:
        first = by_steps.setdefault(series.steps.tobytes(), series)
        if first is not series:
            series.steps = first.steps
            series.shared = first.shared = joined = True
    return joined

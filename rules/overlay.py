"""A run's series with the recorded values of the record that is being computed, which the run itself does not have yet."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping

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


class Overlay(Mapping[str, SeriesView]):
    """What a record rule sees that reads another record rule."""

    def __init__(self, base: Mapping[str, SeriesView], step: int) -> None:
        self._base = base
        self._step = step
        self._added: dict[str, SeriesView] = {}

    def add(self, key: str, value: float) -> None:
        """A value of the current step."""
        self._added[key] = _Extended(self._base.get(key), self._step, value)

    def __getitem__(self, key: str) -> SeriesView:
        return self._added[key] if key in self._added else self._base[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._added
        yield from (key for key in self._base if key not in self._added)

    def __len__(self) -> int:
        return sum(1 for _ in self)

"""The series of one run: how a row's values get into them.

The hot path is a new step whose keys were seen before and whose values are numbers: the appends of the series are kept per set
of keys and called in one go, without a Python loop. Everything else (objects, nulls, text, alternatives, merged and late rows)
takes the general path through `Reading`s and `Series.put`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from math import isfinite
from operator import call, itemgetter
from typing import Any, Final

from collector.model import Provenance
from collector.names import Entry, Names, Plan, Reading, Refused, read, read_entry, read_others
from collector.series import Series

MAX_BOUND: Final = 16
"""Sets of keys that are kept bound to their series; a trainer's rows have a few."""

_NUMBERS: Final = frozenset({float, int})
_OWN: Final = (Provenance.SIGNAL, Provenance.RECORDED)


class Fold:
    """What one row brings: collected while it is read."""

    __slots__ = ("arrived", "changed", "finite", "nulls", "over_limit", "refused")

    def __init__(self) -> None:
        self.arrived: set[str] = set()
        """Series that had no sample at the step before."""
        self.changed = False
        """Some sample is new or another one."""
        self.finite = True
        self.nulls: list[str] = []
        self.over_limit = 0
        self.refused: list[Refused] = []


class _Bound:
    """A plan, and for those of its plain keys that have a series the appends of it."""

    __slots__ = ("fast_keys", "keys", "plan", "slow_keys", "step_appends", "take", "value_appends")

    def __init__(self, plan: Plan, all_series: Mapping[str, Series]) -> None:
        self.plan = plan
        fast: list[tuple[str, Series]] = []
        self.slow_keys: list[tuple[str, Entry]] = []
        fed = []
        for key, entry in zip(plan.keys, plan.plain, strict=True):
            if entry is None:
                continue
            series = all_series.get(entry.series) if entry.label is None else None
            if series is None:
                self.slow_keys.append((key, entry))  # no series yet, or an object of values
            else:
                fast.append((key, series))
                fed.append(entry.series)
        self.fast_keys = tuple(key for key, _ in fast)
        self.keys = frozenset(fed)
        """Series behind the appends."""
        self.step_appends: tuple[Callable[[int], None], ...] = tuple(series.steps.append for _, series in fast)
        self.value_appends: tuple[Callable[[float], None], ...] = tuple(series.values.append for _, series in fast)
        self.take = _taker(self.fast_keys)


class Book:
    """All series of a run by key; the members of labelled metrics; the limit on a trainer's series."""

    def __init__(self, max_series: int) -> None:
        self.max_series = max_series
        self.series: dict[str, Series] = {}
        self.members: dict[str, list[str]] = {}
        self.trainer_series = 0
        self._bound: dict[tuple[str, ...], _Bound] = {}
        self._slots: dict[str, tuple[Callable[[int], None], Callable[[float], None]]] = {}
        """Appends of the signals' series."""

    def fold_new(
        self, names: Names, metrics: Mapping[str, Any], config: Mapping[str, Any], step: int, fold: Fold
    ) -> frozenset[str]:
        """A row of a step that no series has yet. Returns the series that it feeds."""
        keys = tuple(metrics)
        bound = self._bound.get(keys)
        if bound is None:
            bound = self._bind(keys, names)
        fold.changed = True
        taken = _numbers(bound.take(metrics))
        if taken is None:
            return self.fold_any(names, metrics, config, step, fold)  # something among them is no number this time
        deque(map(call, bound.step_appends, repeat(step)), 0)
        deque(map(call, bound.value_appends, taken), 0)
        fold.finite = isfinite(sum(taken))  # a sum that overflows only costs a look at each value
        fold.arrived = set(bound.keys)
        plan = bound.plan
        if not bound.slow_keys and not plan.others and not plan.computed and not plan.refused:
            return bound.keys
        fold.refused.extend(Refused(key, reason) for key, reason in plan.refused)
        known = len(self.series)
        for _, entry in bound.slow_keys:
            self._take(read_entry(entry, metrics), step, fold)
        self._take(read_others(plan, metrics, config), step, fold)
        if len(self.series) != known:
            del self._bound[keys]  # bound anew at the next row, with the series that exist now
        return frozenset(fold.arrived)

    def fold_any(
        self, names: Names, metrics: Mapping[str, Any], config: Mapping[str, Any], step: int, fold: Fold
    ) -> frozenset[str]:
        """The general path: any row, at any place. Returns the series that it feeds."""
        return self._take(read(names.plan(tuple(metrics)), metrics, config), step, fold)

    def emit(self, emissions: Sequence[tuple[str, float, Provenance]], step: int, newest: bool, arrived: set[str]) -> None:
        """Values of signals. `newest`: their series have no sample at the step or later ones."""
        slots = self._slots
        for name, value, provenance in emissions:
            slot = slots.get(name)
            if slot is not None and newest and provenance is Provenance.SIGNAL:
                slot[0](step)
                slot[1](value)
                arrived.add(name)
                continue
            series = self.series.get(name)
            if series is None:
                series = self.create(name, name, provenance)
            if series.put(step, value):
                arrived.add(name)
            series.provenance = provenance
            if provenance is Provenance.SIGNAL:
                slots[name] = (series.steps.append, series.values.append)
            else:
                slots.pop(name, None)

    def record(self, key: str, step: int, value: float) -> None:
        """The value of a `record:` rule."""
        series = self.series.get(key)
        if series is None:
            series = self.create(key, key, Provenance.RECORDED)
        series.put(step, value)

    def create(self, key: str, name: str, provenance: Provenance) -> Series:
        """A series that does not exist yet; it is to get a sample at once, as no series is ever empty."""
        series = self.series[key] = Series(provenance)
        if provenance not in _OWN:
            self.trainer_series += 1
        if key != name:
            self.members.setdefault(name, []).append(key)
        return series

    def unbind(self) -> None:
        """The vocabulary is another one: the same keys may mean other series."""
        self._bound.clear()

    def trim(self, depth: int) -> None:
        """Keep the last `depth` samples of each series."""
        for series in self.series.values():
            series.trim(depth)

    def cut(self, step: int) -> None:
        """Forget the samples of `step` and later; series without any are gone until they come again."""
        for series in self.series.values():
            series.cut(step)
        self.series = {key: series for key, series in self.series.items() if series.steps}
        self.members = {name: kept for name, keys in self.members.items() if (kept := [k for k in keys if k in self.series])}
        self._count()
        self._bound.clear()
        self._slots.clear()

    def dump(self) -> Any:
        series = [[key, str(s.provenance), s.steps.tobytes(), s.values.tobytes()] for key, s in self.series.items()]
        return [series, self.members]

    def load(self, state: Any) -> None:
        series, self.members = state
        for key, provenance, steps, values in series:
            self.series[key] = Series(Provenance(provenance), array("q", steps), array("d", values))
        self._count()

    def _count(self) -> None:
        # A signal's proxy is told from a trainer's by its series having been created as a signal: names are reserved.
        self.trainer_series = sum(series.provenance not in _OWN for series in self.series.values())

    def _bind(self, keys: tuple[str, ...], names: Names) -> _Bound:
        if len(self._bound) >= MAX_BOUND:
            self._bound.clear()
        bound = self._bound[keys] = _Bound(names.plan(keys), self.series)
        return bound

    def _take(self, readings: Iterable[Reading | Refused], step: int, fold: Fold) -> frozenset[str]:
        fed = set()
        for reading in readings:
            if isinstance(reading, Refused):
                fold.refused.append(reading)
                continue
            key, name, provenance, value = reading
            if value is None:
                fold.nulls.append(key)
                continue
            series = self.series.get(key)
            if series is None:
                if self.trainer_series >= self.max_series:
                    fold.over_limit += 1
                    continue
                series = self.create(key, name, provenance)
            elif series.provenance is not provenance:
                series.provenance = provenance  # another of its sources gave the value
            fed.add(key)
            if not isfinite(value):
                fold.finite = False
            before = series.at(step)
            if before is None:
                fold.arrived.add(key)
            elif before == value or (before != before and value != value):
                continue
            fold.changed = True
            series.put(step, value)
        return frozenset(fed)


def _numbers(values: tuple[Any, ...]) -> Sequence[float] | None:
    """The values, if each of them is a number that a float can hold."""
    types = set(map(type, values))
    if types <= _NUMBERS:
        if int not in types:
            return values
        try:
            return list(map(float, values))
        except OverflowError:
            return None
    return None


def _taker(keys: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Looks several keys up at once; `itemgetter` alone gives no tuple for one key and does not exist for none."""
    if len(keys) > 1:
        return itemgetter(*keys)
    if keys:
        only = keys[0]
        return lambda metrics: (metrics[only],)
    return lambda metrics: ()

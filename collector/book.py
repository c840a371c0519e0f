"""The series of one run: how a row's values get into them.

The hot path is a new step whose keys were seen before and whose values are numbers: the appends of the series are kept per set
of keys and called in one go, without a Python loop. Everything else (objects, nulls, text, alternatives, merged and late rows)
takes the general path through `Reading`s and `Series.put`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from operator import itemgetter
from typing import Any, Final

from collector.columns import Columns, join, part
from collector.model import Provenance
from collector.names import Entry, Names, Plan, Reading, Refused, read, read_entry, read_others
from collector.series import Series
from collector.signals.protocol import Block, Derived

MAX_BOUND: Final = 16
"""Sets of keys that are kept bound to their series; a trainer's rows have a few."""

_OWN: Final = (Provenance.SIGNAL, Provenance.RECORDED)


class Fold:
    """What one row brings: collected while it is read."""

    __slots__ = ("arrived", "changed", "finite", "nulls", "over_limit", "refused")

    def __init__(self) -> None:
        self.arrived: frozenset[str] = frozenset()
        """Series that had no sample at the step before."""
        self.changed = False
        """Some sample is new or another one."""
        self.finite = True
        self.nulls: list[str] = []
        self.over_limit = 0
        self.refused: list[Refused] = []


class _Members:
    """The series behind an object of values whose labels were seen before."""

    __slots__ = ("keys", "provenance", "series")

    def __init__(self, pairs: Sequence[tuple[str, Series]], provenance: Provenance) -> None:
        self.keys = frozenset(key for key, _ in pairs)
        self.series = tuple(series for _, series in pairs)
        self.provenance = provenance


class _Bound:
    """A plan, and for those of its plain keys that have a series the series themselves."""

    __slots__ = ("_unions", "columns", "objects", "plan", "slow", "take")

    def __init__(self, plan: Plan, every: Mapping[str, Series]) -> None:
        self.plan = plan
        fast: dict[str, Series] = {}
        keys = []
        self.slow: list[tuple[str, Entry]] = []
        for key, entry in zip(plan.keys, plan.plain, strict=True):
            if entry is None:
                continue
            series = every.get(entry.series) if entry.label is None else None
            if series is None or entry.series in fast:
                self.slow.append((key, entry))  # an object of values, no series yet, or one that another key feeds too
            else:
                fast[entry.series] = series
                keys.append(key)
        self.columns = Columns(fast, every)
        self.take = _taker(tuple(keys))
        self.objects: dict[tuple[str, tuple[Any, ...]], _Members] = {}
        """By the key and the labels of an object."""
        self._unions: dict[tuple[_Members, ...], frozenset[str]] = {}

    def fed(self, members: list[_Members]) -> frozenset[str]:
        """The series of the columns and of these objects; the same set for the same ones."""
        if not members:
            return self.columns.keys
        key = tuple(members)
        union = self._unions.get(key)
        if union is None:
            if len(self._unions) >= MAX_BOUND:
                self._unions.clear()
            union = self._unions[key] = self.columns.keys.union(*(each.keys for each in members))
        return union


class _Writers:
    """Blocks of the signals, bound to their series."""

    __slots__ = ("_arrived", "_union", "columns")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._arrived: frozenset[str] = frozenset()
        self._union = columns.keys

    def joined(self, arrived: frozenset[str]) -> frozenset[str]:
        """With the series that came before; the same set as long as it is called with the same one."""
        if arrived is not self._arrived:
            self._arrived, self._union = arrived, arrived | self.columns.keys
        return self._union


class Book:
    """All series of a run by key; the members of labelled metrics; the limit on a trainer's series."""

    def __init__(self, max_series: int) -> None:
        self.max_series = max_series
        # Both mappings stay the same objects for the life of the run, which shows them.
        self.series: dict[str, Series] = {}
        self.members: dict[str, list[str]] = {}
        self.trainer_series = 0
        self._bound: dict[tuple[str, ...], _Bound] = {}
        self._writers: dict[tuple[Block, ...], _Writers] = {}

    def fold_new(
        self, names: Names, metrics: Mapping[str, Any], config: Mapping[str, Any], step: int, fold: Fold
    ) -> frozenset[str]:
        """A row of a step that no series has yet. Returns the series that it feeds."""
        keys = tuple(metrics)
        bound = self._bound.get(keys)
        if bound is None:
            bound = self._bind(keys, names)
        fold.changed = True
        taken = bound.take(metrics)
        total = _total(taken)
        if total is None:
            return self.fold_any(names, metrics, config, step, fold)  # something among them is no number this time
        bound.columns.append(step, taken)
        fold.finite = isfinite(total)  # a sum that overflows only costs a look at each value
        plan = bound.plan
        if not bound.slow and not plan.others and not plan.computed and not plan.refused:
            fold.arrived = bound.columns.keys
            return fold.arrived
        fold.refused.extend(Refused(key, reason) for key, reason in plan.refused)
        known = len(self.series)
        members: list[_Members] = []
        rest: set[str] = set()
        for key, entry in bound.slow:
            if (found := self._object(bound, key, metrics[key], step, fold)) is not None:
                members.append(found)
            else:
                rest |= self._take_plain(bound, entry, metrics, step, fold)
        if plan.others or plan.computed:
            rest |= self._take(read_others(plan, metrics, config), step, fold)
        if len(self.series) != known:
            self._bound.pop(keys, None)  # bound anew at the next row, with the series that exist now
        fed = bound.fed(members)
        fold.arrived = fed if rest <= fed else fed | rest
        return fold.arrived

    def _object(self, bound: _Bound, key: str, value: Any, step: int, fold: Fold) -> _Members | None:
        """An object of numbers whose labels were seen before."""
        if type(value) is not dict or (found := bound.objects.get((key, tuple(value)))) is None:
            return None
        numbers = tuple(value.values())
        total = _total(numbers)
        if total is None:
            return None
        for series, number in zip(found.series, numbers, strict=True):
            self._put(series, step, number)
            series.provenance = found.provenance
        if not isfinite(total):
            fold.finite = False
        return found

    def _take_plain(self, bound: _Bound, entry: Entry, metrics: Mapping[str, Any], step: int, fold: Fold) -> frozenset[str]:
        """A value that the columns do not take; an object of values that have a series now is known the next time."""
        readings = list(read_entry(entry, metrics))
        fed = self._take(readings, step, fold)
        value = metrics[entry.sources[0].key]
        if type(value) is dict and len(fed) == len(value) == len(readings):
            if len(bound.objects) >= MAX_BOUND:
                bound.objects.clear()
            pairs = [(reading.series, self.series[reading.series]) for reading in readings if isinstance(reading, Reading)]
            bound.objects[entry.sources[0].key, tuple(value)] = _Members(pairs, entry.sources[0].provenance)
        return fed

    def fold_any(
        self, names: Names, metrics: Mapping[str, Any], config: Mapping[str, Any], step: int, fold: Fold
    ) -> frozenset[str]:
        """The general path: any row, at any place. Returns the series that it feeds."""
        return self._take(read(names.plan(tuple(metrics)), metrics, config), step, fold)

    def write(self, derived: Derived, step: int, newest: bool, arrived: frozenset[str]) -> frozenset[str]:
        """Values of signals. `newest`: their series have no sample at the step or later ones. Returns what has arrived with
        them: the same set as before if the same series did."""
        blocks = tuple(derived.blocks)
        if newest:
            writers = self._writers.get(blocks)
            if writers is None:
                writers = self._bind_blocks(blocks)
            writers.columns.append(step, derived.values)
            return writers.joined(arrived)
        names = [name for block in blocks for name in block.names]
        chosen = self._written(blocks)
        fresh = [name for name, value in zip(names, derived.values, strict=True) if self._put(chosen[name], step, value)]
        return arrived.union(fresh)

    def record(self, key: str, step: int, value: float) -> None:
        """The value of a `record:` rule."""
        series = self.series.get(key)
        if series is None:
            series = self.create(key, key, Provenance.RECORDED)
        self._put(series, step, value)

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
        if join(self.series):
            self._forget()

    def cut(self, step: int) -> None:
        """Forget the samples of `step` and later; series without any are gone until they come again."""
        for series in self.series.values():
            series.cut(step)
        for key in [key for key, series in self.series.items() if not series.steps]:
            del self.series[key]
        members = {name: kept for name, keys in self.members.items() if (kept := [k for k in keys if k in self.series])}
        self.members.clear()
        self.members.update(members)
        self._count()
        self._forget()

    def dump(self) -> Any:
        """Steps that several series have, as most do, are in it once: half as many bytes. Which are the same is told by what
        they are, not by who shares them just now, so that a run that was restored gives the same bytes as one that was not."""
        known: dict[bytes, int] = {}
        places: dict[int, int] = {}
        series = []
        for key, each in self.series.items():
            place = places.get(id(each.steps))
            if place is None:
                place = places[id(each.steps)] = known.setdefault(each.steps.tobytes(), len(known))
            series.append([key, str(each.provenance), place, each.values.tobytes()])
        return [list(known), series, self.members]

    def load(self, state: Any) -> None:
        known, series, members = state
        self.members.update(members)
        for key, provenance, place, values in series:
            self.series[key] = Series(Provenance(provenance), array("q", known[place]), array("d", values))
        self._count()

    def _count(self) -> None:
        # A signal's proxy is told from a trainer's by its series having been created as a signal: names are reserved.
        self.trainer_series = sum(series.provenance not in _OWN for series in self.series.values())

    def _bind(self, keys: tuple[str, ...], names: Names) -> _Bound:
        bound = _Bound(names.plan(keys), self.series)
        if bound.columns.forked or len(self._bound) >= MAX_BOUND:
            self._forget()
        self._bound[keys] = bound
        return bound

    def _bind_blocks(self, blocks: tuple[Block, ...]) -> _Writers:
        writers = _Writers(Columns(self._written(blocks), self.series))
        if writers.columns.forked or len(self._writers) >= MAX_BOUND:
            self._forget()
        self._writers[blocks] = writers
        return writers

    def _written(self, blocks: tuple[Block, ...]) -> dict[str, Series]:
        """The series of blocks, which exist from now on and are what their block says."""
        found: dict[str, Series] = {}
        for block in blocks:
            for name in block.names:
                series = self.series.get(name)
                if series is None:
                    series = self.create(name, name, block.provenance)
                elif series.provenance is not block.provenance:
                    series.provenance = block.provenance
                    self._writers.clear()  # those that say otherwise are to say so the next time
                found[name] = series
        return found

    def _put(self, series: Series, step: int, value: float) -> bool:
        """One sample of one series, at whatever place; True when the step had none before."""
        if series.shared and series.at(step) is None and part(series):
            self._forget()
        return series.put(step, value)

    def _forget(self) -> None:
        """What is bound holds arrays that are no longer those of its series."""
        self._bound.clear()
        self._writers.clear()

    def _take(self, readings: Iterable[Reading | Refused], step: int, fold: Fold) -> frozenset[str]:
        fed, fresh = set(), []
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
                fresh.append(key)
            elif before == value or (before != before and value != value):
                continue
            fold.changed = True
            self._put(series, step, value)
        fold.arrived = fold.arrived.union(fresh)
        return frozenset(fed)


def _total(values: tuple[Any, ...]) -> float | None:
    """The sum of the values, if each of them is a number that a float can hold: whatever else there is cannot be added."""
    try:
        return sum(values, 0.0)
    except (TypeError, OverflowError):
        return None


def _taker(keys: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Looks several keys up at once; `itemgetter` alone gives no tuple for one key and does not exist for none."""
    if len(keys) > 1:
        return itemgetter(*keys)
    if keys:
        only = keys[0]
        return lambda metrics: (metrics[only],)
    return lambda metrics: ()

"""From a trainer's own keys to series: canonical names with their provenance, and the rest under their own names.

`Names` answers for one vocabulary ("canonical" or a framework of the alias table). Rows of a run have the same keys again and
again, so the answer for a set of keys is a `Plan`, made once and kept; `resolve` then only reads values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from collector import catalogue
from collector.aliases import RowRule, Table, Target
from collector.conversions import Row, Scalar
from collector.model import Provenance, series_key
from tocsin import wire

CANONICAL: Final = "canonical"
MAX_PLANS: Final = 256
"""Plans kept per vocabulary; a trainer whose keys change at every step must not fill the memory."""
MAX_KEYS: Final = 20_000
_NONE: Final[frozenset[float]] = frozenset()
_ZERO: Final[frozenset[float]] = frozenset({0.0})
_FIRST: Final = -1
"""Rank of a key that is the canonical name itself: the trainer measured exactly that, so it wins over an alias."""


class Source(NamedTuple):
    """One key that can give an entry its value."""

    key: str
    provenance: Provenance
    convert: Scalar | None
    nulls: frozenset[float]
    """Numbers by which this framework says "not computed"."""


class Entry(NamedTuple):
    """One series that a row feeds; the first source with a value wins."""

    series: str
    name: str
    label: str | None
    """The metric's declared label: its value may be an object."""
    sources: tuple[Source, ...]

    @property
    def plain(self) -> bool:
        """Whether a float under the one key is the value, as it is."""
        return len(self.sources) == 1 and self.sources[0].convert is None and not self.sources[0].nulls


class RowEntry(NamedTuple):
    """One series that is computed from several keys."""

    rule: RowRule
    keys: Mapping[str, str]


class Plan(NamedTuple):
    """What to do with rows of these keys."""

    keys: tuple[str, ...]
    plain: tuple[Entry | None, ...]
    """Aligned with `keys`: the entry of a key that is nothing but that series; None when `others` or nobody reads it."""
    others: tuple[Entry, ...]
    computed: tuple[RowEntry, ...]
    refused: tuple[tuple[str, str], ...]
    """(key, reason) of keys that cannot be series at all."""


class Reading(NamedTuple):
    """One value that a row brings; None for null."""

    series: str
    name: str
    provenance: Provenance
    value: float | None


class Refused(NamedTuple):
    """A metric that was not taken, and why; the record lives."""

    key: str
    reason: str


class Names:
    """One vocabulary. Unknown vocabularies keep every key under its own name; `known` says so."""

    def __init__(self, vocabulary: str, reserved: frozenset[str] = frozenset()) -> None:
        self.vocabulary = vocabulary
        self._reserved = reserved
        self._table: Table | None = None
        self.known = True
        if vocabulary != CANONICAL:
            try:
                self._table = Table(vocabulary)
            except KeyError:
                self.known = False
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._targets: dict[str, tuple[Target, ...]] = {}

    def plan(self, keys: tuple[str, ...]) -> Plan:
        """The plan for rows of these keys, in this order."""
        plan = self._plans.get(keys)
        if plan is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[keys] = self._make(keys)
        return plan

    def _make(self, keys: tuple[str, ...]) -> Plan:
        table = self._table
        present = frozenset(keys)
        candidates: dict[tuple[str, str | None], list[tuple[int, Source]]] = {}
        refused: list[tuple[str, str]] = []
        for key in keys:
            if reason := self._refusal(key):
                refused.append((key, reason))
                continue
            if table is not None and table.normal(key) in table.constant:
                continue
            nulls = self._nulls(key)
            for target in self._targets_of(key):
                if self._belongs(target, present):
                    source = Source(key, target.provenance, target.convert, nulls)
                    candidates.setdefault((target.metric, target.label_value), []).append((target.rank, source))
        entries = {}
        for place, ranked in candidates.items():
            ranked.sort(key=lambda pair: (pair[0], pair[1].key))
            entries[place] = _canonical_entry(place, tuple(source for _, source in ranked))
        # A key that came second keeps its number too, under its own name: nothing that a trainer logs is lost.
        used = {entry.sources[0].key for entry in entries.values()}
        gone = {key for key, _ in refused}
        constant = table.constant if table is not None else frozenset()
        for key in keys:
            if key not in used and key not in gone and (table is None or table.normal(key) not in constant):
                entries[key, ""] = Entry(key, key, None, (Source(key, Provenance.RAW, None, self._nulls(key)),))
        computed: tuple[RowEntry, ...] = ()
        if table is not None:
            spelled = {table.normal(key): key for key in reversed(keys)}
            rows = (RowEntry(rule, inputs) for rule, inputs in table.row_rules(spelled))
            # A canonical name sent as such has been measured; it is not computed over.
            computed = tuple(row for row in rows if (row.rule.metric, None) not in entries)
        return _assembled(keys, list(entries.values()), computed, tuple(refused))

    def _targets_of(self, key: str) -> tuple[Target, ...]:
        found = self._targets.get(key)
        if found is None:
            if len(self._targets) >= MAX_KEYS:
                self._targets.clear()
            found = self._table.targets(key) if self._table is not None else ()
            if not found and self.known and key in catalogue.canonical():
                found = (Target(key, None, Provenance.EXACT, _FIRST, None),)
            self._targets[key] = found
        return found

    def _belongs(self, target: Target, present: frozenset[str]) -> bool:
        if self._table is None or target.rank == _FIRST:
            return True  # conditions tell apart what a framework means by a key of its own; a canonical name means one thing
        condition = self._table.condition(target.metric)
        return condition is None or condition(present)

    def _nulls(self, key: str) -> frozenset[float]:
        table = self._table
        if table is None:
            return _NONE
        normal = table.normal(key)
        sentinel = table.sentinels.get(normal)
        if sentinel is not None:
            return frozenset({sentinel})
        return _ZERO if normal in table.zero_is_null else _NONE

    def _refusal(self, key: str) -> str:
        if not key or len(key) > wire.MAX_NAME_CHARS:
            return "bad_name"
        return "reserved_name" if key in self._reserved else ""


@functools.cache
def _labels() -> Mapping[str, str | None]:
    return {name: metric.label for name, metric in catalogue.canonical().items()}


def _canonical_entry(place: tuple[str, str | None], sources: tuple[Source, ...]) -> Entry:
    metric, value = place
    label = _labels()[metric]
    if value is not None and label is not None:
        return Entry(series_key(metric, label, value), metric, None, sources)
    return Entry(metric, metric, label, sources)


def _assembled(
    keys: tuple[str, ...], entries: list[Entry], computed: tuple[RowEntry, ...], refused: tuple[tuple[str, str], ...]
) -> Plan:
    uses: dict[str, int] = {}
    for entry in entries:
        for source in entry.sources:
            uses[source.key] = uses.get(source.key, 0) + 1
    plain: dict[str, Entry] = {}
    others: list[Entry] = []
    for entry in entries:
        key = entry.sources[0].key
        if entry.plain and uses[key] == 1:
            plain[key] = entry
        else:
            others.append(entry)
    return Plan(keys, tuple(plain.get(key) for key in keys), tuple(others), computed, refused)


def read(plan: Plan, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Reading | Refused]:
    """Everything a row brings, without any short cut: the plain entries too."""
    for key, reason in plan.refused:
        yield Refused(key, reason)
    for entry in plan.plain:
        if entry is not None:
            yield from read_entry(entry, metrics)
    yield from read_others(plan, metrics, config)


def read_others(plan: Plan, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Reading | Refused]:
    """What is not plain: alternatives, conversions, nulls in disguise, quantities from several keys."""
    for entry in plan.others:
        yield from read_entry(entry, metrics)
    for rule, keys in plan.computed:
        try:
            value = rule.compute(Row(metrics, keys, config))
        except (ValueError, OverflowError, TypeError) as error:
            yield Refused(rule.metric, f"not_a_number: {error}")
            continue
        if value is not None:
            yield Reading(rule.metric, rule.metric, rule.provenance, value)


def read_entry(entry: Entry, metrics: Mapping[str, Any]) -> Iterator[Reading | Refused]:
    """The value of one entry: of its first source that has one."""
    null = False
    for source in entry.sources:
        raw = metrics[source.key]
        if type(raw) is dict:
            yield from _read_object(entry, source, raw)
            return
        try:
            value = wire.metric_value(raw) if source.convert is None else source.convert(raw)
        except (ValueError, OverflowError) as error:
            yield Refused(source.key, f"not_a_number: {error}"[: wire.MAX_NAME_CHARS])
            continue
        if value is None or value in source.nulls:
            null = True
            continue
        yield Reading(entry.series, entry.name, source.provenance, value)
        return
    if null:
        yield Reading(entry.series, entry.name, entry.sources[0].provenance, None)


def _read_object(entry: Entry, source: Source, values: Mapping[Any, Any]) -> Iterator[Reading | Refused]:
    """An object of values: by the metric's declared label, or as a trainer's own nested key."""
    raw = source.provenance is Provenance.RAW
    if entry.label is None and not raw:
        yield Refused(source.key, "unexpected_object")
        return
    for label_value, item in values.items():
        if not isinstance(label_value, str) or len(label_value) > wire.MAX_NAME_CHARS:
            yield Refused(source.key, "bad_label")
            continue
        series = f"{entry.series}/{label_value}" if entry.label is None else series_key(entry.name, entry.label, label_value)
        try:
            value = wire.metric_value(item) if source.convert is None else source.convert(item)
        except (ValueError, OverflowError) as error:
            yield Refused(series, f"not_a_number: {error}"[: wire.MAX_NAME_CHARS])
            continue
        yield Reading(series, series if raw else entry.name, source.provenance, None if value in source.nulls else value)


class Vocabularies:
    """The vocabularies in use, each compiled at its first record. Shared by all runs of a collector.

    `reserved` are the names of the collector's own signals: a trainer may not write them.
    """

    def __init__(self, reserved: frozenset[str] = frozenset(), max_unknown: int = 64) -> None:
        self._reserved = reserved
        self._max_unknown = max_unknown
        self._names: dict[str, Names] = {}

    def of(self, vocabulary: str) -> Names:
        """The vocabulary of a record's `names`."""
        names = self._names.get(vocabulary)
        if names is None:
            names = Names(vocabulary, self._reserved)
            if names.known or len(self._names) < self._max_unknown:
                self._names[vocabulary] = names
        return names

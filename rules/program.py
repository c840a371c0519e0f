"""A bundle, compiled: a tree of objects per rule, and which rules a series calls for.

Rules are numbered in an order in which each comes after the alerts it asks about, so one pass per record is enough.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from collector.model import AlertShown, series_key
from rules.bundle import AlertRule, Bundle, OnGap, OnNonFinite, RecordRule
from rules.compile import Compiler
from rules.conditions import Condition
from rules.operands import Scope, Uses
from rules.quantities import Quantity
from rules.run_states import StateKey
from rules.state import Timing
from rules.syntax import Node, render
from rules.timing import Domain

MAX_INSTANCES: Final = 100
"""Instances of one rule on one run (label values); beyond that the first ones are kept and the rule says so."""

_MAX_ROWS: Final = 5_000
"""Different sets of keys that are remembered; the table is only a cache."""


@dataclass(frozen=True, slots=True)
class AlertProgram:
    """An alert rule, ready to run."""

    rule: AlertRule
    order: int
    condition: Condition
    leave: Condition | None
    timing: Timing
    inputs: tuple[str, ...]
    """What calls for an evaluation: bare names and series keys."""
    watched: tuple[str, ...]
    """The metrics behind the inputs, with recorded names replaced by what they are computed from."""
    bare: tuple[str, ...]
    """Names of metrics without label; where one has members the rule is fanned out."""
    recorded: tuple[str, ...]
    """Names of record rules that it reads."""
    clocked: bool
    every_row: bool
    guarded: bool
    """Has a warm-up or asks for exact input."""
    gaps: bool
    """Judges records that bring nothing: `on_gap` is not `hold`."""
    remembers: bool
    """The step that was judged last is part of its state: it judges gaps, or counts verdicts while it fires."""
    several: bool
    """More than one input, so that a later row of a step can complete it."""
    plain: bool
    """None of the above that has to be asked before its condition: not judged at every row, no guard, no gaps."""
    breach_on_non_finite: bool
    variables: Mapping[str, float]
    meaning: int
    """Another number when the condition means something else: its expression, the record rules that it reads, the variables in
    them. Names, texts, severity and spans are no part of it."""
    shown: AlertShown


@dataclass(frozen=True, slots=True)
class RecordProgram:
    """A record rule, ready to run."""

    rule: RecordRule
    quantity: Quantity
    inputs: tuple[str, ...]
    bare: tuple[str, ...]
    recorded: tuple[str, ...]
    alone: tuple[tuple[str, None], ...]
    """What it writes where none of its metrics has a label: its name, without fan-out."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A rule on one set of own labels."""

    key: StateKey
    labels: Mapping[str, str]
    fan: Mapping[str, str] | None
    """Series key by bare name; None when the rule is not fanned out."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What rows with the same series call for; one object for all of them, so that a run can keep its instances by it."""

    alerts: tuple[AlertProgram, ...]
    """In the order of the bundle's program."""
    brought: frozenset[int]
    """Numbers of the alerts of which an input came; the others are judged at every row, or for the gap before it."""


@dataclass(slots=True)
class Program:
    """All rules of a bundle."""

    alerts: tuple[AlertProgram, ...]
    records: tuple[RecordProgram, ...]
    always: tuple[int, ...]
    """Alerts that are candidates at every row: no inputs, or gaps to judge."""
    clocked: tuple[AlertProgram, ...]
    """Alerts that ask for `silence`."""
    chained: bool
    """Some record rule reads another one."""
    by_id: Mapping[str, AlertProgram]
    _by_name: Mapping[str, tuple[int, ...]]
    _names: frozenset[str]
    """The names in `_by_name`: most series of a row are none of them."""
    _rows: dict[Collection[str], Row] = field(default_factory=dict)

    def row(self, arrived: Collection[str], members: Mapping[str, object]) -> Row:
        """What a row with these series calls for; `members` are the run's labelled metrics."""
        # A trainer logs the same keys again and again. Only keys with a label are not found by their whole name.
        keys = self._names.intersection(arrived) if self._names.isdisjoint(members) else tuple(arrived)
        return self._rows.get(keys) or self._new_row(keys)

    def _new_row(self, keys: Collection[str]) -> Row:
        brought = {number for key in keys for number in self._route(key)}
        if len(self._rows) >= _MAX_ROWS:
            self._rows.clear()
        numbers = sorted(brought.union(self.always))
        row = self._rows[keys] = Row(tuple(self.alerts[number] for number in numbers), frozenset(brought))
        return row

    def _route(self, key: str) -> tuple[int, ...]:
        name, brace, _ = key.partition("{")
        numbers = self._by_name.get(key, ())
        return (*numbers, *self._by_name.get(name, ())) if brace else numbers


def build(bundle: Bundle) -> Program:
    """The compiled form of a bundle. The bundle was checked by the loader, so no expression has an error."""
    records, sources, meanings = _record_programs(bundle)
    alerts = _alert_programs(bundle, sources, meanings)
    by_name: dict[str, dict[int, None]] = {}
    for program in alerts:
        for name in (*program.inputs, *program.watched):
            by_name.setdefault(name, {})[program.order] = None
    return Program(
        alerts=alerts,
        records=records,
        always=tuple(program.order for program in alerts if program.every_row or program.gaps),
        clocked=tuple(program for program in alerts if program.clocked),
        chained=any(program.recorded for program in records),
        by_id={program.rule.id: program for program in alerts},
        _by_name={name: tuple(numbers) for name, numbers in by_name.items()},
        _names=frozenset(by_name),
    )


def _alert_programs(
    bundle: Bundle, sources: Mapping[str, Sequence[str]], meanings: Mapping[str, str]
) -> tuple[AlertProgram, ...]:
    ids = {rule.name: rule.id for rule in bundle.alerts}
    values = {group.name: group.values for group in bundle.groups}
    rules = {rule.id: rule for rule in bundle.alerts}
    programs = []
    for order, rule_id in enumerate(bundle.alert_order):
        rule = rules[rule_id]
        compiler = Compiler(Scope(values[rule.group], ids))
        condition = _compiled(compiler, rule.node)
        meaning = _meaning(rule.node, compiler.uses, values[rule.group], meanings)
        leave = _compiled(compiler, rule.leave_node) if rule.leave_node is not None else None
        uses = compiler.uses
        every_row = not uses.inputs or uses.clocked
        guarded = rule.warmup > 0 or bool(rule.requires_exact)
        programs.append(
            AlertProgram(
                rule=rule,
                order=order,
                condition=condition,
                leave=leave,
                timing=Timing(rule.hold, rule.keep),
                inputs=tuple(uses.inputs),
                watched=_expand(uses.inputs, sources),
                bare=_bare(_expand((*uses.inputs, *uses.mentions, *rule.requires_exact), sources)),
                recorded=tuple(name for name in (*uses.inputs, *uses.mentions) if name in sources),
                clocked=uses.clocked,
                every_row=every_row,
                guarded=guarded,
                gaps=rule.on_gap is not OnGap.HOLD,
                remembers=rule.on_gap is not OnGap.HOLD or rule.hold.domain is Domain.M_OF_N,
                several=len(uses.inputs) > 1,
                plain=not guarded and not every_row and rule.on_gap is OnGap.HOLD,
                breach_on_non_finite=rule.on_non_finite is OnNonFinite.BREACH,
                variables=values[rule.group],
                meaning=zlib.crc32(meaning.encode()) or 1,
                shown=AlertShown(rule.name, str(rule.severity), rule.layer),
            )
        )
    return tuple(programs)


def _record_programs(bundle: Bundle) -> tuple[tuple[RecordProgram, ...], dict[str, tuple[str, ...]], dict[str, str]]:
    """The record rules in their order; by name the metrics behind each of them, and what it means."""
    meanings: dict[str, str] = {}
    values = {group.name: group.values for group in bundle.groups}
    rules = {rule.name: rule for rule in bundle.records}
    sources: dict[str, tuple[str, ...]] = {}
    programs = []
    for name in bundle.record_order:
        rule = rules[name]
        compiler = Compiler(Scope(values[rule.group]))
        quantity = compiler.quantity(rule.node)
        if quantity is None:
            raise ValueError(f"record rule {name}: {compiler.errors[0].message}")
        used = (*compiler.uses.inputs, *compiler.uses.mentions)
        recorded = tuple(item for item in used if item in sources)
        bare, inputs = _bare(_expand(used, sources)), tuple(compiler.uses.inputs)
        programs.append(RecordProgram(rule, quantity, inputs, bare, recorded, ((name, None),)))
        sources[name] = _expand(compiler.uses.inputs, sources)
        meanings[name] = _meaning(rule.node, compiler.uses, values[rule.group], meanings)
    return tuple(programs), sources, meanings


def _meaning(node: Node, uses: Uses, values: Mapping[str, float], records: Mapping[str, str]) -> str:
    """All that decides the value of an expression but the data."""
    variables = [f"${name} = {values[name]!r}" for name in uses.variables]
    read = dict.fromkeys(name.partition("{")[0] for name in (*uses.inputs, *uses.mentions))
    return "\n".join([render(node), *variables, *(f"{name} = ({records[name]})" for name in read if name in records)])


def _compiled(compiler: Compiler, node: Node) -> Condition:
    condition = compiler.condition(node)
    if condition is None:
        raise ValueError(f"a bundle with a faulty expression: {compiler.errors[0].message}")
    return condition


def _bare(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.endswith("}"))


def _expand(names: Iterable[str], sources: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    expanded: dict[str, None] = {}
    for name in names:
        expanded.update(dict.fromkeys(sources.get(name.partition("{")[0], (name,))))
    return tuple(expanded)


# ---- fan-out ------------------------------------------------------------------------------------------------------------

_KEY: Final = re.compile(r'(.*)\{([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"\}', re.DOTALL)


def own_label(key: str) -> tuple[str, str] | None:
    """Label and value of a series key; None for one without label."""
    match = _KEY.fullmatch(key)
    return None if match is None else (match[2], re.sub(r"\\(.)", r"\1", match[3]))


def instances(
    rule_id: str, bare: Iterable[str], recorded: Iterable[str], members: Mapping[str, Sequence[str]]
) -> tuple[list[Instance], str]:
    """The instances of a rule on a run, and why there are fewer than its metrics ask for (empty when there are not).

    A labelled metric that is named without its label gives one instance per label value; several of them are joined on it. A
    recorded name has the labels of the metrics that it is computed from.
    """
    fans: dict[tuple[str, str], dict[str, str]] = {}
    for name in bare:
        for key in members.get(name, ()):
            label = own_label(key)
            if label is not None:
                fans.setdefault(label, {})[name] = key
    if not fans:
        return [Instance(StateKey(rule_id), {}, None)], ""
    names = dict.fromkeys(label for label, _ in fans)
    if len(names) > 1:
        return [], f"metrics with different labels in one rule ({', '.join(names)}): write one of them with its label"
    kept = list(fans.items())[:MAX_INSTANCES]
    for label, fan in kept:
        fan.update({name: series_key(name, *label) for name in recorded})
    problem = f"{len(fans)} label values, the first {MAX_INSTANCES} are judged" if len(fans) > MAX_INSTANCES else ""
    return [Instance(StateKey(rule_id, (label,)), dict((label,)), fan) for label, fan in kept], problem

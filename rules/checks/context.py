"""What a check sees: the bundle, what is known of metrics, where things stand, and what it may be held against."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rules.bundle import AlertRule, Bundle, RecordRule
from rules.checks.bounds import Bounds, settled
from rules.checks.finding import Finding, Level
from rules.checks.intervals import Intervals
from rules.checks.places import Places
from rules.checks.vocabulary import Vocabulary
from rules.config_errors import Mark
from rules.syntax import Metric, Node, Window, walk


class Expression(NamedTuple):
    """One expression of a rule, with its variables set in."""

    rule: AlertRule | RecordRule
    key: str
    """`expr` or `leave`."""
    node: Node


@dataclass(frozen=True)
class Context:
    """All rules of a bundle and what the checks hold against them."""

    bundle: Bundle
    vocabulary: Vocabulary
    places: Places
    shipped: Path | None = None
    """Directory of the shipped packs: what is only there to be built upon is not judged for being used."""
    run_labels: Sequence[Mapping[str, str]] | None = None
    """Labels of the runs that there are, if anybody says so."""

    @functools.cached_property
    def values(self) -> Mapping[str, Mapping[str, float]]:
        """The variables' values by group."""
        return {group.name: group.values for group in self.bundle.groups}

    @functools.cached_property
    def intervals(self) -> Intervals:
        return Intervals(
            self.vocabulary.metrics, {rule.name: (rule.node, self.values[rule.group]) for rule in self.bundle.records}
        )

    @functools.cached_property
    def bounds(self) -> Bounds:
        return Bounds(self.intervals)

    @functools.cached_property
    def expressions(self) -> tuple[Expression, ...]:
        """Every expression: of the record rules, then of the alerts with their `leave`."""
        found = [Expression(rule, "expr", settled(rule.node, self.values[rule.group])) for rule in self.bundle.records]
        for rule in self.bundle.alerts:
            values = self.values[rule.group]
            found.append(Expression(rule, "expr", settled(rule.node, values)))
            if rule.leave_node is not None:
                found.append(Expression(rule, "leave", settled(rule.leave_node, values)))
        return tuple(found)

    def conditions(self) -> Iterator[Expression]:
        """The expressions that are true or false."""
        return (found for found in self.expressions if isinstance(found.rule, AlertRule))

    def metrics(self, node: Node) -> tuple[str, ...]:
        """Names of the metrics behind an expression, record rules looked through; raw keys in backquotes."""
        found: dict[str, None] = {}
        records = {rule.name: rule for rule in self.bundle.records}
        ahead = [node]
        while ahead:
            for below in walk(ahead.pop()):
                if not isinstance(below, Metric):
                    continue
                if below.name in records and below.name not in found:
                    ahead.append(records[below.name].node)
                found[f"`{below.name}`" if below.raw else below.name] = None
        return tuple(name for name in found if name not in records)

    def mark(self, rule: AlertRule | RecordRule, key: str) -> Mark:
        """Where a field of a rule stands; the rule's own place for one that is not written."""
        marks = rule.marks
        return marks.get(key) or marks.get("alert" if isinstance(rule, AlertRule) else "record") or next(iter(marks.values()))

    def at(self, expression: Expression, node: Node) -> Mark:
        """Where a part of an expression begins."""
        return self.places.at(self.mark(expression.rule, expression.key), _leftmost(node))


def _leftmost(node: Node) -> int:
    """The first character of a node: an operator's own place is that of its left side."""
    return min(below.at for below in walk(node))


def error(code: str, mark: Mark, message: str) -> Finding:
    return Finding(Level.ERROR, code, mark, message)


def warning(code: str, mark: Mark, message: str) -> Finding:
    return Finding(Level.WARNING, code, mark, message)


def windows(node: Node) -> Collection[Window]:
    """The windows in an expression."""
    return [below for below in walk(node) if isinstance(below, Window)]

"""Comparisons as bounds on one quantity: `2 * x - 1 > $limit` says that x is above some number, `x < y` that x - y is below 0.

What two comparisons say of the same quantity can then be held against each other: together impossible, together always true,
or overlapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Final, NamedTuple

from rules.checks.intervals import Intervals
from rules.syntax import Binary, Call, Compare, Logic, Negate, Node, Not, Number, Variable, render

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Range(NamedTuple):
    """A stretch of numbers; an end is in it unless it is open."""

    low: float = -inf
    low_open: bool = True
    high: float = inf
    high_open: bool = True

    @property
    def empty(self) -> bool:
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def meet(self, other: Range) -> Range:
        """What is in both."""
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        high, high_closed = min((self.high, not self.high_open), (other.high, not other.high_open))
        return Range(low, low_open, high, not high_closed)

    def inside(self, other: Range) -> bool:
        """Whether all of it is in the other one."""
        return self.meet(other) == self


def one_sided(operator: str, limit: float) -> Range:
    """The numbers that are `operator` limit."""
    if operator in ("<", "<="):
        return Range(high=limit, high_open=operator == "<")
    return Range(low=limit, low_open=operator == ">")


class Bound(NamedTuple):
    """A comparison that says in which range a quantity is."""

    quantity: str
    range: Range
    node: Compare


def settled(node: Node, values: Mapping[str, float]) -> Node:
    """The expression with its variables replaced by their values."""
    match node:
        case Variable() if node.name in values:
            return Number(values[node.name], node.at)
        case Binary() | Compare() | Logic():
            return replace(node, left=settled(node.left, values), right=settled(node.right, values))
        case Not() | Negate():
            return replace(node, operand=settled(node.operand, values))
        case Call():
            return replace(node, arguments=tuple(settled(argument, values) for argument in node.arguments))
        case _:
            return node


class Bounds:
    """Reads the bounds of settled expressions."""

    def __init__(self, intervals: Intervals) -> None:
        self._intervals = intervals

    def bound(self, node: Compare, negated: bool = False) -> Bound | None:
        """What a comparison of numbers says of one quantity; None when it says nothing that simple."""
        if node.operator not in _MIRRORED:
            return None
        form: dict[str, tuple[Node, float]] = {}
        rest = self._add(node.left, 1.0, form) + self._add(node.right, -1.0, form)
        terms = sorted((text, atom, scale) for text, (atom, scale) in form.items() if scale)
        if not terms or not isfinite(rest):
            return None
        name, _, lead = terms[0]
        operator = node.operator if lead > 0 else _MIRRORED[node.operator]
        operator = _NEGATED[operator] if negated else operator
        if len(terms) == 1:
            return Bound(name, one_sided(operator, -rest / lead), node)
        other, atom, scale = terms[1]
        if len(terms) == 2 and rest == 0 and self._intervals.of(atom, {}).low >= 0:
            # x > 3 * y with y >= 0: a bound on x in units of y.
            return Bound(f"{name} in units of {other}", one_sided(operator, -scale / lead), node)
        quantity = " + ".join(f"{scale / lead:g} * {text}" for text, _, scale in terms)
        return Bound(quantity, one_sided(operator, -rest / lead), node)

    def _add(self, node: Node, scale: float, form: dict[str, tuple[Node, float]]) -> float:
        """Adds scale * node to a linear form; returns its constant part."""
        point = self._intervals.of(node, {}).point
        if point is not None and isfinite(point):
            return scale * point
        match node:
            case Negate():
                return self._add(node.operand, -scale, form)
            case Binary(operator="+" | "-"):
                rest = self._add(node.left, scale, form)
                return rest + self._add(node.right, scale if node.operator == "+" else -scale, form)
            case Binary(operator="*"):
                for factor, other in ((node.left, node.right), (node.right, node.left)):
                    point = self._intervals.of(factor, {}).point
                    if point is not None:
                        return self._add(other, scale * point, form)
            case Binary(operator="/"):
                point = self._intervals.of(node.right, {}).point
                if point:
                    return self._add(node.left, scale / point, form)
            case _:
                pass
        text = render(node)
        form[text] = (node, form.get(text, (node, 0.0))[1] + scale)
        return 0.0

    def alternatives(self, node: Node, joint: str) -> Iterator[list[Bound]]:
        """Of each chain of `joint` ("and" or "or") in a condition, and of each single comparison, the bounds."""
        if isinstance(node, Logic) and node.operator == joint:
            parts = list(chain(node, joint))
            yield [bound for part in parts if (bound := self._simple(part))]
            for part in parts:
                if not isinstance(part, Compare):
                    yield from self.alternatives(part, joint)
        elif isinstance(node, Logic):
            yield from self.alternatives(node.left, joint)
            yield from self.alternatives(node.right, joint)
        elif (bound := self._simple(node)) is not None:
            yield [bound]

    def _simple(self, node: Node) -> Bound | None:
        if isinstance(node, Not) and isinstance(node.operand, Compare):
            return self.bound(node.operand, negated=True)
        return self.bound(node) if isinstance(node, Compare) else None


def chain(node: Node, joint: str) -> Iterator[Node]:
    """The operands of a chain of one connective."""
    if isinstance(node, Logic) and node.operator == joint:
        yield from chain(node.left, joint)
        yield from chain(node.right, joint)
    else:
        yield node


def met(bounds: Sequence[Bound]) -> dict[str, Range]:
    """What bounds that hold together say of each quantity."""
    found: dict[str, Range] = {}
    for bound in bounds:
        found[bound.quantity] = found.get(bound.quantity, Range()).meet(bound.range)
    return found

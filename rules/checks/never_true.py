"""`never-true`: a comparison, or several joined by `and`, that no data can make true. The rule looks alive and is dead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.bounds import met
from rules.checks.context import Context, Expression, error
from rules.checks.finding import Finding
from rules.syntax import Call, Compare, Node, render, walk

CODE: Final = "never-true"


def check(context: Context) -> Iterator[Finding]:
    for expression in context.conditions():
        single = list(_comparisons(context, expression))
        yield from single
        if not single:
            yield from _together(context, expression)


def _comparisons(context: Context, expression: Expression) -> Iterator[Finding]:
    for node in walk(expression.node):
        if isinstance(node, Compare) and context.intervals.truth(node, {}) == {False}:
            message = f"{render(node)} is never true: {between(context, node)} (write a limit that the value can pass)"
            yield error(CODE, context.at(expression, node), message)


def _together(context: Context, expression: Expression) -> Iterator[Finding]:
    for bounds in context.bounds.alternatives(expression.node, "and"):
        for index, bound in enumerate(bounds[1:], 1):
            earlier = met(bounds[:index]).get(bound.quantity)
            if earlier is not None and not earlier.empty and earlier.meet(bound.range).empty:
                other = next(item for item in bounds if item.quantity == bound.quantity)
                what = f"{render(bound.node)} and {render(other.node)} are never true together"
                mend = "write `or` between them, or turn one of them round"
                yield error(CODE, context.at(expression, bound.node), f"{what} ({mend})")
                break


def between(context: Context, node: Compare) -> str:
    """In words, between what the sides of a comparison lie."""
    sides = []
    for side in (node.left, node.right):
        low, high = context.intervals.of(side, {})
        if low != high or _has_data(side):
            sides.append(f"{render(side)} lies between {low:g} and {high:g}")
    if node.left == node.right:
        return "both sides are the same"
    return " and ".join(sides) or "both sides are fixed"


def _has_data(node: Node) -> bool:
    return any(isinstance(below, Call) for below in walk(node))

"""`always-true`: a comparison, or several joined by `or`, that every value makes true. The rule fires for ever."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from rules.checks.bounds import Bound
from rules.checks.context import Context, Expression, error
from rules.checks.finding import Finding
from rules.checks.never_true import between
from rules.syntax import Compare, render, walk

CODE: Final = "always-true"


def check(context: Context) -> Iterator[Finding]:
    for expression in context.conditions():
        single = list(_comparisons(context, expression))
        yield from single
        if not single:
            yield from _together(context, expression)


def _comparisons(context: Context, expression: Expression) -> Iterator[Finding]:
    for node in walk(expression.node):
        if isinstance(node, Compare) and context.intervals.truth(node, {}) == {True}:
            message = (
                f"{render(node)} is always true: {between(context, node)} (write a limit that says something, or delete it)"
            )
            yield error(CODE, context.at(expression, node), message)


def _together(context: Context, expression: Expression) -> Iterator[Finding]:
    for bounds in context.bounds.alternatives(expression.node, "or"):
        for index, bound in enumerate(bounds):
            other = next((item for item in bounds[:index] if _cover(item, bound)), None)
            if other is not None:
                what = f"{render(other.node)} or {render(bound.node)} is always true"
                yield error(CODE, context.at(expression, bound.node), f"{what} (write `and` between them, or turn one round)")
                break


def _cover(one: Bound, other: Bound) -> bool:
    """Whether each number is in one of the two ranges: one goes up from a limit, the other down from it or a higher one."""
    if one.quantity != other.quantity:
        return False
    upward, downward = (one.range, other.range) if one.range.high == inf else (other.range, one.range)
    if upward.high != inf or downward.low != -inf:
        return False
    touching = upward.low == downward.high and not (upward.low_open and downward.high_open)
    return upward.low < downward.high or touching

"""`float-equality`: a measured number compared by == or != with a fraction. Two runs of one job differ in the last digits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Call, Compare, Metric, Node, render, walk

CODE: Final = "float-equality"


def check(context: Context) -> Iterator[Finding]:
    for found in context.conditions():
        for node in walk(found.node):
            if isinstance(node, Compare) and node.operator in ("==", "!=") and _fraction(context, node):
                order = "<" if node.operator == "==" else ">"
                mend = f"write abs({render(node.left)} - {render(node.right)}) {order} 1e-6"
                text = f"{render(node)} compares a measured number to the last digit ({mend})"
                yield warning(CODE, context.at(found, node), text)


def _fraction(context: Context, node: Compare) -> bool:
    for side, line in ((node.left, node.right), (node.right, node.left)):
        point = context.intervals.of(line, {}).point
        if point is not None and not point.is_integer() and _measured(side):
            return True
    return False


def _measured(node: Node) -> bool:
    nodes = list(walk(node))
    return any(isinstance(below, Metric) for below in nodes) and not any(
        isinstance(below, Call) and below.function in ("config", "label") for below in nodes
    )

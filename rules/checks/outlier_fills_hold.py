"""`outlier-fills-hold`: one outlier stays in the window for as long as the hold asks, so the hold holds nothing back.

`max(x[20]) > 5` for 5 records is one value above 5. Say "5 of 20 records", or hold what each record says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.bundle import AlertRule
from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Call, Compare, Node, Window, render, walk
from rules.timing import Domain

CODE: Final = "outlier-fills-hold"


def check(context: Context) -> Iterator[Finding]:
    for found in context.conditions():
        rule = found.rule
        if found.key != "expr" or not isinstance(rule, AlertRule) or rule.hold.domain is not Domain.RECORDS:
            continue
        if rule.hold.amount < 2:
            continue
        for node in walk(found.node):
            side = _extreme(node)
            if side is None:
                continue
            window = side.arguments[0]
            if isinstance(window, Window) and window.unit == "records" and not window.offset:
                if window.length >= rule.hold.amount:
                    text = (
                        f"one record keeps {render(side)} there for {window.length:g}, so the hold of {rule.hold} asks nothing"
                    )
                    mend = f"compare {render(window.metric)} itself, or write for: 3 of 5 records"
                    yield warning(CODE, context.at(found, node), f"{text} ({mend})")


def _extreme(node: Node) -> Call | None:
    """The maximum that a comparison says is high, or the minimum that it says is low."""
    if not isinstance(node, Compare):
        return None
    for side, high in ((node.left, node.operator in (">", ">=")), (node.right, node.operator in ("<", "<="))):
        low = node.operator in ("<", "<=", ">", ">=") and not high
        if isinstance(side, Call) and len(side.arguments) == 1:
            if (side.function == "max" and high) or (side.function == "min" and low):
                return side
    return None

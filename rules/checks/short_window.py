"""`short-window`: the hold is longer than the window lets a change be seen.

A step of the series is in `delta(x[3])` for two records, in `fired_within(A, 3)` for three: neither fills a hold of five.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.bundle import AlertRule
from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Call, Node, Number, Window, render, walk
from rules.timing import Domain

CODE: Final = "short-window"
_CHANGES: Final = frozenset({"delta", "drop", "changes", "zscore", "rzscore", "slope", "nonfinite"})
"""Functions that see a change only while it passes through their window."""


def check(context: Context) -> Iterator[Finding]:
    for found in context.conditions():
        rule = found.rule
        if found.key != "expr" or not isinstance(rule, AlertRule) or rule.hold.domain is not Domain.RECORDS:
            continue
        for node in walk(found.node):
            seen = _seen(node)
            if seen is not None and 0 < seen < rule.hold.amount:
                text = f"{render(node)} sees a change for {seen:g} records, the hold is {rule.hold}"
                mend = "lengthen the window, or shorten the hold"
                yield warning(CODE, context.at(found, node), f"{text}: one change never fires it ({mend})")


def _seen(node: Node) -> float | None:
    """For how many records one change of level stays in sight; None for what sees levels."""
    if not isinstance(node, Call):
        return None
    if node.function == "fired_within" and len(node.arguments) == 2 and isinstance(node.arguments[1], Number):
        return node.arguments[1].value
    if node.function in _CHANGES and isinstance(window := node.arguments[0], Window) and window.unit == "records":
        return window.length if node.function == "nonfinite" else window.length - 1
    return None

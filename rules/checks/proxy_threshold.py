"""`proxy-threshold`: a page on a fixed line for a metric of which some frameworks log only a stand-in.

A line that was drawn for the exact quantity says nothing of its proxy, which may be half of it or ten times as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.bundle import AlertRule
from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Call, Compare, Metric, Node, walk

CODE: Final = "proxy-threshold"
_RELATIVE: Final = frozenset({"baseline", "recorded", "median", "zscore", "rzscore", "trend", "drop", "changes"})
"""What compares a metric with itself: a scale of its own cancels out."""


def check(context: Context) -> Iterator[Finding]:
    for found in context.conditions():
        rule = found.rule
        if found.key != "expr" or not isinstance(rule, AlertRule) or not rule.severity.pages:
            continue
        for node in walk(found.node):
            if not isinstance(node, Compare):
                continue
            sides = [(node.left, node.right), (node.right, node.left)]
            name = next((name for side, line in sides if _fixed(context, line) and (name := _proxied(context, side))), None)
            if name and name not in rule.requires_exact:
                mend = f"write requires_exact: [{name}], or compare with baseline({name})"
                text = f"{rule.name} {rule.severity}s on a fixed line, and some frameworks log only a proxy of {name} ({mend})"
                yield warning(CODE, context.at(found, node), text)


def _fixed(context: Context, node: Node) -> bool:
    return context.intervals.of(node, {}).point not in (None, 0.0)


def _proxied(context: Context, node: Node) -> str | None:
    if any(isinstance(below, Call) and below.function in _RELATIVE for below in walk(node)):
        return None
    if sum(isinstance(below, Metric) for below in walk(node)) > 1:
        return None
    known = context.vocabulary.metrics
    return next((name for name in context.metrics(node) if name in known and known[name].proxied), None)

"""`leave-overlaps`: `leave` can be true while the condition is. What is meant is a gap between the two lines.

With `expr: x > 5` and `leave: x < 6` the alert ends at 5, as without `leave`; `leave: x > 3` is turned round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.bounds import Range, met
from rules.checks.context import Context, Expression, error, warning
from rules.checks.finding import Finding
from rules.syntax import render

CODE: Final = "leave-overlaps"


def check(context: Context) -> Iterator[Finding]:
    entries = {found.rule.name: found for found in context.conditions() if found.key == "expr"}
    for leave in context.conditions():
        if leave.key == "leave":
            yield from _against(context, entries[leave.rule.name], leave)


def _against(context: Context, entry: Expression, leave: Expression) -> Iterator[Finding]:
    where: dict[str, list[Range]] = {}
    for bounds in context.bounds.alternatives(entry.node, "and"):
        for quantity, span in met(bounds).items():
            where.setdefault(quantity, []).append(span)
    for bounds in context.bounds.alternatives(leave.node, "and"):
        for quantity, span in met(bounds).items():
            node = next(bound.node for bound in bounds if bound.quantity == quantity)
            clash = next((enter for enter in where.get(quantity, ()) if not enter.meet(span).empty), None)
            if clash is None:
                continue
            mark = context.at(leave, node)
            if clash.inside(span):
                text = f"leave {render(node)} holds whenever the condition does (turn the comparison round)"
                yield error(CODE, mark, text)
            else:
                text = f"leave {render(node)} holds on a part of the condition too: no gap between the lines (move it beyond)"
                yield warning(CODE, mark, text)

"""`clock-hold`: a hold in time on what comes by records. Two slow steps, or a stall between them, fill it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, error, warning
from rules.checks.finding import Finding
from rules.syntax import Metric, walk
from rules.timing import AT_ONCE, Domain

CODE: Final = "clock-hold"


def check(context: Context) -> Iterator[Finding]:
    for rule in context.bundle.alerts:
        silent = any(isinstance(node, Metric) and node.name == "silence" for node in walk(rule.node))
        if silent and rule.hold != AT_ONCE:
            text = f"{rule.name} asks for silence, which is judged once, at its deadline: a hold is never filled"
            yield error(CODE, context.mark(rule, "for"), f"{text} (delete the hold, compare silence with a longer time)")
        elif rule.hold.domain is Domain.TIME:
            text = f"{rule.hold.amount:g} s pass between two records of a slow or stalled run: two breaches fill this hold"
            yield warning(CODE, context.mark(rule, "for"), f"{text} (write for: 3 records)")

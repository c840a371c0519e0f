"""`duplicate-rule`: two alerts, or two record rules, with one condition under two names. Both page for one fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.bundle import AlertRule
from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import render

CODE: Final = "duplicate-rule"


def check(context: Context) -> Iterator[Finding]:
    seen: dict[tuple[str, str], str] = {}
    for found in context.expressions:
        if found.key != "expr":
            continue
        rule = found.rule
        # Another severity after a longer hold is a ladder, not a copy.
        kind = f"{rule.hold}" if isinstance(rule, AlertRule) else "record"
        first = seen.setdefault((render(found.node), kind), rule.name)
        if first != rule.name:
            text = f"{rule.name} has the condition of {first}" if isinstance(rule, AlertRule) else f"{rule.name} is {first}"
            yield warning(CODE, context.mark(rule, "expr"), f"{text}: one fault, two names (keep one)")

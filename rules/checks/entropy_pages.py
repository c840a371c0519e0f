"""`entropy-pages`: a page on entropy alone. A policy that sharpens loses entropy and is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Call, walk

CODE: Final = "entropy-pages"


def check(context: Context) -> Iterator[Finding]:
    for rule in context.bundle.alerts:
        names = context.metrics(rule.node)
        called = {node.function for node in walk(rule.node) if isinstance(node, Call)}
        if rule.severity.pages and names and all("entropy" in name for name in names):
            if not called & {"firing", "fired_within", "nonfinite", "is_nan"}:
                text = f"{rule.name} {rule.severity}s on entropy alone, which falls on healthy runs too"
                yield warning(
                    CODE, context.mark(rule, "severity"), f"{text} (write severity: warning, or join it with the reward)"
                )

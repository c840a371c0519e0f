"""`page-without-hold`: a page or stop that one record is enough for. Isolated spikes heal by themselves.

Not meant: silence, which is a time already, and rules that only ask for other alerts, which have holds of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Call, Metric, walk
from rules.timing import Domain

CODE: Final = "page-without-hold"
_PATIENT: Final = frozenset({"absent", "age"})


def check(context: Context) -> Iterator[Finding]:
    for rule in context.bundle.alerts:
        if not rule.severity.pages or rule.hold.amount > 1 or rule.hold.domain not in (Domain.RECORDS, Domain.STEPS):
            continue
        nodes = list(walk(rule.node))
        read = {node.name for node in nodes if isinstance(node, Metric)}
        called = {node.function for node in nodes if isinstance(node, Call)}
        if "silence" in read or called & _PATIENT or (called and called <= {"firing", "fired_within"}):
            continue
        mark = context.mark(rule, "for" if "for" in rule.marks else "severity")
        yield warning(CODE, mark, f"{rule.name} {rule.severity}s on a single record (write for: 2 records)")

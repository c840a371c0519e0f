"""`unused-record`: a record rule that no rule reads. It is computed at every record of every run all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Metric, walk

CODE: Final = "unused-record"


def check(context: Context) -> Iterator[Finding]:
    read = {
        (node.name, found.rule.name)
        for found in context.expressions
        for node in walk(found.node)
        if isinstance(node, Metric) and not node.raw
    }
    names = {name for name, reader in read if name != reader}
    for rule in context.bundle.records:
        if rule.name not in names:
            yield warning(CODE, context.mark(rule, "record"), f"no rule reads the record {rule.name} (use it, or delete it)")

"""`unknown-label`: a label that the metric does not have, so that no series ever matches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, error
from rules.checks.finding import Finding
from rules.syntax import Metric, walk

CODE: Final = "unknown-label"


def check(context: Context) -> Iterator[Finding]:
    known = context.vocabulary.metrics
    for found in context.expressions:
        for node in walk(found.node):
            if not isinstance(node, Metric) or node.label is None or node.name not in known:
                continue
            declared = known[node.name].label
            if declared != node.label:
                mend = f'write {node.name}{{{declared}="{node.label_value}"}}' if declared else f"write {node.name}"
                has = f"its label is {declared}" if declared else "it has no label"
                yield error(CODE, context.at(found, node), f"{node.name} has no label {node.label}: {has} ({mend})")

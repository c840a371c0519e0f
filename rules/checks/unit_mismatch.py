"""`unit-mismatch`: a duration beside a metric that is no time, or a bare number beside one that is seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, error, warning
from rules.checks.finding import Finding
from rules.syntax import Compare, Duration, Metric, Number, render, walk

CODE: Final = "unit-mismatch"
_CLOCKS: Final = frozenset({"silence", "since_start"})


def check(context: Context) -> Iterator[Finding]:
    known = context.vocabulary.metrics
    for found in context.conditions():
        for node in walk(found.node):
            if not isinstance(node, Compare):
                continue
            for side, line in ((node.left, node.right), (node.right, node.left)):
                names = context.metrics(side)
                unit = {"seconds" if name in _CLOCKS else known[name].unit if name in known else "" for name in names}
                if isinstance(line, Duration) and unit and not unit & {"seconds", ""}:
                    text = f"{', '.join(names)} is no time but counts in {' and '.join(sorted(unit))}"
                    yield error(CODE, context.at(found, line), f"{text} (write a number without unit)")
                elif isinstance(line, Number) and line.value and isinstance(side, Metric) and unit == {"seconds"}:
                    text = f"{render(side)} is seconds (write {render(line)}s, or minutes as 10m)"
                    yield warning(CODE, context.at(found, line), text)

"""`override-decides`: a value for some runs by which a comparison is never or always true, although it is neither elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.bundle import Group, Override
from rules.checks.context import Context, error
from rules.checks.finding import Finding
from rules.checks.intervals import BOTH
from rules.syntax import Compare, Variable, render, walk

CODE: Final = "override-decides"


def check(context: Context) -> Iterator[Finding]:
    for group in context.bundle.groups:
        for override in group.overrides:
            yield from _decided(context, group, override)


def _decided(context: Context, group: Group, override: Override) -> Iterator[Finding]:
    values = {**group.values, **override.vars}
    for rule in group.alerts:
        for node in (rule.node, *([rule.leave_node] if rule.leave_node is not None else [])):
            for part in walk(node):
                if not isinstance(part, Compare):
                    continue
                named = [below.name for below in walk(part) if isinstance(below, Variable) and below.name in override.vars]
                truth = context.intervals.truth(part, values)
                if named and truth != BOTH and context.intervals.truth(part, group.values) == BOTH:
                    word = "always" if truth == {True} else "never"
                    mark = override.marks[f"vars.{named[0]}"]
                    text = f"with {named[0]} = {override.vars[named[0]]:g}, {render(part)} of {rule.name} is {word} true"
                    yield error(CODE, mark, f"{text} (write a value that says something)")

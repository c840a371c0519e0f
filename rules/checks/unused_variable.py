"""`unused-variable`: a number that no expression and no message of its group names. Changing it changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Node, Variable, walk

CODE: Final = "unused-variable"


def check(context: Context) -> Iterator[Finding]:
    for group in context.bundle.groups:
        used: set[str] = set()
        nodes: list[Node] = [rule.node for rule in group.records]
        for rule in group.alerts:
            nodes += [rule.node] if rule.leave_node is None else [rule.node, rule.leave_node]
            used.update(re.findall(r"\bvars\.(\w+)", rule.summary), re.findall(r"\bvars\[['\"](\w+)", rule.summary))
        used.update(below.name for node in nodes for below in walk(node) if isinstance(below, Variable))
        for name, variable in group.vars.items():
            if name not in used:
                yield warning(
                    CODE, variable.mark, f"nothing uses the variable {name} (write ${name} where it is meant, or delete it)"
                )

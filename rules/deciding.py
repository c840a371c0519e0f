"""What decides when an alert fires, and where it is written: condition, hold, the numbers and record rules behind them.

Not among it: what an alert is called and says, how loud it is, whom it explains, its stage, and values for some runs only
(overrides), which hold beside the rule's own.
"""

from __future__ import annotations

from typing import Final

from rules.bundle import AlertRule, Bundle
from rules.config_errors import Mark
from rules.syntax import Metric, Node, Variable, walk

_KEYS: Final = ("expr", "for", "leave", "keep", "warmup", "on_gap", "on_non_finite", "requires_exact")


def deciding_marks(bundle: Bundle, rule: AlertRule) -> tuple[Mark, ...]:
    """Of each field, variable and record rule that decides when the alert fires; of several layers, that of the last word."""
    found = {rule.marks[key]: None for key in _KEYS if key in rule.marks}
    records = {record.name: record for record in bundle.records}
    ahead: list[tuple[Node, str]] = [(node, rule.group) for node in (rule.node, rule.leave_node) if node is not None]
    while ahead:
        node, group = ahead.pop()
        for below in walk(node):
            if isinstance(below, Variable):
                variable = bundle.group(group).vars[below.name]
                found[variable.marks.get("value", variable.mark)] = None
            elif isinstance(below, Metric) and (record := records.pop(below.name, None)) is not None:
                found[record.marks["expr"]] = None
                ahead.append((record.node, record.group))
    return tuple(found)

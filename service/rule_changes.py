"""Which rules two bundles do not share, leaf by leaf: the head of a diff, and the plan for what happens to states."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, NamedTuple

from rules.bundle import AlertRule, Bundle, RecordRule

_DERIVED: Final = frozenset({"node", "leave_node", "marks", "declared"})
"""Fields that follow from the text of others, or say only where they stand."""


class RuleChange(NamedTuple):
    """One rule or variable that is not what it was."""

    name: str
    what: str
    """`added`, `removed`, or the leaves: `severity: warning -> page`."""


def rule_changes(before: Bundle, after: Bundle) -> list[RuleChange]:
    """Alert rules (by id), record rules and variables that differ, in the order of the bundles."""
    old: dict[str, AlertRule | RecordRule] = {**_records(before), **_alerts(before)}
    new: dict[str, AlertRule | RecordRule] = {**_records(after), **_alerts(after)}
    found = [RuleChange(*pair) for pair in _variables(before, after)] + _overrides(before, after)
    for key in dict.fromkeys((*old, *new)):
        if key not in new:
            found.append(RuleChange(old[key].name, "removed"))
        elif key not in old:
            found.append(RuleChange(new[key].name, "added"))
        elif leaves := _leaves(old[key], new[key]):
            found.append(RuleChange(new[key].name, "; ".join(leaves)))
    return found


def _alerts(bundle: Bundle) -> dict[str, AlertRule]:
    return {f"alert {rule.id}": rule for rule in bundle.alerts}


def _records(bundle: Bundle) -> dict[str, RecordRule]:
    return {f"record {rule.name}": rule for rule in bundle.records}


def _variables(before: Bundle, after: Bundle) -> list[tuple[str, str]]:
    old = {(group.name, name): value for group in before.groups for name, value in group.values.items()}
    new = {(group.name, name): value for group in after.groups for name, value in group.values.items()}
    return [
        (f"${name} of {group}", f"{old[group, name]:g} -> {value:g}")
        for (group, name), value in new.items()
        if (group, name) in old and old[group, name] != value
    ]


def _overrides(before: Bundle, after: Bundle) -> list[RuleChange]:
    """Overrides have no name: those that only one side has, with the labels that they match."""
    old, new = _written(before), _written(after)
    found = [RuleChange(name, "removed") for name in old if name not in new]
    return found + [RuleChange(name, "added") for name in new if name not in old]


def _written(bundle: Bundle) -> list[str]:
    return [
        f"override of {group.name} where {_pairs(item.match)}: {_pairs({**item.vars, **item.severity})}"
        for group in bundle.groups
        for item in group.overrides
    ]


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items())


def _leaves(old: AlertRule | RecordRule, new: AlertRule | RecordRule) -> list[str]:
    leaves = []
    for field in dataclasses.fields(new):
        if field.name in _DERIVED or (one := getattr(old, field.name, None)) == (other := getattr(new, field.name)):
            continue
        leaves.append(f"{'for' if field.name == 'hold' else field.name}: {_text(one)} -> {_text(other)}")
    return leaves


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "none"
    return " ".join(str(value).split()) or "none"

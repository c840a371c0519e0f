"""Overrides by run labels, and rollout stages: which rules hold for one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from rules.bundle import AlertRule, Bundle, Group, OnNonFinite, Override, Stage
from rules.compile import Compiler
from rules.config_errors import ConfigError
from rules.model import Severity
from rules.operands import Scope


def staged(severity: Severity, stage: Stage) -> Severity:
    """The severity that a rule has at a stage: `notify` is never louder than a warning."""
    return Severity.WARNING if stage is Stage.NOTIFY and severity.pages else severity


def matches(override: Override, labels: Mapping[str, str]) -> bool:
    """Whether a run with these labels is meant: all its globs match, case counts."""
    return all(label in labels and fnmatchcase(labels[label], glob) for label, glob in override.match.items())


def asked(bundle: Bundle) -> tuple[str, ...]:
    """The labels that any override looks at."""
    found = {label: None for group in bundle.groups for override in group.overrides for label in override.match}
    return tuple(found)


def applying(bundle: Bundle, labels: Mapping[str, str]) -> tuple[Override, ...]:
    """The overrides that match a run, in the order in which they apply."""
    return tuple(item for group in bundle.groups for item in group.overrides if matches(item, labels))


def unmatched(bundle: Bundle, runs: Iterable[Mapping[str, str]]) -> list[Override]:
    """The overrides that match none of some runs, given by their labels: for a lint."""
    seen = list(runs)
    return [item for group in bundle.groups for item in group.overrides if not any(matches(item, run) for run in seen)]


def faults(bundle: Bundle) -> list[ConfigError]:
    """Overrides whose values make an expression impossible (a division by zero), each tried by itself."""
    ids = {rule.name: rule.id for rule in bundle.alerts}
    found: list[ConfigError] = []
    for group in bundle.groups:
        for override in group.overrides:
            compiler = Compiler(Scope({**group.values, **override.vars}, ids))
            for record in group.records:
                compiler.quantity(record.node)
            for alert in group.alerts:
                for node in (alert.node, *([alert.leave_node] if alert.leave_node is not None else ())):
                    compiler.condition(node)
            found += [override.mark.error(f"with these values a rule fails: {each.message}") for each in compiler.errors]
    return found


def effective(bundle: Bundle, labels: Mapping[str, str]) -> Bundle:
    """The bundle as it holds for a run with these labels; itself when no override matches.

    The marks of what an override changed are those of the override, so that the provenance is that of the value in force.
    """
    groups = tuple(_group(group, labels) for group in bundle.groups)
    return bundle if all(a is b for a, b in zip(groups, bundle.groups, strict=True)) else replace(bundle, groups=groups)


def _group(group: Group, labels: Mapping[str, str]) -> Group:
    found = [override for override in group.overrides if matches(override, labels)]
    if not found:
        return group
    variables, rules = dict(group.vars), {rule.id: rule for rule in group.alerts}
    for override in found:
        for name, value in override.vars.items():
            marks = {**variables[name].marks, "value": override.marks[f"vars.{name}"]}
            variables[name] = replace(variables[name], value=value, marks=marks)
        for rule_id, severity in override.severity.items():
            rules[rule_id] = _with_severity(rules[rule_id], severity, override)
    return replace(group, vars=variables, alerts=tuple(rules[rule.id] for rule in group.alerts))


def _with_severity(rule: AlertRule, severity: Severity, override: Override) -> AlertRule:
    default = OnNonFinite.BREACH if severity.pages else OnNonFinite.HOLD
    return replace(
        rule,
        severity=staged(severity, rule.stage),
        declared=severity,
        on_non_finite=rule.on_non_finite if "on_non_finite" in rule.marks else default,
        marks={**rule.marks, "severity": override.marks[f"severity.{rule.id}"]},
    )

"""A bundle: all rules that are in force together, as data. Made by `rules.loader`, run by `rules.engine`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rules.config_errors import Mark
from rules.model import Severity
from rules.syntax import Node
from rules.timing import Span


class OnGap(enum.StrEnum):
    """What a record means on which the rule cannot be judged (a metric is missing) and never will be."""

    HOLD = "hold"
    """Nothing: the state stays as it is."""
    RESET = "reset"
    """As if the condition were false."""
    COUNT = "count"
    """As if it were true, once the rule is pending."""


class OnNonFinite(enum.StrEnum):
    """What NaN or infinity means for a rule."""

    BREACH = "breach"
    HOLD = "hold"


class Stage(enum.StrEnum):
    """How far a rule has been rolled out."""

    SHADOW = "shadow"
    """Judged, and its events are kept and shown; told to nobody, explains nothing, and marks nothing as unclean."""
    NOTIFY = "notify"
    """Told, but never louder than a warning."""
    PAGE = "page"
    """As its severity says."""


@dataclass(frozen=True, slots=True)
class Override:
    """Other values for the runs with certain labels. Of several that match a run, the later one has the last word."""

    match: Mapping[str, str]
    """Globs by label; all must match. A label that the run does not have matches nothing."""
    vars: Mapping[str, float]
    severity: Mapping[str, Severity]
    """By rule id."""
    mark: Mark
    marks: Mapping[str, Mark]
    """Where each value stands: by `vars.NAME`, `severity.ID` and `match.LABEL`."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A number that a rule file names: `$name` in expressions, `vars.name` in messages."""

    name: str
    value: float
    unit: str
    """"1" for a plain number or ratio."""
    doc: str
    range: tuple[float, float] | None
    mark: Mark
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Where each of its keys stands: several layers may have a say."""


@dataclass(frozen=True, slots=True)
class RecordRule:
    """A named expression, computed at every record that carries its inputs; its values form a series like a metric."""

    name: str
    expr: str
    node: Node
    group: str
    marks: Mapping[str, Mark]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alert. Identity is `id` alone; everything else may be edited while it fires."""

    id: str
    name: str
    group: str
    layer: int
    expr: str
    node: Node
    hold: Span
    leave: str
    leave_node: Node | None
    """Condition under which it may end; None: when `expr` is false."""
    keep: Span
    severity: Severity
    summary: str
    next: tuple[str, ...]
    runbook: str
    requires_exact: tuple[str, ...]
    independent: bool
    warmup: int
    """Records of the run before the first verdict."""
    on_gap: OnGap
    on_non_finite: OnNonFinite
    marks: Mapping[str, Mark]
    """Where each field stands, by its key in the file: the provenance of every leaf."""
    stage: Stage = Stage.PAGE
    declared: Severity = Severity.INFO
    """The severity as written; `severity` is that of its stage."""


@dataclass(frozen=True, slots=True)
class Group:
    """One rule file: a layer, the question it answers, its variables and rules in the order of the file."""

    name: str
    layer: int
    question: str
    vars: Mapping[str, Variable]
    records: tuple[RecordRule, ...]
    alerts: tuple[AlertRule, ...]
    file: str
    """The first one, where later layers change the group."""
    overrides: tuple[Override, ...] = ()

    @property
    def values(self) -> dict[str, float]:
        """The variables' values by name."""
        return {name: variable.value for name, variable in self.vars.items()}


@dataclass(frozen=True, slots=True)
class Bundle:
    """Groups in the order of their sources."""

    groups: tuple[Group, ...]
    sources: tuple[Path, ...]
    """Directories and files, the shipped packs first; a later one has the later word."""
    record_order: tuple[str, ...]
    """Names of the record rules, each after those it reads."""
    alert_order: tuple[str, ...]
    """Ids of the alert rules, each after those whose firing it asks for."""
    depth: int
    """How many records the deepest window needs."""

    @property
    def alerts(self) -> tuple[AlertRule, ...]:
        return tuple(rule for group in self.groups for rule in group.alerts)

    @property
    def records(self) -> tuple[RecordRule, ...]:
        return tuple(rule for group in self.groups for rule in group.records)

    def group(self, name: str) -> Group:
        """The group of that name. Raises KeyError."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)

    def alert(self, name: str) -> AlertRule:
        """The alert rule with that id or alert name. Raises KeyError."""
        for rule in self.alerts:
            if name in (rule.id, rule.name):
                return rule
        raise KeyError(name)

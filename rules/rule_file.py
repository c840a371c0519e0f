"""One rule file as it is written: the schema of its keys, its variables, and its rules before their names are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec

from rules.bundle import OnGap, OnNonFinite, Override, Stage, Variable
from rules.config_errors import ConfigError, Mark
from rules.model import Severity
from rules.names import KEBAB_CASE, SNAKE_CASE, suggestion
from rules.operands import Uses
from rules.syntax import Node
from rules.typed_yaml import convert
from rules.yaml_tree import Items, Scalar, Table, find
from rules.yaml_tree import Node as YamlNode


class VariableSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `vars:`."""

    value: float
    unit: Annotated[str, msgspec.Meta(min_length=1)]
    doc: Annotated[str, msgspec.Meta(min_length=1)]
    range: tuple[float, float] | None = None
    final: list[str] = []
    """Keys that no later layer may change; here as in rules. Read by `rules.layering`, as is `unset`."""
    unset: list[str] = []


class RecordSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `rules:` that computes a series."""

    record: str
    expr: str
    doc: str = ""
    final: list[str] = []
    unset: list[str] = []


class AlertSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `rules:` that raises an alert."""

    alert: str
    id: str
    expr: str
    severity: Severity
    summary: Annotated[str, msgspec.Meta(min_length=1)]
    for_: str | int | float = msgspec.field(default="1 record", name="for")
    """A bare number is read so that the loader can ask for its unit."""
    leave: str = ""
    keep: str | int | float = ""
    next: list[str] = []
    runbook: str = ""
    requires_exact: list[str] = []
    independent: bool = False
    warmup: str = ""
    on_gap: OnGap = OnGap.HOLD
    on_non_finite: OnNonFinite | None = None
    stage: Stage = Stage.PAGE
    final: list[str] = []
    unset: list[str] = []


class OverrideSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `overrides:`."""

    match: Annotated[dict[str, str], msgspec.Meta(min_length=1)]
    vars: dict[str, float] = {}
    severity: dict[str, Severity] = {}


class FileSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A rule file."""

    group: str
    layer: Annotated[int, msgspec.Meta(ge=0, le=6)]
    question: Annotated[str, msgspec.Meta(min_length=1)]
    rules: Annotated[list[Any], msgspec.Meta(min_length=1)]
    vars: dict[str, VariableSpec] = {}
    overrides: list[OverrideSpec] = []
    final: list[str] = []
    unset: list[str] = []


def field_names() -> dict[str, tuple[str, ...]]:
    """The keys that `final` and `unset` may name, by kind of entry."""
    kinds: dict[str, type[msgspec.Struct]] = {"vars": VariableSpec, "record": RecordSpec, "alert": AlertSpec}
    names = {kind: tuple(item.encode_name for item in msgspec.structs.fields(spec)) for kind, spec in kinds.items()}
    found = {kind: tuple(name for name in each if name not in ("final", "unset")) for kind, each in names.items()}
    return {"head": ("group", "layer", "question"), **found}


@dataclass(slots=True)
class Draft:
    """A rule that was read but whose names are not resolved yet."""

    spec: RecordSpec | AlertSpec
    tree: YamlNode
    group: str
    layer: int
    values: Mapping[str, float]
    node: Node | None = None
    leave: Node | None = None
    uses: Uses = field(default_factory=Uses)

    @property
    def name(self) -> str:
        return self.spec.record if isinstance(self.spec, RecordSpec) else self.spec.alert

    def mark(self, *path: str | int) -> Mark:
        return find(self.tree, *path).mark

    @property
    def marks(self) -> dict[str, Mark]:
        assert isinstance(self.tree, Table)
        return {key: node.mark for key, node in self.tree.entries.items()}


@dataclass(slots=True)
class RuleFile:
    """A file's head, its variables and its rules, with their places."""

    name: str
    spec: FileSpec
    variables: dict[str, Variable]
    drafts: list[Draft]
    overrides: list[Override]


def read_rule_file(tree: YamlNode, file: str, errors: list[ConfigError]) -> RuleFile | None:
    """What could be read of a rule file's tree; its faults are appended to `errors`, in the order of the lines."""
    result: RuleFile | None = None
    found: list[ConfigError] = []
    if isinstance(tree, Table):
        # Rules are read even where the head is wrong, so that one round of corrections is enough.
        spec = convert(tree, FileSpec, found)
        result = _read_rules(spec, tree, file, found)
    else:
        found.append(tree.mark.error("a rule file is a mapping (write group: ..., layer: ..., question: ..., rules: [...])"))
    errors += sorted(found, key=lambda error: (error.line, error.column))
    return result


def _read_rules(spec: FileSpec | None, tree: Table, file: str, errors: list[ConfigError]) -> RuleFile:
    variables = _variables(tree, errors)
    values = {name: variable.value for name, variable in variables.items()}
    drafts = []
    rules = tree.entries.get("rules")
    for node in rules if isinstance(rules, Items) else ():
        rule = _read_rule(node, errors)
        if rule is not None:
            drafts.append(Draft(rule, node, spec.group if spec else "", spec.layer if spec else 0, values))
    if spec is None:
        spec = FileSpec(group="", layer=0, question="?", rules=[])
    elif not KEBAB_CASE.fullmatch(spec.group):
        errors.append(find(tree, "group").mark.error(f"group {spec.group!r} is not in kebab-case (write my-group)"))
    return RuleFile(file, spec, variables, drafts, _overrides(tree, variables, errors))


def _overrides(tree: Table, variables: Mapping[str, Variable], errors: list[ConfigError]) -> list[Override]:
    listed = tree.entries.get("overrides")
    found: list[Override] = []
    for node in listed if isinstance(listed, Items) else ():
        ignored: list[ConfigError] = []  # noted already when the whole file was converted
        spec = convert(node, OverrideSpec, ignored)
        if spec is None:
            continue
        if not spec.match:
            errors.append(find(node, "match").mark.error("an override says for which runs (write match: {label: glob})"))
        if not spec.vars and not spec.severity:
            errors.append(node.mark.error("an override without effect (write vars: {name: value} or severity: {id: page})"))
        marks = {
            f"{section}.{key}": find(node, section, key).mark
            for section, keys in (("match", spec.match), ("vars", spec.vars), ("severity", spec.severity))
            for key in keys
        }
        for name, value in spec.vars.items():
            variable = variables.get(name)
            if variable is None:
                hint = suggestion(name, variables) or " (add it to the group's vars)"
                errors.append(_key_mark(find(node, "vars"), name).error(f"unknown variable {name!r}{hint}"))
            elif variable.range is not None and not variable.range[0] <= value <= variable.range[1]:
                low, high = variable.range
                text = f"{name} = {value:g} is outside {low:g}..{high:g} (change the value)"
                errors.append(marks[f"vars.{name}"].error(text))
        found.append(Override(spec.match, spec.vars, spec.severity, node.mark, marks))
    return found


def _variables(tree: Table, errors: list[ConfigError]) -> dict[str, Variable]:
    table = tree.entries.get("vars")
    variables: dict[str, Variable] = {}
    for name, node in table.entries.items() if isinstance(table, Table) else ():
        ignored: list[ConfigError] = []  # noted already when the whole file was converted
        spec = convert(node, VariableSpec, ignored)
        if spec is None:
            value = find(node, "value")
            written = value.value if isinstance(value, Scalar) else None
            # A stand-in, so that its uses do not raise errors of their own.
            number = float(written) if isinstance(written, int | float) else 1.0
            variables[name] = Variable(name, number, "1", "", None, node.mark)
            continue
        if not SNAKE_CASE.fullmatch(name):
            errors.append(_key_mark(table, name).error(f"variable {name!r} is not in snake_case (write gap_stop)"))
        if spec.range is not None and not spec.range[0] <= spec.value <= spec.range[1]:
            low, high = spec.range
            order = " (the range's ends are swapped)" if low > high else " (change the value, or the range on purpose)"
            errors.append(find(node, "value").mark.error(f"{name} = {spec.value:g} is outside {low:g}..{high:g}{order}"))
        marks = {key: below.mark for key, below in node.entries.items()} if isinstance(node, Table) else {}
        variables[name] = Variable(name, spec.value, spec.unit, spec.doc, spec.range, node.mark, marks)
    return variables


def _read_rule(node: YamlNode, errors: list[ConfigError]) -> RecordSpec | AlertSpec | None:
    if not isinstance(node, Table):
        errors.append(node.mark.error("a rule is a mapping (write - alert: ... or - record: ...)"))
        return None
    if "record" in node.entries:
        return convert(node, RecordSpec, errors) or _salvaged(node, RecordSpec)
    if "alert" in node.entries:
        return convert(node, AlertSpec, errors) or _salvaged(node, AlertSpec)
    errors.append(node.mark.error("a rule begins with its kind (write alert: MyAlert or record: my_name)"))
    return None


Spec = TypeVar("Spec", RecordSpec, AlertSpec)


def _salvaged(node: Table, kind: type[Spec]) -> Spec | None:
    """What can be read of a rule whose keys have faults, so that its expression and its texts are judged in the same round.

    None without a readable expression. What is required and missing gets a stand-in that raises no error of its own; the
    faults themselves are noted already, so nothing that is made of this is ever put in force.
    """
    line = node.mark.line
    values: dict[str, Any] = {
        "record": f"unread_{line}",
        "alert": f"Unread{line}",
        "id": f"unread-{line}",
        "severity": Severity.WARNING,
        "summary": "unread",
    }
    wanted = msgspec.structs.fields(kind)
    values = {item.name: values[item.name] for item in wanted if item.name in values}
    for item in wanted:
        entry = node.entries.get(item.encode_name)
        faults: list[ConfigError] = []
        value = None if entry is None else convert(entry, item.type, faults)
        if entry is not None and not faults:
            values[item.name] = value
    return kind(**values) if "expr" in values else None


def _key_mark(table: YamlNode | None, key: str) -> Mark:
    assert isinstance(table, Table)
    return table.key_mark(key)

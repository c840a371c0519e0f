"""The files of a bundle by layer: which file changes which, and what is read when they are merged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rules import layering
from rules.config_errors import ConfigError
from rules.layering import Layer
from rules.names import suggestion
from rules.rule_file import RuleFile, field_names, read_rule_file
from rules.strict_yaml import read_tree
from rules.yaml_tree import Items, Node, Scalar, Table, find

_MARKERS: Final = ("final", "unset")


class _File(NamedTuple):
    name: str
    layer: int
    tree: Node
    group: str
    """Empty when it says none."""


class Sources:
    """Files in the order of their layers. Faults are appended to `errors`."""

    def __init__(self, errors: list[ConfigError]) -> None:
        self._errors = errors
        self._files: Final[list[_File]] = []
        self._fields: Final = field_names()

    def read(self, text: str, file: str, layer: int) -> None:
        """Take in the text of a file. Layers come in order."""
        found: list[ConfigError] = []
        tree = read_tree(text, file, found)
        self._errors += found
        if tree is None:
            return
        group = find(tree, "group") if isinstance(tree, Table) else tree
        name = group.value if isinstance(group, Scalar) and isinstance(group.value, str) else ""
        other = next((each for each in self._files if name and each.group == name and each.layer == layer), None)
        if other is not None:
            self._errors.append(group.mark.error(f"group {name!r} is in {other.name} too (one group is one file)"))
        self._files.append(_File(file, layer, tree, name))

    def merged(self) -> list[RuleFile]:
        """One rule file per group, its layers merged; in the order in which the groups first come."""
        groups: dict[str | int, list[_File]] = {}
        for number, file in enumerate(self._files):
            groups.setdefault(file.group or number, []).append(file)
        files = [self._one(files, [name for name in groups if isinstance(name, str)]) for files in groups.values()]
        return [file for file in files if file is not None]

    def _one(self, files: list[_File], groups: list[str]) -> RuleFile | None:
        first = files[0]
        tables = [file.tree for file in files if isinstance(file.tree, Table)]
        if len(files) == 1 or len(tables) < len(files):
            if isinstance(first.tree, Table) and self._has_no_base(first, first.tree, groups):
                return None
            if not any(map(_marked, tables)):
                return read_rule_file(first.tree, first.name, self._errors)
        merged: Layer | None = None
        for table in tables:
            layer = layering.read_layer(table, self._fields, self._errors)
            if merged is None:
                self._errors += layering.unset_of_nothing(layer)
                merged = layer
            else:
                self._errors += layering.conflicts(merged, layer)
                strange = layering.strangers(merged, layer)
                merged = layering.merge(merged, layering.without(layer, strange) if strange else layer)
        return None if merged is None else read_rule_file(layering.to_tree(merged), first.name, self._errors)

    def _has_no_base(self, file: _File, tree: Table, groups: list[str]) -> bool:
        """Whether a file means to change a group that no earlier layer has."""
        if not file.group or {"layer", "question"} & tree.entries.keys():
            return False
        if file.layer == 0 and not _changes_rules(tree):
            return False
        others = [name for name in groups if name != file.group]
        hint = suggestion(file.group, others) or (
            " (its rules are changed here by id: what has them comes first; were the shipped packs left out?)"
            if file.layer == 0
            else " (a new group begins with layer: and question:)"
        )
        self._errors.append(find(tree, "group").mark.error(f"no earlier layer has the group {file.group!r}{hint}"))
        return True


def _changes_rules(table: Table) -> bool:
    """Whether a file names rules by `id` alone, and brings none."""
    rules = table.entries.get("rules")
    entries = [node.entries for node in rules if isinstance(node, Table)] if isinstance(rules, Items) else []
    return bool(entries) and not any({"alert", "record"} & entry.keys() for entry in entries)


def _marked(table: Table) -> bool:
    """Whether a file has `final` or `unset` anywhere."""
    return any(marker in each.entries for each in _tables(table) for marker in _MARKERS)


def _tables(table: Table) -> Iterator[Table]:
    yield table
    variables, rules = table.entries.get("vars"), table.entries.get("rules")
    for node in variables.entries.values() if isinstance(variables, Table) else ():
        if isinstance(node, Table):
            yield node
    for node in rules if isinstance(rules, Items) else ():
        if isinstance(node, Table):
            yield node

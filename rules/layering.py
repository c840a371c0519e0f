"""Layers of one group: what the shipped packs, the organisation and the team say of it, merged leaf by leaf.

A rule file of a later layer (a later directory or file of the bundle) that has the group of an earlier one changes it:

    group: probability-consistency
    vars:
      gap_stop: {value: 0.02}               # the other keys of the variable stay
    rules:
      - id: logprob-gap-stop                # by `id`; a record rule by `record`
        severity: page
        unset: [keep]                       # back to the default
        final: [expr]                       # no later layer may change it

A layer is a flat table of leaves by path, so that merging is "the later leaf wins": associative and idempotent. `unset` is a
leaf too, without a value. Lists (`next`) are leaves: they are replaced, not joined. Every leaf keeps the place at which it was
written, which is its provenance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rules.config_errors import ConfigError, Mark
from rules.names import suggestion
from rules.yaml_tree import Items, Node, Scalar, Table

LeafPath = tuple[str, ...]
"""("head", "layer"), ("vars", "gap_stop", "value"), ("rules", "logprob-gap-stop", "expr"); a record rule is "record NAME"."""

_SECTIONS: Final = frozenset({"vars", "rules", "overrides", "final", "unset"})
_MARKERS: Final = frozenset({"final", "unset"})
_IDENTITY: Final = frozenset({"id", "record", "group"})


class Leaf(NamedTuple):
    """One field as one layer has it."""

    key: Mark
    """Where its key stands."""
    node: Node | None
    """None: unset."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer, or several merged ones, say of a group."""

    leaves: Mapping[LeafPath, Leaf] = field(default_factory=dict)
    final: Mapping[LeafPath, Mark] = field(default_factory=dict)
    """Fields that no later layer may change, and where that is said."""
    places: Mapping[LeafPath, Mark] = field(default_factory=dict)
    """Where the file, a variable or a rule was first written."""
    overrides: tuple[Node, ...] = ()


def merge(earlier: Layer, later: Layer) -> Layer:
    """Both layers in one; of each field the later one's. Associative and idempotent; `Layer()` changes nothing."""
    known = set(map(id, earlier.overrides))
    return Layer(
        {**earlier.leaves, **later.leaves},
        {**later.final, **earlier.final},
        {**later.places, **earlier.places},
        (*earlier.overrides, *(node for node in later.overrides if id(node) not in known)),
    )


def read_layer(tree: Table, fields: Mapping[str, Sequence[str]], errors: list[ConfigError]) -> Layer:
    """What a file says. `fields` are the keys that exist by kind (head, vars, alert, record), for `final` and `unset`.

    Faults of shape are appended to `errors`; those of values are found when the merged tree is read.
    """
    reading = _Reading(fields, errors)
    reading.table(("head",), tree, fields["head"], skip=_SECTIONS)
    variables = tree.entries.get("vars")
    if isinstance(variables, Table):
        for name, node in variables.entries.items():
            if isinstance(node, Table):
                reading.table(("vars", name), node, fields["vars"])
            else:
                errors.append(node.mark.error(f"{name} is no number alone (write {name}: {{value: ..., unit: ..., doc: ...}})"))
    elif variables is not None:
        errors.append(variables.mark.error("vars are named entries (write name: {value: ..., unit: ..., doc: ...})"))
    rules = tree.entries.get("rules", Items((), tree.mark))
    if not isinstance(rules, Items):
        errors.append(rules.mark.error("expected a list of rules (write - alert: ... or - id: ...)"))
    else:
        for node in rules:
            reading.rule(node)
    overrides = tree.entries.get("overrides", Items((), tree.mark))
    if not isinstance(overrides, Items):
        errors.append(overrides.mark.error("expected a list (write - match: {label: glob})"))
        overrides = Items((), tree.mark)
    return Layer(reading.leaves, reading.final, reading.places, overrides.nodes)


class _Reading:
    """One file on its way into a layer."""

    def __init__(self, fields: Mapping[str, Sequence[str]], errors: list[ConfigError]) -> None:
        self.leaves: Final[dict[LeafPath, Leaf]] = {}
        self.final: Final[dict[LeafPath, Mark]] = {}
        self.places: Final[dict[LeafPath, Mark]] = {}
        self._fields = fields
        self._errors = errors

    def rule(self, node: Node) -> None:
        if not isinstance(node, Table):
            self._errors.append(node.mark.error("a rule is a mapping (write - alert: ..., - record: ... or - id: ...)"))
            return
        kind = "record" if "record" in node.entries else "alert"
        name = node.entries.get("record" if kind == "record" else "id")
        if not isinstance(name, Scalar) or not isinstance(name.value, str):
            where = node.mark if name is None else name.mark
            self._errors.append(where.error("a rule needs its name as text (write id: my-rule, or record: my_name)"))
            return
        path = ("rules", f"record {name.value}" if kind == "record" else name.value)
        if first := self.places.get(path):
            what = "record" if kind == "record" else "id"
            place = f"{first.file}:{first.line}"
            self._errors.append(name.mark.error(f"{what} {name.value!r} is there twice, first in {place} (keep one)"))
            return
        self.table(path, node, self._fields[kind])

    def table(self, path: LeafPath, table: Table, known: Sequence[str], skip: frozenset[str] = _MARKERS) -> None:
        self.places[path] = table.mark
        for key, node in table.entries.items():
            if key not in skip:
                self.leaves[(*path, key)] = Leaf(table.key_mark(key), node)
        for name, mark in self._names(table, "unset", known):
            if name in _IDENTITY:
                self._errors.append(mark.error(f"{name!r} is what the entry is found by (it cannot be unset)"))
            elif name in table.entries:
                self._errors.append(mark.error(f"{name!r} is set here and unset here (keep one)"))
            else:
                self.leaves[(*path, name)] = Leaf(mark, None)
        for name, mark in self._names(table, "final", known):
            self.final[(*path, name)] = mark

    def _names(self, table: Table, key: str, known: Sequence[str]) -> list[tuple[str, Mark]]:
        """The field names in `final` or `unset`."""
        node = table.entries.get(key)
        if node is None:
            return []
        if not isinstance(node, Items):
            self._errors.append(node.mark.error(f"expected a list of fields (write {key}: [expr])"))
            return []
        found: list[tuple[str, Mark]] = []
        for item in node:
            name = item.value if isinstance(item, Scalar) else None
            if name in known and isinstance(name, str):
                found.append((name, item.mark))
            else:
                text = item.text if isinstance(item, Scalar) else "this"
                hint = suggestion(text, known) or f" (fields here: {', '.join(known)})"
                self._errors.append(item.mark.error(f"{text!r} is no field{hint}"))
        return found


def conflicts(earlier: Layer, later: Layer) -> list[ConfigError]:
    """What the later layer may not do: change a final field, unset what nobody set, change a rule that is not there."""
    errors: list[ConfigError] = []
    for path, leaf in later.leaves.items():
        if path[-1] in _IDENTITY:
            continue
        if path in earlier.final:
            errors.append(leaf.key.error(_is_final(path, earlier.final[path])))
        elif leaf.node is None and (path not in earlier.leaves or earlier.leaves[path].node is None):
            errors.append(leaf.key.error(f"{_spoken(path)} is not set by an earlier layer (remove it from `unset`)"))
    ids = [path[1] for path in earlier.places if path[0] == "rules"]
    for path in strangers(earlier, later):
        named = later.leaves.get((*path, "id"))
        mark = later.places[path] if named is None or named.node is None else named.node.mark
        hint = suggestion(path[1], ids) or " (a new rule begins with alert: MyAlert)"
        errors.append(mark.error(f"no earlier layer has a rule with id {path[1]!r} in this group{hint}"))
    for override in later.overrides:
        errors += _final_overridden(earlier, override)
    return errors


def strangers(earlier: Layer, later: Layer) -> list[LeafPath]:
    """The rules that the later layer means to change and that are not there."""
    rules = [path for path in later.places if path[0] == "rules" and not path[1].startswith("record ")]
    return [path for path in rules if path not in earlier.places and (*path, "alert") not in later.leaves]


def without(layer: Layer, paths: Collection[LeafPath]) -> Layer:
    """A layer without some of its rules."""
    places = {path: mark for path, mark in layer.places.items() if path not in paths}
    return replace(layer, places=places, leaves={path: leaf for path, leaf in layer.leaves.items() if path[:2] not in paths})


def unset_of_nothing(layer: Layer) -> list[ConfigError]:
    """Every `unset` of a layer that has none before it."""
    text = "nothing to unset: no earlier layer has this group (leave the field out)"
    return [leaf.key.error(text) for leaf in layer.leaves.values() if leaf.node is None]


def _final_overridden(earlier: Layer, override: Node) -> list[ConfigError]:
    errors: list[ConfigError] = []
    entries = override.entries if isinstance(override, Table) else {}
    for section, path in (("vars", ("vars", "", "value")), ("severity", ("rules", "", "severity"))):
        table = entries.get(section)
        for name in table.entries if isinstance(table, Table) else ():
            full = (path[0], name, path[2])
            if full in earlier.final and isinstance(table, Table):
                errors.append(table.key_mark(name).error(_is_final(full, earlier.final[full])))
    return errors


def _is_final(path: LeafPath, mark: Mark) -> str:
    place = f"{mark.file}:{mark.line}:{mark.column}"
    return f"{_spoken(path)} is final, see {place} (remove it here, or ask the owner of that file)"


def _spoken(path: LeafPath) -> str:
    return f"{path[-1]!r}" if path[0] == "head" else f"{path[-1]!r} of {path[1]}"


def to_tree(layer: Layer) -> Table:
    """The merged layers as one rule file, each part at its own place."""
    places = layer.places
    top = _Building(places[("head",)])
    tables: dict[LeafPath, _Building] = {}
    variables: dict[str, Node] = {}
    variable_keys: dict[str, Mark] = {}
    for path, mark in places.items():
        if path[0] != "head":
            tables[path] = _Building(mark)
    for path, leaf in layer.leaves.items():
        if leaf.node is None:
            continue
        if path[0] == "head":
            top.put(path[1], leaf.key, leaf.node)
        else:
            tables[path[:2]].put(path[2], leaf.key, leaf.node)
    rules: list[Node] = []
    for path in dict.fromkeys(path[:2] for path in layer.leaves if path[0] != "head"):
        if path[0] == "vars":
            variables[path[1]] = tables[path].table
            variable_keys[path[1]] = tables[path].table.mark
        else:
            rules.append(tables[path].table)
    mark = places[("head",)]
    if variables:
        top.put("vars", mark, Table(variables, mark, variable_keys))
    top.put("rules", mark, Items(tuple(rules), mark))
    if layer.overrides:
        top.put("overrides", layer.overrides[0].mark, Items(layer.overrides, layer.overrides[0].mark))
    return top.table


class _Building:
    """A table that is being filled."""

    def __init__(self, mark: Mark) -> None:
        self.table: Final = Table({}, mark)

    def put(self, key: str, mark: Mark, node: Node) -> None:
        self.table.entries[key] = node
        self.table.keys[key] = mark

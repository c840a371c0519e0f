"""Reads a strict YAML tree into msgspec Structs: unknown keys with a suggestion, types and ranges, all errors at once.

The schema is the Struct itself. Understood: str, int, float, bool, StrEnum and Literal of text, list, tuple, dict[str, T],
nested Structs, `T | None` (the key may be left out), unions of a scalar with a list or a mapping, `Any`, and the constraints
of `msgspec.Meta`. A number is never read from quoted text nor text from a number, so `version: 1.10` cannot become 1.1.
"""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path
from typing import Any, TypeVar

from msgspec import inspect

from rules.config_errors import ConfigError, ConfigErrors
from rules.names import suggestion
from rules.strict_yaml import read_text, read_tree
from rules.yaml_tree import Items, Node, Scalar, Table

T = TypeVar("T")


def load(text: str, file: str, schema: type[T]) -> T:
    """The value of a YAML text. `file` is the name that the messages carry.

    Raises ConfigErrors with every fault of syntax, keys and types; never anything else, whatever the text.
    """
    value, _ = load_tree(text, file, schema)
    return value


def load_path(path: Path, schema: type[T]) -> T:
    """`load` for a file; one that cannot be read raises ConfigErrors too."""
    errors: list[ConfigError] = []
    text = read_text(path, errors)
    if text is None:
        raise ConfigErrors(errors)
    return load(text, str(path), schema)


def load_tree(text: str, file: str, schema: type[T]) -> tuple[T, Node]:
    """Like `load`, with the tree, so that later checks can point at a value: `find(node, "rules", 0, "expr").mark`."""
    errors: list[ConfigError] = []
    node = read_tree(text, file, errors)
    value = None if node is None else convert(node, schema, errors)
    if errors or value is None or node is None:
        raise ConfigErrors(sorted(errors, key=lambda error: (error.line, error.column)))
    return value, node


def convert(node: Node, schema: type[T], errors: list[ConfigError]) -> T | None:
    """The value of a tree, or None with the faults appended to `errors`."""
    before = len(errors)
    kind: Any = schema  # mypy takes type[T] for something without a hash
    value = _convert(node, _type_info(kind), errors)
    return value if len(errors) == before else None


@functools.cache
def _type_info(schema: Any) -> inspect.Type:
    """What a type is made of. Looking takes longer than reading a rule; there are a handful of types and thousands of rules."""
    return inspect.type_info(schema)


def _convert(node: Node, kind: inspect.Type, errors: list[ConfigError]) -> Any:
    match kind:
        case inspect.StructType():
            return _struct(node, kind, errors)
        case inspect.DictType():
            return _dict(node, kind, errors)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return _list(node, kind, errors)
        case inspect.TupleType():
            return _tuple(node, kind, errors)
        case inspect.UnionType():
            return _union(node, kind, errors)
        case inspect.AnyType():
            return plain(node)
        case _:
            return _scalar(node, kind, errors)


def plain(node: Node) -> Any:
    """The tree as dict, list and scalars."""
    if isinstance(node, Table):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, Items):
        return [plain(item) for item in node]
    return node.value


def _struct(node: Node, kind: inspect.StructType, errors: list[ConfigError]) -> Any:
    if not isinstance(node, Table):
        errors.append(node.mark.error(f"expected keys such as {_names(kind)}, got {_what(node)}"))
        return None
    fields = {field.encode_name: field for field in kind.fields}
    for key in node.entries.keys() - fields.keys():
        hint = suggestion(key, fields) or f" (known here: {', '.join(fields)})"
        errors.append(node.key_mark(key).error(f"unknown key {key!r}{hint}"))
    before = len(errors)
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in node.entries:
            values[field.name] = _convert(node.entries[key], field.type, errors)
        elif field.required:
            errors.append(node.mark.error(f"key {key!r} is missing (add `{key}: ...`)"))
    if len(errors) > before:
        return None
    try:
        return kind.cls(**values)
    except (ValueError, TypeError) as error:  # a __post_init__ that looks at several fields together
        errors.append(node.mark.error(str(error)))
        return None


def _names(kind: inspect.StructType) -> str:
    return ", ".join(field.encode_name for field in kind.fields[:3])


def _dict(node: Node, kind: inspect.DictType, errors: list[ConfigError]) -> Any:
    if not isinstance(node, Table):
        errors.append(node.mark.error(f"expected `name: value` entries, got {_what(node)}"))
        return None
    values: dict[str, Any] = {}
    for key, value in node.entries.items():
        key_node = Scalar(key, key, node.key_mark(key), True)
        values[_convert(key_node, kind.key_type, errors) or key] = _convert(value, kind.value_type, errors)
    return values


def _list(
    node: Node,
    kind: inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType,
    errors: list[ConfigError],
) -> Any:
    if not isinstance(node, Items):
        errors.append(node.mark.error(f"expected a list, got {_what(node)} (write [...])"))
        return None
    values = [_convert(item, kind.item_type, errors) for item in node]
    if kind.min_length is not None and len(values) < kind.min_length:
        errors.append(node.mark.error(f"expected at least {kind.min_length} entries, got {len(values)} (add what is missing)"))
    if kind.max_length is not None and len(values) > kind.max_length:
        errors.append(node.mark.error(f"expected at most {kind.max_length} entries, got {len(values)}"))
    match kind:
        case inspect.VarTupleType():
            return tuple(values)
        case inspect.ListType():
            return values
        case _:
            return frozenset(values) if isinstance(kind, inspect.FrozenSetType) else set(values)


def _tuple(node: Node, kind: inspect.TupleType, errors: list[ConfigError]) -> Any:
    if not isinstance(node, Items) or len(node.nodes) != len(kind.item_types):
        got = f"{len(node.nodes)} entries" if isinstance(node, Items) else _what(node)
        errors.append(node.mark.error(f"expected a list of {len(kind.item_types)} entries, got {got}"))
        return None
    return tuple(_convert(item, item_type, errors) for item, item_type in zip(node, kind.item_types, strict=True))


def _union(node: Node, kind: inspect.UnionType, errors: list[ConfigError]) -> Any:
    """The first member that takes the node; else the faults of the member that has its shape."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    fitting = [member for member in members if isinstance(node, _shape(member)) or isinstance(member, inspect.AnyType)]
    attempts: list[list[ConfigError]] = []
    for member in fitting or members:
        attempt: list[ConfigError] = []
        value = _convert(node, member, attempt)
        if not attempt:
            return value
        attempts.append(attempt)
    if len(attempts) == 1:
        errors.extend(attempts[0])
    else:
        wanted = " or ".join(dict.fromkeys(_expected(member) for member in members))
        errors.append(node.mark.error(f"expected {wanted}, got {_what(node)}"))
    return None


def _shape(kind: inspect.Type) -> type[Node]:
    match kind:
        case inspect.StructType() | inspect.DictType():
            return Table
        case inspect.ListType() | inspect.TupleType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return Items
        case _:
            return Scalar


def _expected(kind: inspect.Type) -> str:
    match kind:
        case inspect.StrType():
            return "text"
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a number"
        case inspect.BoolType():
            return "true or false"
        case inspect.EnumType():
            return "one of " + ", ".join(str(member.value) for member in kind.cls)
        case inspect.LiteralType():
            return "one of " + ", ".join(map(str, kind.values))
        case _:
            return {Table: "keys", Items: "a list", Scalar: "a value"}[_shape(kind)]


def _what(node: Node) -> str:
    if isinstance(node, Table):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if isinstance(node.value, bool):
        return f"the truth value {node.text}"
    if isinstance(node.value, str):
        return f"the text {node.text[:40]!r}"
    return f"the number {node.text}"


def _scalar(node: Node, kind: inspect.Type, errors: list[ConfigError]) -> Any:
    if not isinstance(node, Scalar):
        errors.append(node.mark.error(f"expected {_expected(kind)}, got {_what(node)}"))
        return None
    value = node.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    problem = ""
    match kind:
        case inspect.StrType():
            if not isinstance(value, str):
                problem = f'expected text, got {_what(node)} (write "{node.text}" in quotes)'
            else:
                problem = _text_problem(value, kind)
        case inspect.BoolType() if not isinstance(value, bool):
            problem = f"expected true or false, got {_what(node)}"
        case inspect.IntType() | inspect.FloatType():
            if not is_number:
                problem = f"expected {_expected(kind)}, got {_what(node)} ({_as_number(node)})"
            elif isinstance(kind, inspect.IntType) and not isinstance(value, int):
                problem = f"expected a whole number, got {node.text}"
            else:
                value = float(value) if isinstance(kind, inspect.FloatType) else value
                problem = _range_problem(float(value), kind)
        case inspect.EnumType() | inspect.LiteralType():
            value, problem = _choice(node, kind)
        case inspect.BoolType():
            pass
        case _:
            raise TypeError(f"the schema type {kind!r} is not supported")
    if problem:
        errors.append(node.mark.error(problem))
        return None
    return value


def _choice(node: Scalar, kind: inspect.EnumType | inspect.LiteralType) -> tuple[Any, str]:
    options: list[Any] = [member.value for member in kind.cls] if isinstance(kind, inspect.EnumType) else list(kind.values)
    if node.value not in options or type(node.value) is not type(options[options.index(node.value)]):
        hint = suggestion(node.text, [str(option) for option in options]) or " (write one of them)"
        return None, f"{node.text[:40]!r} is none of {', '.join(map(str, options))}{hint}"
    return (kind.cls(node.value) if isinstance(kind, inspect.EnumType) else node.value), ""


def _as_number(node: Scalar) -> str:
    """What to write where a number is wanted."""
    if isinstance(node.value, str):
        if node.quoted and _looks_numeric(node.value):
            return "remove the quotes"
        percent, sign, rest = node.value.partition("%")
        if sign and not rest.strip() and _looks_numeric(percent.strip()):
            return f"write a ratio: {percent.strip()} % is {float(percent) / 100:g}"
    return "write digits, such as 5"


def _looks_numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _text_problem(value: str, kind: inspect.StrType) -> str:
    if kind.min_length and len(value) < kind.min_length:
        return "expected text, got an empty one" if not value else f"expected at least {kind.min_length} characters"
    if kind.max_length is not None and len(value) > kind.max_length:
        return f"expected at most {kind.max_length} characters, got {len(value)}"
    if kind.pattern and not re.search(kind.pattern, value):
        return f"{value[:60]!r} does not match {kind.pattern}"
    return ""


def _range_problem(value: float, kind: inspect.IntType | inspect.FloatType) -> str:
    checks = (
        (kind.ge, value.__ge__, "at least"),
        (kind.gt, value.__gt__, "more than"),
        (kind.le, value.__le__, "at most"),
        (kind.lt, value.__lt__, "less than"),
    )
    wanted = [f"{words} {bound:g}" for bound, holds, words in checks if bound is not None and not holds(float(bound))]
    return f"{value:g} is out of range (write {' and '.join(wanted)})" if wanted else ""

"""JSON bodies, read by the strict reader of configuration: hints for unknown keys, all faults at once, each with its path."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn, TypeVar

from starlette.exceptions import HTTPException

from rules.config_errors import ConfigError, Mark
from rules.typed_yaml import convert
from rules.yaml_tree import Items, Node, Scalar, Table

T = TypeVar("T")

_MAX_DEPTH: Final = 20


def parse(body: bytes, content_type: str, schema: type[T]) -> T:
    """The value of a body. Raises HTTPException: 415 for another type, 400 with every fault."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send JSON: Content-Type: application/json")
    try:
        value = json.loads(body, object_pairs_hook=_once, parse_constant=_no_number)
        tree = _tree(value, "$", 0)
    except RecursionError:
        raise HTTPException(400, "the body is nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError too
        raise HTTPException(400, f"the body is no JSON: {error}") from None
    errors: list[ConfigError] = []
    found = convert(tree, schema, errors)
    if errors or found is None:
        raise HTTPException(400, "; ".join(f"{error.file}: {error.message}" for error in errors))
    return found


def _tree(value: Any, path: str, depth: int) -> Node:
    mark = Mark(path, 0, 0)
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        return Table({key: _tree(each, f"{path}.{key[:60]}", depth + 1) for key, each in value.items()}, mark)
    if isinstance(value, list):
        return Items(tuple(_tree(each, f"{path}[{number}]", depth + 1) for number, each in enumerate(value)), mark)
    if value is None:
        raise ValueError(f"{path} is null (leave the key out)")
    return Scalar(value, str(value), mark, isinstance(value, str))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is written twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")

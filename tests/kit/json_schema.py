"""A validator for the part of JSON Schema (draft 7) that our schema uses. An unknown keyword fails: it would check nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_SILENT = frozenset({"$schema", "title", "description", "default", "definitions", "then", "else"})


def faults(value: Any, schema: Any, root: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """What is wrong with a value, each with its path; nothing when it is valid."""
    for keyword, argument in schema.items():
        if keyword in _SILENT:
            continue
        yield from _faults(value, keyword, argument, schema, root, path)


def _faults(value: Any, keyword: str, argument: Any, schema: Any, root: Mapping[str, Any], path: str) -> Iterator[str]:
    match keyword:
        case "$ref":
            assert set(schema) <= {"$ref"}, "in draft 7 a reference hides what stands beside it"
            target: Any = root
            for part in argument.removeprefix("#/").split("/"):
                target = target[part]
            yield from faults(value, target, root, path)
        case "allOf":
            for each in argument:
                yield from faults(value, each, root, path)
        case "if":
            branch = "else" if any(True for _ in faults(value, argument, root, path)) else "then"
            yield from faults(value, schema[branch], root, path)
        case "type":
            fits = isinstance(value, _TYPES[argument]) and (argument == "boolean" or not isinstance(value, bool))
            if not fits:
                yield f"{path}: not of type {argument}"
        case "enum":
            if value not in argument:
                yield f"{path}: none of {argument}"
        case "properties":
            for key, each in argument.items() if isinstance(value, dict) else ():
                if key in value:
                    yield from faults(value[key], each, root, f"{path}/{key}")
        case "additionalProperties":
            for key, each in value.items() if isinstance(value, dict) else ():
                if key not in schema.get("properties", {}):
                    yield from (
                        [f"{path}/{key}: unknown key"] if argument is False else faults(each, argument, root, f"{path}/{key}")
                    )
        case "propertyNames":
            for key in value if isinstance(value, dict) else ():
                yield from faults(key, argument, root, f"{path}/{key}")
        case "items":
            for index, each in enumerate(value) if isinstance(value, list) else ():
                yield from faults(each, argument, root, f"{path}/{index}")
        case "required":
            yield from (f"{path}: {key} is missing" for key in argument if isinstance(value, dict) and key not in value)
        case "pattern":
            if isinstance(value, str) and not re.search(argument, value):
                yield f"{path}: {value!r} does not match {argument}"
        case _:
            yield from _limits(value, keyword, argument, path)


def _limits(value: Any, keyword: str, argument: Any, path: str) -> Iterator[str]:
    match keyword:
        case "minLength" if isinstance(value, str):
            wrong = len(value) < argument
        case "minItems" if isinstance(value, list):
            wrong = len(value) < argument
        case "maxItems" if isinstance(value, list):
            wrong = len(value) > argument
        case "minProperties" if isinstance(value, dict):
            wrong = len(value) < argument
        case "minimum" if isinstance(value, int | float):
            wrong = value < argument
        case "maximum" if isinstance(value, int | float):
            wrong = value > argument
        case "minLength" | "minItems" | "maxItems" | "minProperties" | "minimum" | "maximum":
            wrong = False  # it is about values of another type
        case _:
            raise AssertionError(f"{path}: the keyword {keyword} is not known to this validator")
    if wrong:
        yield f"{path}: {keyword} is {argument}"

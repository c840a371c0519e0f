"""The syntax tree of the rule language, and the tree as text again. Reading text is the work of `language.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from collector.model import series_key

DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Duration:
    """A number of seconds, written with its unit."""

    seconds: float
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Text:
    value: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Metric:
    """A series: by canonical or recorded name with or without its label, or by a raw key."""

    name: str
    label: str | None = None
    label_value: str = ""
    raw: bool = False
    at: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return series_key(self.name, self.label, self.label_value)


Unit = Literal["records", "steps", "time"]


@dataclass(frozen=True, slots=True)
class Window:
    """The last samples of a series, by records, steps or seconds; `offset` moves the end back, in the same unit."""

    metric: Metric
    unit: Unit
    length: float
    offset: float = 0
    least: float = 0
    """By records: how many must be there, `length` if 0. `x[5..20]` has 5."""
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Node, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    operator: Literal["+", "-", "*", "/"]
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    operator: str
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    operator: Literal["and", "or"]
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


Node = Number | Duration | Text | Variable | Metric | Window | Call | Negate | Binary | Compare | Not | Logic


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node, from left to right."""
    match node:
        case Binary() | Compare() | Logic():
            return node.left, node.right
        case Not() | Negate():
            return (node.operand,)
        case Call():
            return node.arguments
        case Window():
            return (node.metric,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, outermost and leftmost first."""
    yield node
    for child in children(node):
        yield from walk(child)


# ---- back to text -------------------------------------------------------------------------------------------------------

_BINDING: Final = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6}


def render(node: Node) -> str:
    """The expression as text, with the parentheses it needs and no others. `parse(render(node)) == node`."""
    return _render(node, 0)


def _render(node: Node, outer: int) -> str:
    """`outer` is how tightly the context binds; a looser node goes into parentheses."""
    match node:
        case Logic() | Binary():
            binding = _BINDING[node.operator]
            text = f"{_render(node.left, binding)} {node.operator} {_render(node.right, binding + 1)}"
            return f"({text})" if binding < outer else text
        case Compare():
            text = f"{_render(node.left, 5)} {node.operator} {_render(node.right, 5)}"
            return f"({text})" if outer > 4 else text
        case Not():
            text = f"not {_render(node.operand, 3)}"
            return f"({text})" if outer > 3 else text
        case Negate():
            # Not "-3": that would be read back as a number.
            inner = _render(node.operand, 7)
            return f"-({inner})" if isinstance(node.operand, Number) else f"-{inner}"
        case Call():
            return f"{node.function}({', '.join(_render(item, 0) for item in node.arguments)})"
        case _:
            return _render_leaf(node)


def _render_leaf(node: Number | Duration | Text | Variable | Metric | Window) -> str:
    match node:
        case Number():
            return format_number(node.value)
        case Duration():
            return _duration(node.seconds)
        case Text():
            return '"' + node.value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case Variable():
            return f"${node.name}"
        case Metric():
            return f"`{node.name}`" if node.raw else node.key
        case Window():
            return f"{_render_leaf(node.metric)}[{_extent(node)}]"


def format_number(value: float) -> str:
    """The shortest text that reads back as the same number."""
    value = float(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value)) if value or math.copysign(1.0, value) > 0 else "-0"
    return repr(value)


def _duration(value: float) -> str:
    for unit in ("d", "h", "m", "s"):
        scale = DURATION_UNITS[unit]
        if value >= scale and (value / scale).is_integer() and value / scale * scale == value:
            return f"{int(value / scale)}{unit}"
    return f"{value!r}s" if "e" not in repr(value) else f"{value:.12f}s"


def _extent(window: Window) -> str:
    if window.unit == "time":
        return _duration(window.length) + (f" offset {_duration(window.offset)}" if window.offset else "")
    unit = " steps" if window.unit == "steps" else ""
    least = f"{int(window.least)}.." if window.least else ""
    return f"{least}{int(window.length)}{unit}" + (f" offset {int(window.offset)}" if window.offset else "")

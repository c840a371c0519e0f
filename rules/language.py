"""The rule language as data: text -> syntax tree -> text. The grammar is `grammar.lark`; meaning is given by `compile.py`.

Errors:

    LanguageError      the text is no expression; carries the offset of the fault in the text
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import lark

from collector.model import series_key

MAX_CHARS: Final = 4_000
MAX_DEPTH: Final = 60


class LanguageError(ValueError):
    """What is wrong with an expression, and where: `offset` counts characters from 0."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


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


@functools.cache
def _parser() -> lark.Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(text: str) -> Node:
    """The syntax tree of an expression.

    Raises LanguageError; never anything else, whatever the text.
    """
    if len(text) > MAX_CHARS:
        raise LanguageError(f"the expression has {len(text)} characters, the limit is {MAX_CHARS} (use record rules)", 0)
    try:
        tree = _parser().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        raise _syntax_error(error, text) from None
    node = _node(tree.children[0], 0)
    return node


def _syntax_error(error: lark.exceptions.UnexpectedInput, text: str) -> LanguageError:
    offset = getattr(error, "pos_in_stream", None)
    if isinstance(error, lark.exceptions.UnexpectedToken):
        token = error.token
        if token.type == "$END":
            return LanguageError("the expression ends too early (something is missing at its end)", len(text))
        at = token.start_pos or 0
        if token.type == "COMPARISON":
            return LanguageError(f"{token} after a comparison (write `a < b and b < c`)", at)
        return LanguageError(f"{str(token)!r} is not expected here", at)
    at = offset if isinstance(offset, int) and 0 <= offset <= len(text) else 0
    return LanguageError(_character_hint(text, at), at)


_CHARACTER_HINTS: Final = {
    "=": "a single '=' (write == to compare)",
    "&": "'&' is unknown (write `and`)",
    "|": "'|' is unknown (write `or`)",
    "!": "'!' is unknown (write `not` or !=)",
    "'": "single quotes (write text in double quotes)",
    "^": "'^' is unknown (write x * x)",
    "%": "'%' is unknown (write a ratio: 5 % is 0.05)",
    '"': 'a text without its end (write "...", with \\" and \\\\ inside)',
    "`": "a raw key without its end (write `key`)",
}


def _character_hint(text: str, at: int) -> str:
    rest = text[at:]
    character = rest[:1]
    if rest[:3].lower() == "and" or rest[:2].lower() == "or" or rest[:3].lower() == "not":
        return f"{rest.split()[0]!r} is not expected here"
    if character in _CHARACTER_HINTS:
        return _CHARACTER_HINTS[character]
    return f"{character!r} is not expected here"


_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """The seconds of a duration such as `90s`, `10m`, `1.5h`. Raises ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration (write a number with its unit: 90s, 10m, 6h, 2d)")
    return float(match[1]) * _DURATION_UNITS[match[2]]


def _position(item: lark.Tree[lark.Token] | lark.Token | None) -> int:
    if isinstance(item, lark.Token):
        return item.start_pos or 0
    if item is None or item.meta.empty:
        return 0
    return item.meta.start_pos


def _node(tree: lark.Tree[lark.Token] | lark.Token, depth: int) -> Node:
    """The tree of the parser as nodes of ours."""
    assert isinstance(tree, lark.Tree)
    at = _position(tree)
    if depth > MAX_DEPTH:
        raise LanguageError(f"nested deeper than {MAX_DEPTH} levels (use record rules)", at)
    parts: list[Any] = tree.children

    def below(index: int) -> Node:
        part = parts[index]
        assert part is not None
        return _node(part, depth + 1)

    match tree.data:
        case "or_" | "and_":
            return Logic("or" if tree.data == "or_" else "and", below(0), below(1), at)
        case "not_":
            return Not(below(0), at)
        case "compare":
            return Compare(str(parts[1]), below(0), below(2), at)
        case "add" | "subtract" | "multiply" | "divide":
            return Binary(_OPERATORS[str(tree.data)], below(0), below(1), at)
        case "negate":
            operand = below(0)
            # A signed number is a number: -1 prints and compares as one.
            return Number(-operand.value, at) if isinstance(operand, Number) else Negate(operand, at)
        case "window":
            return _window(parts, at)
        case "call":
            given: list[Any] = parts[1].children
            return Call(str(parts[0]), tuple(_node(item, depth + 1) for item in given if item is not None), at)
        case _:
            return _leaf(str(tree.data), parts, at)


_OPERATORS: Final[dict[str, Literal["+", "-", "*", "/"]]] = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


def _leaf(kind: str, parts: list[Any], at: int) -> Node:
    word = str(parts[0])
    match kind:
        case "number":
            value = float(word)
            if math.isinf(value):
                raise LanguageError(f"{word} is infinite (write a finite number)", at)
            return Number(value, at)
        case "duration":
            return Duration(seconds(word), at)
        case "text":
            return Text(_unquoted(word), at)
        case "variable":
            return Variable(word, at)
        case "raw":
            return Metric(word[1:-1], raw=True, at=at)
        case "metric":
            if parts[1] is None:
                return Metric(word, at=at)
            return Metric(word, str(parts[1]), _unquoted(str(parts[2])), at=at)
        case _:
            raise AssertionError(f"the grammar has a rule {kind!r} that nothing reads")


def _window(parts: list[Any], at: int) -> Window:
    series, extent = parts
    metric = _leaf(str(series.data), series.children, _position(series))
    assert isinstance(metric, Metric)
    unit: Unit = extent.data
    *least, length, offset = extent.children
    read = seconds if unit == "time" else float
    size = read(str(length))
    if not 0 < size <= _LONGEST[unit]:
        raise LanguageError(f"a window has more than 0 and at most {_LONGEST[unit]:,} {_UNIT_WORDS[unit]}", _position(length))
    back = 0.0 if offset is None else read(str(offset))
    if back > _LONGEST[unit]:
        raise LanguageError(f"an offset is at most {_LONGEST[unit]:,} {_UNIT_WORDS[unit]}", _position(offset))
    fewest = float(str(least[0])) if least and least[0] is not None else 0.0
    if least and least[0] is not None and not 1 <= fewest <= size:
        raise LanguageError("a window m..n has 1 <= m <= n", _position(least[0]))
    return Window(metric, unit, size, back, fewest if fewest < size else 0.0, at)


_LONGEST: Final[dict[Unit, int]] = {"records": 10_000, "steps": 10_000, "time": 31 * 86_400}
_UNIT_WORDS: Final[dict[Unit, str]] = {"records": "records", "steps": "steps", "time": "seconds"}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


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
        scale = _DURATION_UNITS[unit]
        if value >= scale and (value / scale).is_integer() and value / scale * scale == value:
            return f"{int(value / scale)}{unit}"
    return f"{value!r}s" if "e" not in repr(value) else f"{value:.12f}s"


def _extent(window: Window) -> str:
    if window.unit == "time":
        return _duration(window.length) + (f" offset {_duration(window.offset)}" if window.offset else "")
    unit = " steps" if window.unit == "steps" else ""
    least = f"{int(window.least)}.." if window.least else ""
    return f"{least}{int(window.length)}{unit}" + (f" offset {int(window.offset)}" if window.offset else "")

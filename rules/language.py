"""The rule language as data: text -> syntax tree -> text. The grammar is `grammar.lark`; meaning is given by `compile.py`.

Errors:

    LanguageError      the text is no expression; carries the offset of the fault in the text
"""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path
from typing import Any, Final, Literal

import lark

from rules.syntax import (
    DURATION_UNITS,
    Binary,
    Call,
    Compare,
    Duration,
    Logic,
    Metric,
    Negate,
    Node,
    Not,
    Number,
    Text,
    Unit,
    Variable,
    Window,
)

MAX_CHARS: Final = 4_000
MAX_DEPTH: Final = 60


class LanguageError(ValueError):
    """What is wrong with an expression, and where: `offset` counts characters from 0."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


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
        if token == "=":
            return LanguageError(_CHARACTER_HINTS["="], at)
        return LanguageError(_unexpected(str(token)), at)
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
        return _unexpected(rest.split()[0])
    if character in _CHARACTER_HINTS:
        return _CHARACTER_HINTS[character]
    return _unexpected(character)


def _unexpected(word: str) -> str:
    mend = "a time is written with its unit, as 10m" if word in _TIME_WORDS else "an operator is missing, or this is too much"
    return f"{word!r} is not expected here ({mend})"


_TIME_WORDS: Final = frozenset({"sec", "second", "seconds", "min", "minute", "minutes", "hour", "hours", "day", "days"})


DURATION_PATTERN: Final = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
_DURATION: Final = re.compile(DURATION_PATTERN)


def seconds(text: str) -> float:
    """The seconds of a duration such as `90s`, `10m`, `1.5h`. Raises ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration (write a number with its unit: 90s, 10m, 6h, 2d)")
    return float(match[1]) * DURATION_UNITS[match[2]]


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

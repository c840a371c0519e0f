"""The Python dict that Hugging Face's Trainer prints per log: found in noisy text, read without evaluating anything.

Values are numbers, numbers as text (transformers >= 5 prints '0.0123'), nan, inf, None, True, numpy's repr; anything else
(lists, nested dicts, text) is skipped over. A terminal may have cut the dict at any column, so a text that ends inside the
dict is told apart from one that is no such dict.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from tocsin import wire


class Status(enum.Enum):
    """How a dict ended."""

    COMPLETE = enum.auto()
    OPEN = enum.auto()
    """The text ends inside it: the rest may stand on the next line."""
    BROKEN = enum.auto()
    """Something that no such dict has."""


class Literal(NamedTuple):
    """A dict read from text, as far as it went."""

    status: Status
    values: dict[str, float | str | None]
    """Numbers as float (also those printed as text), None; other text as it is."""
    end: int
    """Where reading stopped: after the closing brace of a complete one."""


MAX_NESTED_CHARS = 16 * 1024
"""A list or dict inside may be this long; metrics have none, so it only bounds the work on other text."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_PAIR = re.compile(
    rf"\s*({_TEXT})\s*:\s*"
    rf"(?:({_NUMBER})|({_TEXT})|(nan|[-+]?inf|None|True|False)|(?:np|numpy)\.\w+\(({_NUMBER}|nan|[-+]?inf|True|False)\))"
    r"\s*([,}])"
)
_KEY = re.compile(rf"\s*({_TEXT})\s*:\s*")
_BEGUN_PAIR = re.compile(
    r"\s*(?:\Z|'(?:[^'\\]|\\.)*\\?\Z|\"(?:[^\"\\]|\\.)*\\?\Z"  # inside the key
    rf"|(?:{_TEXT})\s*(?:\Z|:\s*(?:\Z"  # before the value
    r"|'(?:[^'\\]|\\.)*\\?\Z|\"(?:[^\"\\]|\\.)*\\?\Z"  # inside a text
    rf"|(?:[-+\w.]+(?:\([^()]*\)?)?|{_TEXT})\s*\Z)))"  # inside or after another value
)
_MARK = re.compile(r"\s*([,}])")
_CONSTANTS = {"True": 1.0, "False": 0.0, "None": None}
_OPENING, _CLOSING = "[{(", "]})"


def read(text: str, start: int) -> Literal:
    """The dict that begins with the brace at `start`."""
    if (plain := _plain(text, start)) is not None:
        return plain
    values: dict[str, float | str | None] = {}
    position = start + 1
    match_pair = _PAIR.match
    while True:
        while match := match_pair(text, position):
            key, number, quoted, constant, boxed, mark = match.groups()
            position = match.end()
            if number is not None:
                values[key[1:-1]] = float(number)
            elif quoted is not None:
                values[key[1:-1]] = _unquoted(quoted[1:-1])
            else:
                word = constant if constant is not None else boxed
                values[key[1:-1]] = _CONSTANTS[word] if word in _CONSTANTS else float(word)
            if mark == "}":
                return Literal(Status.COMPLETE, values, position)
        status, position = _other(text, position)
        if status is not None:
            return Literal(status, values, position)


def _plain(text: str, start: int) -> Literal | None:
    """A dict as repr() prints it, of nothing but plain keys, numbers, numbers as text, None and booleans: ten times as fast.
    None for any other text."""
    end = text.find("}", start)
    if end < 0:
        return None
    values: dict[str, float | str | None] = {}
    for pair in text[start + 1 : end].split(", "):
        key, colon, value = pair.partition("': ")
        if not colon or not key.startswith("'") or "'" in key[1:] or "\\" in key:
            return None
        if value[:1] == "'":
            if value[-1] != "'" or len(value) < 2 or "'" in value[1:-1] or "\\" in value:
                return None
            values[key[1:]] = _unquoted(value[1:-1])
            continue
        try:
            values[key[1:]] = float(value)
        except ValueError:
            if value not in _CONSTANTS:
                return None
            values[key[1:]] = _CONSTANTS[value]
    return Literal(Status.COMPLETE, values, end + 1)


def _other(text: str, position: int) -> tuple[Status | None, int]:
    """What stands where no plain pair does: an end, or (None, the place behind it) a list or dict to leave out."""
    if text[position : position + 64].lstrip().startswith("}"):  # an empty dict, a trailing comma
        return Status.COMPLETE, text.index("}", position) + 1
    if _BEGUN_PAIR.match(text, position):
        return Status.OPEN, position
    match = _KEY.match(text, position)
    if match is None or match.end() >= len(text) or text[match.end()] not in _OPENING:
        return Status.BROKEN, position
    end = _skip(text, match.end())
    if end is None:
        return (Status.OPEN if len(text) - match.end() <= MAX_NESTED_CHARS else Status.BROKEN), position
    mark = _MARK.match(text, end)
    if mark is None:
        return (Status.BROKEN if text[end:].strip() else Status.OPEN), position
    return (Status.COMPLETE if mark[1] == "}" else None), mark.end()


def _skip(text: str, start: int) -> int | None:
    """The place after the bracket that closes the one at `start`; None when the text ends before, or goes on for too long."""
    depth, quote, position = 0, "", start
    stop = min(len(text), start + MAX_NESTED_CHARS)
    while position < stop:
        char = text[position]
        if quote:
            if char == "\\":
                position += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return None


def _unquoted(text: str) -> float | str:
    """A number that was printed as text, else the text."""
    try:
        value = wire.metric_value(text)
    except ValueError:
        return text
    return text if value is None else value

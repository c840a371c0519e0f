"""What an unquoted YAML scalar is: a number, true or false, or text; and what has two readings and is none of them."""

from __future__ import annotations

import math
import re
from typing import Final

_NUMBER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_BARE_POINT: Final = re.compile(r"[-+]?\.[0-9]+([eE][-+]?[0-9]+)?")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9_]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|[-+]?0[xXoObB][0-9a-fA-F_]+")
_UNDERSCORES: Final = re.compile(
    r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?[0-9]+\.[0-9_]*_[0-9_]*([eE][-+]?[0-9]+)?"
)
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")
_NON_FINITE: Final = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)
_TRUTH: Final = frozenset({"yes", "no", "on", "off", "true", "false"})
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def resolve(text: str) -> tuple[str | int | float | bool, str]:
    """The value of an unquoted scalar and, when it has two readings, the message that says what to write instead."""
    if text in ("true", "false"):
        return text == "true", ""
    if text in _NULLS:
        return "", "an empty value (write the value, or remove the key)"
    if text.lower() in _TRUTH:
        return text, f'{text!r} is read as a truth value by some (write true or false, or "{text}" in quotes for text)'
    first = text[0]
    if first not in "0123456789+-.iInN<=":
        return text, ""
    if match := _NUMBER.fullmatch(text):
        if match[2] is None and match[3] is None:
            if len(text) > 18:
                return text, f"{text} is no number that a computer keeps exactly (quote it if it is a name)"
            return int(text), ""
        number = float(text)
        if math.isinf(number):
            return text, f"{text} is infinite (write a finite number)"
        return number, ""
    return text, _two_readings(text)


def _two_readings(text: str) -> str:
    """Why an unquoted scalar that begins like a number is none; "" when it is plain text."""
    if _BARE_POINT.fullmatch(text):
        return f"{text} is no number in YAML (write a digit before the point)"
    if _LEADING_ZERO.fullmatch(text):
        return f"{text} is octal to some and decimal to others (write a decimal number, or quote the text)"
    if _UNDERSCORES.fullmatch(text):
        return f"{text} has underscores (write {text.replace('_', '')})"
    if _BASE_60.fullmatch(text):
        return f'{text} is a base-60 number in YAML (write a duration with its unit, such as 90s, or quote a time: "{text}")'
    if _DATE.fullmatch(text):
        return f'{text} is a date in YAML (write it in quotes: "{text}")'
    if _NON_FINITE.fullmatch(text):
        return f'{text} is not finite (write a finite number, or "{text}" in quotes for text)'
    if text in ("=", "<<"):
        return f'{text} has a meaning of its own in YAML (write "{text}" in quotes)'
    return ""

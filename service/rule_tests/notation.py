"""The compact notation of a series: one value per step, from step 1 on.

    0.0005x20 0.012x3 _ nan inf     twenty times, three times, a step without the metric, NaN, infinity
    1..2x10                         ten values from 1 to 2, evenly spaced, both ends included
    (0.9 1.1)x15                    the part in parentheses, fifteen times; parentheses nest

Errors:

    NotationError      a ValueError with the place in the text and what to write instead
"""

from __future__ import annotations

import math
import re
from typing import Final

Series = list[float | None]

MAX_STEPS: Final = 10_000
_MAX_DEPTH: Final = 20
_NUMBER: Final = r"[-+]?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|inf|nan)"
_TOKEN: Final = re.compile(
    rf"(?P<open>\()|(?P<close>\))(?:x(?P<group>[0-9]+))?"
    rf"|(?P<gap>_)(?:x(?P<gaps>[0-9]+))?"
    rf"|(?P<from>{_NUMBER})\.\.(?P<to>{_NUMBER})x(?P<over>[0-9]+)"
    rf"|(?P<value>{_NUMBER})(?:x(?P<times>[0-9]+))?"
)
_FORMS: Final = "0.5, 0.5x20, 1..2x10, _, _x5, nan, inf or (0.9 1.1)x15"


class NotationError(ValueError):
    """The text is no series; `offset` is where in it."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset: Final = offset


def parse_series(text: str) -> Series:
    """The values of a series; None is a step without the metric. Raises NotationError."""
    stack: list[tuple[int, Series]] = [(0, [])]
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None or not _ends(text, match):
            word = re.split(r"[\s()]", text[at:])[0] or text[at]
            raise NotationError(at, f"{word[:40]!r} is no value of a series (write {_FORMS})")
        _take(match, stack, at)
        at = match.end()
    if len(stack) > 1:
        raise NotationError(stack[-1][0], "a parenthesis that is not closed (write ')x3' at its end)")
    values = stack[0][1]
    if not values:
        raise NotationError(0, f"an empty series (write {_FORMS})")
    return values


def format_value(value: float | None) -> str:
    """One value in the notation."""
    return "_" if value is None else f"{value:.6g}"


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether the token is over: `0.5x` and `1..2` are not read as something shorter."""
    after = text[match.end() : match.end() + 1]
    return match["open"] is not None or not after or after.isspace() or after == ")"


def _take(match: re.Match[str], stack: list[tuple[int, Series]], at: int) -> None:
    if match["open"]:
        if len(stack) > _MAX_DEPTH:
            raise NotationError(at, f"parentheses nested deeper than {_MAX_DEPTH}")
        stack.append((at, []))
        return
    if match["close"]:
        if len(stack) == 1:
            raise NotationError(at, "a parenthesis that was never opened (remove it)")
        inner, times = stack.pop()[1], match["group"] or "1"
        if not inner:
            raise NotationError(at, "an empty pair of parentheses (write the values that repeat)")
    elif match["gap"]:
        inner, times = [None], match["gaps"] or "1"
    elif match["value"]:
        inner, times = [float(match["value"])], match["times"] or "1"
    else:
        inner, times = _ramp(float(match["from"]), float(match["to"]), int(match["over"]), at), "1"
    count = int(times)
    if count < 1:
        raise NotationError(at, "zero times (write x1 or more, or remove the value)")
    if len(inner) * count + len(stack[-1][1]) > MAX_STEPS:
        raise NotationError(at, f"more than {MAX_STEPS} steps")
    stack[-1][1].extend(inner * count)


def _ramp(first: float, last: float, count: int, at: int) -> Series:
    if not (math.isfinite(first) and math.isfinite(last)):
        raise NotationError(at, "a range needs two finite ends")
    if not 2 <= count <= MAX_STEPS:
        raise NotationError(at, f"a range has its two ends at least and {MAX_STEPS} values at most (write 1..2x10)")
    # Both ends weighted, so that the last value is exactly what is written.
    return [(first * (count - 1 - index) + last * index) / (count - 1) for index in range(count)]

"""What compiled expressions are made of: small closures over a frame. Types were checked before; nothing here raises.

A `Quantity` gives a float or None (UNKNOWN, with the reason in `frame.why`), a `Condition` one of the four truth values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

from rules import functions
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Decisive, Frame, Locate

Quantity = Callable[[Frame], float | None]
Condition = Callable[[Frame], int]

_INF: Final = math.inf

OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def setting(frame: Frame, key: str) -> object:
    """A value of the run's config; a dotted key also reads nested tables."""
    config = frame.view.config
    if key in config or "." not in key:
        return config.get(key)
    found: object = config
    for part in key.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def bare(key: str) -> Quantity:
    """The value at the current step."""

    def run(frame: Frame) -> float | None:
        series = frame.series.get(key)
        if series is None and frame.fan is not None:
            series = frame.find(key)
        if series is not None:
            steps = series.steps
            if steps and steps[-1] == frame.step:
                return series.values[-1]
            if end := frame.end(steps):
                return series.values[end - 1]
        frame.missing(key)
        return None

    return run


def of_window(function: functions.WindowFunction, locate: Locate, text: str) -> Quantity:
    def run(frame: Frame) -> float | None:
        found = locate(frame)
        if found is None:
            return None
        series, low, high = found
        value = function(series.values[low:high])
        if value is None:
            frame.why = f"degenerate: {text}"
        return value

    return run


def of_records(function: functions.WindowFunction, key: str, span: tuple[int, int, int], text: str) -> Quantity:
    """`of_window` over the last records (length, offset, least), the most frequent window, without a step in between."""
    length, offset, least = span
    whole, needed = length + offset, least + offset

    def run(frame: Frame) -> float | None:
        series = frame.series.get(key)
        if series is None and frame.fan is not None:
            series = frame.find(key)
        if series is None:
            frame.missing(key)
            return None
        steps = series.steps
        end = len(steps)
        if not end or steps[-1] != frame.step:
            end = frame.end(steps)
            if not end:
                frame.missing(key)
                return None
        if end < needed:
            frame.short(key, end, needed)
            return None
        value = function(series.values[end - whole if end > whole else 0 : end - offset])
        if value is None:
            frame.why = f"degenerate: {text}"
        return value

    return run


def of_scalar(function: Callable[[float], float | None], inner: Quantity, text: str) -> Quantity:
    def run(frame: Frame) -> float | None:
        number = inner(frame)
        if number is None:
            return None
        value = function(number)
        if value is None:
            frame.why = f"degenerate: {text} of {number:g}"
        return value

    return run


def with_constant(function: Callable[[functions.Samples], float], inner: Quantity, constant: float) -> Quantity:
    """min or max of one expression and a constant: the usual form of a limit."""
    smaller = function is functions.smaller

    def run(frame: Frame) -> float | None:
        value = inner(frame)
        if value is None or value != value:
            return value
        return value if (value < constant) is smaller else constant

    return run


def of_several(function: Callable[[functions.Samples], float], parts: list[Quantity]) -> Quantity:
    def run(frame: Frame) -> float | None:
        values: list[float] = []
        for part in parts:
            value = part(frame)
            if value is None:
                return None
            values.append(value)
        return function(values)

    return run


def arithmetic(
    apply: Callable[[float, float], float], a: Quantity, b: Quantity, first: float | None, second: float | None
) -> Quantity:
    """`first` and `second` are the operands that are known at load."""
    if second is not None:
        return lambda frame: None if (one := a(frame)) is None else apply(one, second)
    if first is not None:
        return lambda frame: None if (two := b(frame)) is None else apply(first, two)

    def run(frame: Frame) -> float | None:
        one = a(frame)
        if one is None:
            return None
        two = b(frame)
        return None if two is None else apply(one, two)

    return run


def divide(left: Quantity, right: Quantity, text: str) -> Quantity:
    def run(frame: Frame) -> float | None:
        one = left(frame)
        if one is None:
            return None
        two = right(frame)
        if two is None:
            return None
        if two == 0.0:
            frame.why = f"degenerate: {text} divides by zero"
            return None
        return one / two

    return run


def comparison(a: Quantity, b: Quantity, fixed: float | None, symbol: str) -> Condition:
    """Value against limit; `fixed` is the limit that is known at load. NON_FINITE with a NaN or an infinity on either side."""
    holds = OPERATORS[symbol]
    if fixed is not None:

        def against_constant(frame: Frame) -> int:
            one = a(frame)
            if one is None:
                return UNKNOWN
            frame.decisive = (one, fixed, symbol)
            if -_INF < one < _INF:
                return TRUE if holds(one, fixed) else FALSE
            return NON_FINITE

        return against_constant

    def run(frame: Frame) -> int:
        one = a(frame)
        if one is None:
            return UNKNOWN
        two = b(frame)
        if two is None:
            return UNKNOWN
        frame.decisive = (one, two, symbol)
        if -_INF < one < _INF and -_INF < two < _INF:
            return TRUE if holds(one, two) else FALSE
        return NON_FINITE

    return run


def metric_against_constant(key: str, fixed: float, symbol: str) -> Condition:
    """`comparison` of a bare metric with a constant, the most frequent condition, without a call for the metric."""
    holds = OPERATORS[symbol]
    value_of = bare(key)

    def run(frame: Frame) -> int:
        series = frame.series.get(key)
        if series is not None and (steps := series.steps) and steps[-1] == frame.step:
            one: float | None = series.values[-1]
        else:
            one = value_of(frame)
        if one is None:
            return UNKNOWN
        frame.decisive = (one, fixed, symbol)
        if -_INF < one < _INF:
            return TRUE if holds(one, fixed) else FALSE
        return NON_FINITE

    return run


def both(left: Condition, right: Condition, left_leads: bool) -> Condition:
    """The smaller of both. The comparison that decides is that of the operand with the result, the left one if both have it."""

    def run(frame: Frame) -> int:
        one = left(frame)
        if one == FALSE:
            return FALSE
        side: Decisive | None = frame.decisive
        two = right(frame)
        if one < two or (one == two and left_leads):
            frame.decisive = side
            return one
        return two

    return run


def either(left: Condition, right: Condition, left_leads: bool) -> Condition:
    """The larger of both, with the decisive comparison as in `both`."""

    def run(frame: Frame) -> int:
        one = left(frame)
        if one == TRUE:
            return TRUE
        side: Decisive | None = frame.decisive
        two = right(frame)
        if one > two or (one == two and left_leads):
            frame.decisive = side
            return one
        return two

    return run


def absent_from_records(key: str, length: int, offset: int) -> Condition:
    """Whether none of the last records of the run, whatever they carry, carries the series; UNKNOWN in a shorter run."""

    def run(frame: Frame) -> int:
        if frame.view.record < length + offset:
            frame.why = f"the run has {frame.view.record} of {length + offset} records"
            return UNKNOWN
        series = frame.find(key)
        if series is None or not series.steps:
            return TRUE
        steps = frame.view.steps
        end = frame.end(steps)
        low, high = max(end - offset - length, 0), end - offset
        if high <= low:
            return TRUE
        oldest, newest = steps[low], steps[high - 1]
        for step in reversed(series.steps):
            if step <= newest:
                return FALSE if step >= oldest else TRUE
        return TRUE

    return run

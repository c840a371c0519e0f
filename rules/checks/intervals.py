"""Interval analysis: between what a number of the language can lie, and so which comparisons are decided before any data.

Sound, not exact: the true range is never wider than the interval, so "never" and "always" are never wrong. Comparisons with
what is missing or not finite are left out: they have no truth value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from math import inf
from typing import Final, NamedTuple

from rules.checks.vocabulary import Known
from rules.syntax import Binary, Call, Compare, Duration, Logic, Metric, Negate, Node, Not, Number, Variable, Window


class Interval(NamedTuple):
    """Both ends included."""

    low: float
    high: float

    @property
    def point(self) -> float | None:
        """The number, when there is only one."""
        return self.low if self.low == self.high else None


ANYTHING: Final = Interval(-inf, inf)
NOT_NEGATIVE: Final = Interval(0.0, inf)
BOTH: Final = frozenset({True, False})
Truth = frozenset[bool]

_SAME: Final = frozenset({"mean", "median", "min", "max", "first", "last", "quantile", "ewma"})
"""Functions of a window that give something between its smallest and its largest sample."""


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def hull(*values: float) -> Interval:
    return ANYTHING if any(map(math.isnan, values)) else Interval(min(values), max(values))


def _times(a: Interval, b: Interval) -> Interval:
    return hull(*(_product(x, y) for x in a for y in b))


def _divided(a: Interval, b: Interval) -> Interval:
    if b.low <= 0 <= b.high:
        # Division by zero is UNKNOWN, so what is left is a divisor of one sign where the interval only touches 0.
        if b.low == 0 and a.low >= 0:
            return Interval(0.0 if b.high == inf or a.low == 0 else a.low / b.high, inf)
        return ANYTHING
    return _times(a, hull(1 / b.low, 1 / b.high))


_ARITHMETIC: Final[dict[str, Callable[[Interval, Interval], Interval]]] = {
    "+": lambda a, b: hull(a.low + b.low, a.high + b.high),
    "-": lambda a, b: hull(a.low - b.high, a.high - b.low),
    "*": _times,
    "/": _divided,
}


def _abs(value: Interval) -> Interval:
    low = 0.0 if value.low <= 0 <= value.high else min(abs(value.low), abs(value.high))
    return Interval(low, max(abs(value.low), abs(value.high)))


def _exp(value: Interval) -> Interval:
    return Interval(*(0.0 if end == -inf else math.exp(end) if end < 700 else inf for end in value))


def _log(value: Interval) -> Interval:
    return Interval(*(-inf if end <= 0 else inf if end == inf else math.log(end) for end in value))


def _sqrt(value: Interval) -> Interval:
    return Interval(*(math.sqrt(max(end, 0.0)) if end < inf else inf for end in value))


_SCALAR: Final[dict[str, Callable[[Interval], Interval]]] = {"abs": _abs, "exp": _exp, "log": _log, "sqrt": _sqrt}


class Intervals:
    """Intervals of expressions; `records` are the record rules by name, each with the variables of its group."""

    def __init__(self, metrics: Mapping[str, Known], records: Mapping[str, tuple[Node, Mapping[str, float]]]) -> None:
        self._metrics = metrics
        self._records = records
        self._known: dict[str, Interval] = {}

    def of(self, node: Node, values: Mapping[str, float]) -> Interval:
        """The interval of a number."""
        match node:
            case Number():
                return Interval(node.value, node.value)
            case Duration():
                return Interval(node.seconds, node.seconds)
            case Variable():
                value = values.get(node.name)
                return ANYTHING if value is None else Interval(value, value)
            case Negate():
                inner = self.of(node.operand, values)
                return Interval(-inner.high, -inner.low)
            case Binary():
                return _ARITHMETIC[node.operator](self.of(node.left, values), self.of(node.right, values))
            case Metric():
                return self._metric(node)
            case Call():
                return self._call(node, values)
            case _:
                return ANYTHING

    def _metric(self, node: Metric) -> Interval:
        if node.raw:
            return ANYTHING
        if node.name in ("silence", "since_start"):
            return NOT_NEGATIVE
        if node.name in self._records:
            if node.name not in self._known:
                self._known[node.name] = self.of(*self._records[node.name])
            return self._known[node.name]
        known = self._metrics.get(node.name)
        return ANYTHING if known is None else Interval(known.low, known.high)

    def _call(self, node: Call, values: Mapping[str, float]) -> Interval:
        name = node.function
        window = next((argument for argument in node.arguments if isinstance(argument, Window)), None)
        if window is not None:
            return self._window(name, window)
        parts = [self.of(argument, values) for argument in node.arguments]
        match name:
            case "min":
                return Interval(min(part.low for part in parts), min(part.high for part in parts))
            case "max":
                return Interval(max(part.low for part in parts), max(part.high for part in parts))
            case "clamp":
                value, low, high = parts
                return Interval(min(max(value.low, low.low), high.low), min(max(value.high, low.high), high.high))
            case "signal" | "baseline":
                return parts[0]
            case "recorded":
                return Interval(min(parts[0].low, 0.0), max(parts[0].high, 0.0))
            case "age":
                return NOT_NEGATIVE
            case _ if name in _SCALAR:
                return _SCALAR[name](parts[0])
            case _:
                return ANYTHING

    def _window(self, name: str, window: Window) -> Interval:
        values = self._metric(window.metric)
        width = values.high - values.low
        most = window.length if window.unit != "time" else inf
        match name:
            case _ if name in _SAME:
                return values
            case "std" | "mad":
                return Interval(0.0, width / 2 if name == "std" else width)
            case "delta":
                return Interval(-width, width)
            case "sum":
                return _times(values, Interval(1.0, most))
            case "drop":
                return Interval(0.0, 1.0) if values.low >= 0 else Interval(0.0, inf)
            case "count":
                return Interval(window.least or (most if window.unit == "records" else 1.0), most)
            case "changes":
                return Interval(0.0, most - 1)
            case "nonfinite":
                return Interval(0.0, most)
            case _:
                return ANYTHING

    def truth(self, node: Node, values: Mapping[str, float]) -> Truth:
        """Which truth values a condition can have where it has one."""
        match node:
            case Compare():
                return self._compared(node, values)
            case Not():
                return frozenset(not value for value in self.truth(node.operand, values))
            case Logic():
                left, right = self.truth(node.left, values), self.truth(node.right, values)
                joined = all if node.operator == "and" else any
                return frozenset(joined((one, two)) for one in left for two in right)
            case _:
                return BOTH

    def _compared(self, node: Compare, values: Mapping[str, float]) -> Truth:
        a, b = self.of(node.left, values), self.of(node.right, values)
        below, not_above = a.high < b.low, a.high <= b.low
        above, not_below = a.low > b.high, a.low >= b.high
        always, never = {
            "<": (below, not_below),
            "<=": (not_above, above),
            ">": (above, not_above),
            ">=": (not_below, below),
            "==": (a == b and a.point is not None, below or above),
            "!=": (below or above, a == b and a.point is not None),
        }[node.operator]
        if node.left == node.right and isinstance(node.left, Metric | Call):
            always, never = node.operator in ("<=", ">=", "=="), node.operator in ("<", ">", "!=")
        return frozenset({True}) if always else frozenset({False}) if never else BOTH

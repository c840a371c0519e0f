"""The numbers that compiled expressions are made of: a tree of small objects, each asked for its value at a frame.

A value is a float or None (UNKNOWN, with the reason in `frame.why`). Types were checked before; nothing here raises.
Objects with one method, and no closures: read alike, and when they are compiled (hatch_build.py) one asks the other directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rules import functions
from rules.frame import Frame
from rules.windows import Locate


class Quantity:
    """A number at a frame."""

    __slots__ = ()

    def of(self, frame: Frame) -> float | None:
        raise NotImplementedError

    def __call__(self, frame: Frame) -> float | None:
        return self.of(frame)


class Constant(Quantity):
    """A number that is known at load."""

    __slots__ = ("_value",)

    def __init__(self, value: float) -> None:
        self._value: Final = value

    def of(self, frame: Frame) -> float | None:
        return self._value


class Bare(Quantity):
    """The value of a series at the current step."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key: Final = key

    def of(self, frame: Frame) -> float | None:
        series = frame.series.get(self._key)
        if series is None and frame.fan is not None:
            series = frame.find(self._key)
        if series is not None:
            steps = series.steps
            if steps is frame.brought or frame.brings(steps):
                return series.values[-1]
            if end := frame.end(steps):
                return series.values[end - 1]
        frame.missing(self._key)
        return None


class OfWindow(Quantity):
    """A function of the samples of a window."""

    __slots__ = ("_function", "_locate", "_text")

    def __init__(self, function: functions.WindowFunction, locate: Locate, text: str) -> None:
        self._function: Final = function
        self._locate: Final = locate
        self._text: Final = text

    def of(self, frame: Frame) -> float | None:
        found = self._locate.find(frame)
        if found is None:
            return None
        series, low, high = found
        value = self._function(series.values[low:high])
        if value is None:
            frame.why = f"degenerate: {self._text}"
        return value


class OfRecords(Quantity):
    """`OfWindow` over the last records, the most frequent window, without a step in between."""

    __slots__ = ("_function", "_key", "_needed", "_offset", "_text", "_whole")

    def __init__(self, function: functions.WindowFunction, key: str, span: tuple[int, int, int], text: str) -> None:
        """`span` is length, offset, and the least length."""
        self._function: Final = function
        self._key: Final = key
        self._whole: Final = span[0] + span[1]
        self._offset: Final = span[1]
        self._needed: Final = span[2] + span[1]
        self._text: Final = text

    def of(self, frame: Frame) -> float | None:
        series = frame.series.get(self._key)
        if series is None and frame.fan is not None:
            series = frame.find(self._key)
        if series is None:
            frame.missing(self._key)
            return None
        steps = series.steps
        end = len(steps) if steps is frame.brought or frame.brings(steps) else frame.end(steps)
        if not end:
            frame.missing(self._key)
            return None
        if end < self._needed:
            frame.short(self._key, end, self._needed)
            return None
        start = end - self._whole
        value = self._function(series.values[start if start > 0 else 0 : end - self._offset])
        if value is None:
            frame.why = f"degenerate: {self._text}"
        return value


class Slope(Quantity):
    """The least-squares slope over a window; the one function that asks for the steps too."""

    __slots__ = ("_locate", "_text")

    def __init__(self, locate: Locate, text: str) -> None:
        self._locate: Final = locate
        self._text: Final = text

    def of(self, frame: Frame) -> float | None:
        found = self._locate.find(frame)
        if found is None:
            return None
        series, low, high = found
        value = functions.slope(series.steps[low:high], series.values[low:high])
        if value is None:
            frame.why = f"degenerate: {self._text}"
        return value


class OfScalar(Quantity):
    """A function of one number."""

    __slots__ = ("_function", "_inner", "_text")

    def __init__(self, function: Callable[[float], float | None], inner: Quantity, text: str) -> None:
        self._function: Final = function
        self._inner: Final = inner
        self._text: Final = text

    def of(self, frame: Frame) -> float | None:
        number = self._inner.of(frame)
        if number is None:
            return None
        value = self._function(number)
        if value is None:
            frame.why = f"degenerate: {self._text} of {number:g}"
        return value


class Negated(Quantity):
    __slots__ = ("_inner",)

    def __init__(self, inner: Quantity) -> None:
        self._inner: Final = inner

    def of(self, frame: Frame) -> float | None:
        value = self._inner.of(frame)
        return None if value is None else -value


class WithConstant(Quantity):
    """min or max of one number and a constant: the usual form of a limit."""

    __slots__ = ("_constant", "_inner", "_smaller")

    def __init__(self, smaller: bool, inner: Quantity, constant: float) -> None:
        self._smaller: Final = smaller
        self._inner: Final = inner
        self._constant: Final = constant

    def of(self, frame: Frame) -> float | None:
        value = self._inner.of(frame)
        if value is None or value != value:
            return value
        constant = self._constant
        return value if (value < constant) is self._smaller else constant


class OfSeveral(Quantity):
    """min or max of several numbers."""

    __slots__ = ("_function", "_parts")

    def __init__(self, function: Callable[[functions.Samples], float], parts: Sequence[Quantity]) -> None:
        self._function: Final = function
        self._parts: Final = list(parts)

    def of(self, frame: Frame) -> float | None:
        values: list[float] = []
        for part in self._parts:
            value = part.of(frame)
            if value is None:
                return None
            values.append(value)
        return self._function(values)


class Clamped(Quantity):
    """The first number, moved into the range of the two others."""

    __slots__ = ("_high", "_inner", "_low")

    def __init__(self, inner: Quantity, low: Quantity, high: Quantity) -> None:
        self._inner: Final = inner
        self._low: Final = low
        self._high: Final = high

    def of(self, frame: Frame) -> float | None:
        value, low, high = self._inner.of(frame), self._low.of(frame), self._high.of(frame)
        return None if value is None or low is None or high is None else functions.clamp(value, low, high)


class _Two(Quantity):
    """Two numbers that are joined; the right one is not asked where the left one is UNKNOWN."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: Quantity, right: Quantity) -> None:
        self._left: Final = left
        self._right: Final = right


class Sum(_Two):
    __slots__ = ()

    def of(self, frame: Frame) -> float | None:
        one = self._left.of(frame)
        if one is None:
            return None
        two = self._right.of(frame)
        return None if two is None else one + two


class Difference(_Two):
    __slots__ = ()

    def of(self, frame: Frame) -> float | None:
        one = self._left.of(frame)
        if one is None:
            return None
        two = self._right.of(frame)
        return None if two is None else one - two


class Product(_Two):
    __slots__ = ()

    def of(self, frame: Frame) -> float | None:
        one = self._left.of(frame)
        if one is None:
            return None
        two = self._right.of(frame)
        return None if two is None else one * two


class Multiple(Quantity):
    """A number times a constant: the usual form of a limit that follows the run."""

    __slots__ = ("_factor", "_inner")

    def __init__(self, inner: Quantity, factor: float) -> None:
        self._inner: Final = inner
        self._factor: Final = factor

    def of(self, frame: Frame) -> float | None:
        value = self._inner.of(frame)
        return None if value is None else value * self._factor


class Quotient(_Two):
    """UNKNOWN, as degenerate, where the divisor is 0."""

    __slots__ = ("_text",)

    def __init__(self, left: Quantity, right: Quantity, text: str) -> None:
        super().__init__(left, right)
        self._text: Final = text

    def of(self, frame: Frame) -> float | None:
        one = self._left.of(frame)
        if one is None:
            return None
        two = self._right.of(frame)
        if two is None:
            return None
        if two == 0.0:
            frame.why = f"degenerate: {self._text} divides by zero"
            return None
        return one / two


ARITHMETIC: Final[dict[str, type[_Two]]] = {"+": Sum, "-": Difference, "*": Product}
"""Division is `Quotient`, which has a text of its own."""

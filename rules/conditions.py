"""The conditions that compiled expressions are made of: a tree of small objects over that of `rules.quantities`.

A truth value is one of the four of `rules.frame`. Types were checked before; nothing here raises.

A number that is kept in the frame has a name of its own beside the one that is compared: compiled, the one that is known to be
a number is a bare one, and keeping that would make an object of it once more.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final

from rules.facts import setting
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Frame
from rules.quantities import Quantity
from rules.windows import Locate

_INF: Final = math.inf

OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class Condition:
    """A truth value at a frame."""

    __slots__ = ()

    def of(self, frame: Frame) -> int:
        raise NotImplementedError

    def __call__(self, frame: Frame) -> int:
        return self.of(frame)


class Fixed(Condition):
    """A truth value that is known at load."""

    __slots__ = ("_truth",)

    def __init__(self, truth: int) -> None:
        self._truth: Final = truth

    def of(self, frame: Frame) -> int:
        return self._truth


def _order(symbol: str) -> int:
    """1 for above, -1 for below: the operators of nearly all rules, which need no call. 0 for the others."""
    return {">": 1, "<": -1}.get(symbol, 0)


class Comparison(Condition):
    """A value against a limit: NON_FINITE with a NaN or an infinity on either side."""

    __slots__ = ("_limit", "_order", "_symbol", "_value")

    def __init__(self, value: Quantity, limit: Quantity, symbol: str) -> None:
        self._value: Final = value
        self._limit: Final = limit
        self._symbol: Final = symbol
        self._order: Final = _order(symbol)

    def of(self, frame: Frame) -> int:
        value = self._value.of(frame)
        one = value
        if one is None:
            return UNKNOWN
        limit = self._limit.of(frame)
        two = limit
        if two is None:
            return UNKNOWN
        frame.value = value
        frame.limit = limit
        frame.symbol = self._symbol
        if not (-_INF < one < _INF and -_INF < two < _INF):
            return NON_FINITE
        order = self._order
        if order:
            return TRUE if (one > two if order > 0 else one < two) else FALSE
        return TRUE if OPERATORS[self._symbol](one, two) else FALSE


class AgainstConstant(Condition):
    """`Comparison` with a limit that is known at load, the most frequent one."""

    __slots__ = ("_limit", "_order", "_shown", "_symbol", "_value")

    def __init__(self, value: Quantity, limit: float, symbol: str) -> None:
        self._value: Final = value
        self._limit: Final = limit
        self._shown: Final[float | None] = limit
        self._symbol: Final = symbol
        self._order: Final = _order(symbol)

    def of(self, frame: Frame) -> int:
        value = self._value.of(frame)
        one = value
        if one is None:
            return UNKNOWN
        frame.value = value
        frame.limit = self._shown
        frame.symbol = self._symbol
        if not -_INF < one < _INF:
            return NON_FINITE
        limit = self._limit
        order = self._order
        if order:
            return TRUE if (one > limit if order > 0 else one < limit) else FALSE
        return TRUE if OPERATORS[self._symbol](one, limit) else FALSE


def comparison(value: Quantity, limit: Quantity, fixed: float | None, symbol: str) -> Condition:
    """Value against limit; `fixed` is the limit that is known at load."""
    return Comparison(value, limit, symbol) if fixed is None else AgainstConstant(value, fixed, symbol)


class Not(Condition):
    """TRUE and FALSE change places; the two others stay."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Condition) -> None:
        self._inner: Final = inner

    def of(self, frame: Frame) -> int:
        truth = self._inner.of(frame)
        if truth == FALSE:
            return TRUE
        return FALSE if truth == TRUE else truth


class Both(Condition):
    """The smaller of both. The comparison that decides is that of the operand with the result, the left one if both have it."""

    __slots__ = ("_left", "_left_leads", "_right")

    def __init__(self, left: Condition, right: Condition, left_leads: bool) -> None:
        self._left: Final = left
        self._right: Final = right
        self._left_leads: Final = left_leads

    def of(self, frame: Frame) -> int:
        one = self._left.of(frame)
        if one == FALSE:
            return FALSE
        value, limit, symbol = frame.value, frame.limit, frame.symbol
        two = self._right.of(frame)
        if one < two or (one == two and self._left_leads):
            frame.value = value
            frame.limit = limit
            frame.symbol = symbol
            return one
        return two


class Either(Condition):
    """The larger of both, with the decisive comparison as in `Both`."""

    __slots__ = ("_left", "_left_leads", "_right")

    def __init__(self, left: Condition, right: Condition, left_leads: bool) -> None:
        self._left: Final = left
        self._right: Final = right
        self._left_leads: Final = left_leads

    def of(self, frame: Frame) -> int:
        one = self._left.of(frame)
        if one == TRUE:
            return TRUE
        value, limit, symbol = frame.value, frame.limit, frame.symbol
        two = self._right.of(frame)
        if one > two or (one == two and self._left_leads):
            frame.value = value
            frame.limit = limit
            frame.symbol = symbol
            return one
        return two


class IsNan(Condition):
    __slots__ = ("_value",)

    def __init__(self, value: Quantity) -> None:
        self._value: Final = value

    def of(self, frame: Frame) -> int:
        number = self._value.of(frame)
        if number is None:
            return UNKNOWN
        frame.value = number
        frame.limit = None
        frame.symbol = "is_nan"
        return TRUE if number != number else FALSE


class AbsentFromRecords(Condition):
    """Whether none of the last records of the run, whatever they carry, carries the series; UNKNOWN in a shorter run."""

    __slots__ = ("_key", "_length", "_offset")

    def __init__(self, key: str, length: int, offset: int) -> None:
        self._key: Final = key
        self._length: Final = length
        self._offset: Final = offset

    def of(self, frame: Frame) -> int:
        whole = self._length + self._offset
        if frame.view.record < whole:
            frame.why = f"the run has {frame.view.record} of {whole} records"
            return UNKNOWN
        series = frame.find(self._key)
        if series is None or not series.steps:
            return TRUE
        steps = frame.view.steps
        end = frame.end(steps)
        low, high = max(end - whole, 0), end - self._offset
        if high <= low:
            return TRUE
        oldest, newest = steps[low], steps[high - 1]
        for step in reversed(series.steps):
            if step <= newest:
                return FALSE if step >= oldest else TRUE
        return TRUE


class Absent(Condition):
    """Whether a window by steps or time holds no sample."""

    __slots__ = ("_locate",)

    def __init__(self, locate: Locate) -> None:
        self._locate: Final = locate

    def of(self, frame: Frame) -> int:
        return TRUE if self._locate.find(frame) is None else FALSE


class Firing(Condition):
    """Whether another alert of the run fires."""

    __slots__ = ("_rule_id",)

    def __init__(self, rule_id: str) -> None:
        self._rule_id: Final = rule_id

    def of(self, frame: Frame) -> int:
        return TRUE if frame.alerts.fires(self._rule_id) else FALSE


class FiredWithin(Condition):
    """Whether another alert of the run fires, or did within the last records."""

    __slots__ = ("_records", "_rule_id")

    def __init__(self, rule_id: str, records: float) -> None:
        self._rule_id: Final = rule_id
        self._records: Final = records

    def of(self, frame: Frame) -> int:
        if frame.alerts.fires(self._rule_id):
            return TRUE
        last = frame.alerts.last_fired(self._rule_id)
        return TRUE if last and frame.view.record - last < self._records else FALSE


class Words:
    """A text at a frame: one that is written in the rule, a label of the run, or a value of its config."""

    __slots__ = ("_key", "_source")

    def __init__(self, key: str, source: str) -> None:
        """`source` is `text`, `label` or `config`."""
        self._key: Final = key
        self._source: Final = source

    def of(self, frame: Frame) -> str | None:
        """None, with the reason in `frame.why`, where the run has no such label or value."""
        if self._source == "text":
            return self._key
        found = frame.view.labels.get(self._key) if self._source == "label" else setting(frame, self._key)
        if found is None:
            frame.why = f"the run has no {self._source} {self._key}"
            return None
        return ("true" if found else "false") if isinstance(found, bool) else str(found)


class SameWords(Condition):
    """Whether two texts are equal, or (`equal` is False) not."""

    __slots__ = ("_equal", "_left", "_right")

    def __init__(self, left: Words, right: Words, equal: bool) -> None:
        self._left: Final = left
        self._right: Final = right
        self._equal: Final = equal

    def of(self, frame: Frame) -> int:
        one, two = self._left.of(frame), self._right.of(frame)
        if one is None or two is None:
            return UNKNOWN
        return TRUE if (one == two) is self._equal else FALSE

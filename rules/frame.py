"""What a compiled expression sees while it is evaluated: one run at one record, and how to find samples in it.

Truth values are small integers, ordered so that `and` is the minimum and `or` the maximum (Kleene's logic with one more
value): FALSE < UNKNOWN < NON_FINITE < TRUE. A NaN beside a missing metric in an `and` stays unknown; in an `or` it counts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from collector.model import RunView, SeriesView

FALSE: Final = 0
UNKNOWN: Final = 1
NON_FINITE: Final = 2
TRUE: Final = 3


class FiringView(Protocol):
    """What expressions may ask about other alerts of the run."""

    def fires(self, rule_id: str) -> bool:
        """Whether the alert fires now, whatever its own labels."""

    def last_fired(self, rule_id: str) -> int:
        """Record number at which it last was firing; 0 = never."""


class NothingFires:
    """No alert fires and none ever did: for record rules and for expressions on their own."""

    def fires(self, rule_id: str) -> bool:
        return False

    def last_fired(self, rule_id: str) -> int:
        return 0


Decisive = tuple[float, float | None, str]
"""Value, limit and operator of the comparison that decided."""


class Frame:
    """One run at one record. Reused for all rules of the record; `decisive` and `why` are those of the last evaluation."""

    __slots__ = ("alerts", "decisive", "fan", "series", "silence", "step", "view", "why")

    def __init__(self, view: RunView, alerts: FiringView, silence: float = 0.0) -> None:
        self.view = view
        self.series: Mapping[str, SeriesView] = view.series
        self.step = view.step
        self.alerts = alerts
        self.silence = silence
        """Seconds since the newest record arrived; 0 while a record is evaluated."""
        self.fan: Mapping[str, str] | None = None
        """Series key by bare name, for the labelled metrics of the instance that is evaluated."""
        self.decisive: Decisive | None = None
        self.why = ""
        """Why the result is UNKNOWN."""

    def find(self, key: str) -> SeriesView | None:
        """A series by its key, or by its bare name in a fanned-out instance."""
        series = self.series.get(key)
        if series is None and self.fan is not None:
            series = self.series.get(self.fan.get(key, key))
        return series

    def resolved(self, key: str) -> str:
        return key if self.fan is None else self.fan.get(key, key)

    def end(self, steps: array[int]) -> int:
        """Index behind the sample of the current step; 0 when this step does not carry the series."""
        if not steps:
            return 0
        step, newest = self.step, steps[-1]
        if newest <= step:
            return len(steps) if newest == step else 0
        place = bisect_left(steps, step)
        return place + 1 if steps[place] == step else 0

    def missing(self, key: str) -> None:
        self.why = f"{self.resolved(key)} is not in this record"

    def short(self, key: str, have: int, needed: int) -> None:
        self.why = f"{self.resolved(key)} has {have} of {needed} records"


Bounds = tuple[SeriesView, int, int]
"""A series and the half-open index range of a window's samples; never empty."""

Locate = Callable[[Frame], Bounds | None]


def by_records(key: str, length: int, offset: int, least: int) -> Locate:
    """The last `length` samples, the current record's included, moved back by `offset`; None with fewer than `least`."""
    whole = length + offset
    needed = least + offset

    def locate(frame: Frame) -> Bounds | None:
        series = frame.find(key)
        if series is None or not (end := frame.end(series.steps)):
            frame.missing(key)
            return None
        if end < needed:
            frame.short(key, end, needed)
            return None
        return series, max(0, end - whole), end - offset

    return locate


def by_steps(key: str, length: int, offset: int) -> Locate:
    """The samples at the last `length` step numbers (step - length, step], moved back by `offset`; None when there are none."""

    def locate(frame: Frame) -> Bounds | None:
        series = frame.find(key)
        if series is None:
            frame.missing(key)
            return None
        newest = frame.step - offset
        high = bisect_right(series.steps, newest)
        low = bisect_right(series.steps, newest - length, 0, high)
        if low == high:
            frame.why = f"{frame.resolved(key)} is not in the last {length + offset} steps"
            return None
        return series, low, high

    return locate


def by_time(key: str, length: float, offset: float) -> Locate:
    """The samples whose record's event time lies in (now - length, now], moved back by `offset`; None when there are none.

    Reads back from the current record to the first one that is older, so a clock that jumped ends the window.
    """

    def locate(frame: Frame) -> Bounds | None:
        series = frame.find(key)
        if series is None:
            frame.missing(key)
            return None
        span = steps_between(frame, length, offset)
        low = high = 0
        if span is not None:
            low = bisect_left(series.steps, span[0])
            high = bisect_right(series.steps, span[1], low)
        if low == high:
            frame.why = f"{frame.resolved(key)} is not in the last {length + offset:g} s"
            return None
        return series, low, high

    return locate


def steps_between(frame: Frame, length: float, offset: float) -> tuple[int, int] | None:
    """First and last step of the records in a time window; None when it holds no record."""
    steps, times = frame.view.steps, frame.view.times
    newest = frame.view.event_time - offset
    oldest = newest - length
    index = bisect_right(steps, frame.step) - 1
    while index >= 0 and times[index] > newest:
        index -= 1
    last = index
    while index >= 0 and times[index] > oldest:
        index -= 1
    return None if index == last else (steps[index + 1], steps[last])

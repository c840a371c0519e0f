"""Where the samples of a window are, at a frame."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from collector.model import SeriesView
from rules.frame import Frame

Bounds = tuple[SeriesView, int, int]
"""A series and the half-open index range of a window's samples; never empty."""


class Locate:
    """Finds a window's samples."""

    __slots__ = ()

    def find(self, frame: Frame) -> Bounds | None:
        """None, with the reason in `frame.why`, where the window holds none or too few."""
        raise NotImplementedError


class ByRecords(Locate):
    """The last `length` samples, the current record's included, moved back by `offset`; None with fewer than `least`."""

    __slots__ = ("_key", "_needed", "_offset", "_whole")

    def __init__(self, key: str, length: int, offset: int, least: int) -> None:
        self._key: Final = key
        self._whole: Final = length + offset
        self._needed: Final = least + offset
        self._offset: Final = offset

    def find(self, frame: Frame) -> Bounds | None:
        series = frame.find(self._key)
        if series is None or not (end := frame.end(series.steps)):
            frame.missing(self._key)
            return None
        if end < self._needed:
            frame.short(self._key, end, self._needed)
            return None
        return series, max(0, end - self._whole), end - self._offset


class BySteps(Locate):
    """The samples at the last `length` step numbers (step - length, step], moved back by `offset`; None when there are none."""

    __slots__ = ("_key", "_length", "_offset")

    def __init__(self, key: str, length: int, offset: int) -> None:
        self._key: Final = key
        self._length: Final = length
        self._offset: Final = offset

    def find(self, frame: Frame) -> Bounds | None:
        series = frame.find(self._key)
        if series is None:
            frame.missing(self._key)
            return None
        newest = frame.step - self._offset
        high = bisect_right(series.steps, newest)
        low = bisect_right(series.steps, newest - self._length, 0, high)
        if low == high:
            frame.why = f"{frame.resolved(self._key)} is not in the last {self._length + self._offset} steps"
            return None
        return series, low, high


class ByTime(Locate):
    """The samples whose record's event time lies in (now - length, now], moved back by `offset`; None when there are none.

    Reads back from the current record to the first one that is older, so a clock that jumped ends the window.
    """

    __slots__ = ("_key", "_length", "_offset")

    def __init__(self, key: str, length: float, offset: float) -> None:
        self._key: Final = key
        self._length: Final = length
        self._offset: Final = offset

    def find(self, frame: Frame) -> Bounds | None:
        series = frame.find(self._key)
        if series is None:
            frame.missing(self._key)
            return None
        span = steps_between(frame, self._length, self._offset)
        low = high = 0
        if span is not None:
            low = bisect_left(series.steps, span[0])
            high = bisect_right(series.steps, span[1], low)
        if low == high:
            frame.why = f"{frame.resolved(self._key)} is not in the last {self._length + self._offset:g} s"
            return None
        return series, low, high


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

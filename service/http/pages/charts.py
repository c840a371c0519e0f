"""Charts as inline SVG, drawn on the server: what a template needs to write one, in the units of its view box.

A value that is not finite has no place on the axis: it is a cross on the upper edge, and the words say how many there are. What
a chart says is also said in words, for who does not see it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from service.http.pages.words import number, plural

WIDTH: Final = 360
HEIGHT: Final = 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 350, 12, 126
_CLOSE: Final = 2.0
"""A limit further outside of the values than so many times their range is told in words instead of flattening the line."""

Value = float | None
"""None: there is none at this step."""


class Tick(NamedTuple):
    at: float
    text: str


class Chart(NamedTuple):
    """One figure."""

    name: str
    words: str
    """All of it in a sentence or two."""
    lines: Sequence[str]
    """Stretches of the line, as the attribute `d` of paths."""
    dots: Sequence[tuple[float, float]]
    """Values that stand alone between gaps, and the newest one."""
    odd: Sequence[float]
    """Where values are that are not finite."""
    limits: Sequence[str]
    """Stretches of the threshold."""
    band: tuple[float, float] | None
    """Upper edge and height of what is normal."""
    onset: float | None
    y_ticks: Sequence[Tick]
    x_ticks: Sequence[Tick]


def chart(
    name: str,
    steps: Sequence[int],
    values: Sequence[Value],
    *,
    limits: Sequence[Value] = (),
    normal: tuple[float, float] | None = None,
    onset: int | None = None,
) -> Chart | None:
    """steps: increasing; values, limits: one per step; normal: lowest and highest normal value; onset: first abnormal step.

    None without any value.
    """
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    if not known:
        return None
    across = _Axis(steps[0], steps[-1], _LEFT, _RIGHT)
    near = [limit for limit in limits if limit is not None and math.isfinite(limit)]
    low, high = _range([value for _, value in known if math.isfinite(value)], near, normal)
    up = _Axis(low, high, _BOTTOM, _TOP)
    lines, dots = _stretches(steps, values, across, up)
    bounded = [limit if limit is not None and low <= limit <= high else None for limit in limits]
    limit_lines, _ = _stretches(steps, bounded, across, up) if bounded else ([], [])
    shows_onset = onset is not None and steps[0] <= onset <= steps[-1]
    return Chart(
        name=name,
        words=_words(known, near, normal, onset),
        lines=lines,
        dots=dots,
        odd=[across(step) for step, value in known if not math.isfinite(value)],
        limits=limit_lines,
        band=None if normal is None else _band(normal, low, high, up),
        onset=across(onset) if shows_onset and onset is not None else None,
        y_ticks=[Tick(up(at), _short(at)) for at in ((low, high) if high > low else (low,))],
        x_ticks=_x_ticks(steps, across),
    )


class _Axis:
    """From values to units of the view box."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self._low, self._begin = low, begin
        # Halves: the difference of two huge numbers may be beyond what a float holds.
        self._half = high / 2 - low / 2
        self._length = end - begin

    def __call__(self, value: float) -> float:
        part = 0.5 if self._half <= 0 else (value / 2 - self._low / 2) / self._half
        return round(self._begin + self._length * part, 1)


def _range(finite: Sequence[float], limits: Sequence[float], normal: tuple[float, float] | None) -> tuple[float, float]:
    """The values, and what they are held against if that is not too far away."""
    if not finite:
        return min(limits, default=0.0), max(limits, default=0.0)
    low, high = min(finite), max(finite)
    room = (high - low) * _CLOSE if high > low else abs(high) * _CLOSE
    for each in (*limits, *(normal or ())):
        if math.isfinite(each) and low - room <= each <= high + room:  # the room about a huge number may be infinite
            low, high = min(low, each), max(high, each)
    return low, high


def _stretches(
    steps: Sequence[int], values: Sequence[Value], across: _Axis, up: _Axis
) -> tuple[list[str], list[tuple[float, float]]]:
    """Unbroken lines, and the points that none of them shows: single ones and the newest."""
    lines: list[str] = []
    dots: list[tuple[float, float]] = []
    last: tuple[float, float] | None = None
    stretch: list[tuple[float, float]] = []
    for step, value in (*zip(steps, values, strict=True), (0, None)):
        if value is not None and math.isfinite(value):
            last = (across(step), up(value))
            stretch.append(last)
            continue
        if len(stretch) == 1:
            dots.append(stretch[0])
        elif stretch:
            lines.append("M" + "L".join(f"{x:g} {y:g}" for x, y in stretch))
        stretch = []
    if last is not None and last not in dots:
        dots.append(last)
    return lines, dots


def _band(normal: tuple[float, float], low: float, high: float, up: _Axis) -> tuple[float, float] | None:
    below, above = max(normal[0], low), min(normal[1], high)
    if not below <= above:
        return None
    top = up(above)
    return top, round(max(1.0, up(below) - top), 1)


def _short(value: float) -> str:
    """So short that it fits beside the axis."""
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}"


def _x_ticks(steps: Sequence[int], across: _Axis) -> list[Tick]:
    wanted = dict.fromkeys((steps[0], steps[len(steps) // 2], steps[-1]))
    return [Tick(across(step), str(step)) for step in wanted]


def _words(
    known: Sequence[tuple[int, float]], limits: Sequence[float], normal: tuple[float, float] | None, onset: int | None
) -> str:
    steps = [step for step, _ in known]
    parts = [f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"]
    if onset is not None:
        place = bisect_left(steps, onset)
        if 0 < place < len(known):
            parts.append(f"{number(known[place - 1][1])} before the onset at step {onset}, {number(known[place][1])} then")
    parts.append(f"newest {number(known[-1][1])}")
    if limits:
        parts.append(f"limit {number(limits[-1])}")
    if normal is not None:
        parts.append(f"normal {number(normal[0])} to {number(normal[1])}")
    if odd := sum(not math.isfinite(value) for _, value in known):
        parts.append(f"{plural(odd, 'value')} not finite (crosses)")
    return ", ".join(parts)


def charts(found: Iterable[Chart | None]) -> list[Chart]:
    """Those that there are."""
    return [each for each in found if each is not None]

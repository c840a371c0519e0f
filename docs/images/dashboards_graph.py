"""Graphs in the pictures of dashboards: lines and their gaps, both axes, limits, shading, marks of alerts, the legend."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, Final

from docs.images.dashboards_pen import (
    FAINT,
    FRAME,
    Asked,
    Box,
    Json,
    Series,
    cut,
    label,
    number,
    rect,
    series_name,
    stretches,
    times,
)

_CLASSIC: Final = tuple(
    "#7EB26D #EAB839 #6ED0E0 #EF843C #E24D42 #1F78C1 #BA43A9 #705DA0 #508642 #CCA300 #447EBC #C15C17 #890F02 #0A437C #6D1F62"
    " #584477 #B7DBAB #F4D598 #70DBED #F9BA8F #F29191 #82B5D8 #E5A8E2 #AEA2E0 #629E51 #E5AC0E #64B0C8 #E0752D #BF1B00 #0A50A1"
    " #962D82 #614D93".split()
)
"""Of Grafana's classic palette, from which a series takes its colour by its name."""
_ROUND: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Times a power of ten: distances of the lines of an axis."""
_ROUND_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_LOG_SECONDS: Final = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0)


def graph(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    """The graph of a panel in its box; nothing where no query has an answer. `marks` are the dashboard's annotations."""
    defaults, lines = panel["fieldConfig"]["defaults"], []
    for target in panel["targets"]:
        look = look_of(panel, target["refId"])
        for place, series in enumerate(asked.range(target["expr"])):
            name = series_name(target["legendFormat"], series.labels)
            lines.append((name, _colour(look, name, place), look, series))
    if not lines:
        return []
    wide = panel["options"]["legend"]["placement"] == "right"
    legend = min(len(lines), 9 if wide else 5)
    plot = Box(box.x + 46, box.y + 2, box.width - (330 if wide else 84), box.height - (24 if wide else 28 + 13 * legend + 2))
    log = defaults["custom"]["scaleDistribution"]["type"] == "log"
    out = [f'<rect x="{plot.x}" y="{plot.y}" width="{plot.width}" height="{plot.height}" fill="none" stroke="{FRAME}"/>']
    out += _marked(plot, asked, marks)
    for right in (False, True):
        drawn = [each for each in lines if (each[2].get("custom.axisPlacement") == "right") is right and "min" not in each[2]]
        values = [v for *_, series in drawn for _, v in series.points if math.isfinite(v) and (v > 0 or not log or right)]
        if not drawn or not values:
            continue
        custom = defaults["custom"]
        low = min([*values, *([] if right or "axisSoftMin" not in custom else [custom["axisSoftMin"]])])
        high = max([*values, *([] if right or "axisSoftMax" not in custom else [custom["axisSoftMax"]])])
        scale = _Scale(low, high, plot, log and not right)
        unit = next((look["unit"] for _, _, look, _ in drawn if "unit" in look), defaults["unit"])
        out += scale.axis(unit, right)
        if not right:
            out += _limits(defaults, scale, plot)
        for _, colour, look, series in drawn:
            out += _line(series, colour, scale, asked, dashed="custom.lineStyle" in look)
    for _, colour, look, series in lines:
        if "min" in look:
            out += _shade(series, colour, plot, asked)
    out += times(plot, asked)
    return out + _legend_table(lines, box, plot, wide, legend, defaults["unit"])


class _Scale:
    def __init__(self, low: float, high: float, plot: Box, log: bool) -> None:
        if low == high == 0:
            high = 1.0
        elif low == high:
            low, high = (low / 2, high * 2) if log else (low - abs(low or 1) * 0.1, high + abs(high or 1) * 0.1)
        self.log, self.plot = log, plot
        self.low, self.high = (math.log10(low), math.log10(high)) if log else (low, high)
        if not log:
            self.high += (self.high - self.low) * 0.05

    def y(self, value: float) -> float | None:
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        at = math.log10(value) if self.log else value
        return self.plot.y + self.plot.height * (1 - (at - self.low) / (self.high - self.low))

    def axis(self, unit: str, right: bool) -> list[str]:
        out = []
        for value in self._ticks(unit):
            y = self.y(value)
            if y is None:
                continue
            x, anchor = (self.plot.x + self.plot.width + 4, "start") if right else (self.plot.x - 4, "end")
            out.append(label(x, y + 4, number(value, unit), 10, FAINT, anchor))
            if not right:
                out.append(f'<path d="M{self.plot.x:.1f} {y:.1f}h{self.plot.width:.1f}" stroke="{FRAME}" stroke-width="0.5"/>')
        return out

    def _ticks(self, unit: str) -> list[float]:
        """Round numbers within the axis; on a logarithmic one over more than a decade the powers of ten."""
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        if self.log and unit == "s":
            return [each for each in _LOG_SECONDS if low <= each <= high]
        if self.log and self.high - self.low > 0.7:
            every = max(1, round((self.high - self.low) / 5))
            parts = (1, 2, 5) if self.high - self.low < 2.5 else (1,)
            powers = range(math.floor(self.low), math.floor(self.high + 1e-9) + 1, every)
            return [each for power in powers for part in parts if low <= (each := part * 10.0**power) <= high]
        scale = {"percentunit": 100.0, "bytes": 2.0**-20}.get(unit, 1.0)
        rough = (high - low) / 6 * scale
        if unit == "s" and rough > 1:
            step = next((each for each in _ROUND_SECONDS if each >= rough), _ROUND_SECONDS[-1] * math.ceil(rough / 3600))
        else:
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(each for each in _ROUND if each * power >= rough * 0.999) * power
        step /= scale
        first = math.ceil(low / step - 1e-9)
        return [step * place for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _colour(look: Json, name: str, place: int) -> str:
    fixed: str | None = look.get("color", {}).get("fixedColor")
    if fixed is None:
        return _CLASSIC[zlib.crc32(name.encode()) % len(_CLASSIC)]
    if look["color"]["mode"] != "shades" or place == 0:
        return fixed
    part = min(0.6, 0.2 * place)  # towards white, the more the further down the legend
    red, green, blue = (int(fixed[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(each + (255 - each) * part):02x}" for each in (red, green, blue))


def _line(series: Series, colour: str, scale: _Scale, asked: Asked, dashed: bool) -> list[str]:
    out, path, last = [], "", -math.inf
    dots = []
    for at, value in series.points:
        y = scale.y(value)
        if y is None:
            last = -math.inf
            continue
        x = scale.plot.x + (at - asked.start) / (asked.end - asked.start) * scale.plot.width
        path += f"{'L' if at - last <= asked.step * 1.5 else 'M'}{x:.1f} {y:.1f}"
        dots.append((x, y))
        last = at
    dash = ' stroke-dasharray="8 6"' if dashed else ""
    if path:
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
    if len(dots) == 1:
        out.append(f'<circle cx="{dots[0][0]:.1f}" cy="{dots[0][1]:.1f}" r="2" fill="{colour}"/>')
    return out


def _limits(defaults: Json, scale: _Scale, plot: Box) -> list[str]:
    out = []
    for step in defaults["thresholds"]["steps"]:
        y = None if step["value"] is None else scale.y(step["value"])
        if y is not None and plot.y <= y <= plot.y + plot.height:
            look = f'stroke="{step["color"]}" stroke-width="1.5" stroke-dasharray="10 5"'
            out.append(f'<path d="M{plot.x} {y:.1f}h{plot.width}" {look}/>')
    return out


def _shade(series: Series, colour: str, plot: Box, asked: Asked) -> list[str]:
    out = []
    for begin, end, value in stretches(series, asked.step):
        if value > 0:
            x = plot.x + (begin - asked.start) / (asked.end - asked.start) * plot.width
            out.append(
                rect(x, plot.y, max(2.0, (end - begin) / (asked.end - asked.start) * plot.width), plot.height, colour, 0.2)
            )
    return out


def _marked(plot: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    out = []
    for series in marks:
        for begin, end, _ in stretches(series, asked.step):
            x = plot.x + (begin - asked.start) / (asked.end - asked.start) * plot.width
            width = max(1.5, (end - begin) / (asked.end - asked.start) * plot.width)
            out += [rect(x, plot.y, width, plot.height, "#D55E00", 0.05), rect(x, plot.y - 3, width, 3, "#D55E00", 1)]
    return out


def _legend_table(lines: Sequence[Any], box: Box, plot: Box, wide: bool, most: int, unit: str) -> list[str]:
    x, y = (plot.x + plot.width + 40, plot.y + 12) if wide else (box.x, plot.y + plot.height + 26)
    width = box.x + box.width - x
    out = [label(x + width - 70, y, "last", 9, FAINT, "end"), label(x + width, y, "max", 9, FAINT, "end")]
    if len(lines) > most:  # Grafana's legend scrolls
        most -= 1
        out.append(label(x + 16, y + 13 * (most + 1), f"{len(lines) - most} more", 10, FAINT))
    for place, (name, colour, look, series) in enumerate(lines[:most]):
        down = y + 13 * (place + 1)
        finite = [value for _, value in series.points if math.isfinite(value)]
        kind = look.get("unit", unit)
        out += [
            rect(x, down - 6, 12, 3, colour, 1),
            label(x + 16, down, cut(name, width - 150, 10), 10),
            label(x + width - 70, down, number(finite[-1], kind) if finite else "", 10, anchor="end"),
            label(x + width, down, number(max(finite), kind) if finite else "", 10, anchor="end"),
        ]
    return out


def look_of(panel: Json, ref: str) -> Json:
    for each in panel["fieldConfig"]["overrides"]:
        if each["matcher"] == {"id": "byFrameRefID", "options": ref}:
            return {prop["id"]: prop.get("value") for prop in each["properties"]}
    return {}

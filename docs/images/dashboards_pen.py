"""What the pictures of dashboards are drawn with: answers of a Prometheus, words and numbers as Grafana writes them, SVG."""

from __future__ import annotations

import html
import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from grafana_dashboards.queries import interpolated

Json = dict[str, Any]
TEXT: Final = "#24292e"
FAINT: Final = "#6e7781"
FRAME: Final = "#d0d7de"


class Series(NamedTuple):
    """One series of an answer."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


class Asked(NamedTuple):
    """Whom to ask, and for which variables and range."""

    url: str
    values: Mapping[str, str]
    start: float
    end: float
    interval: float
    """Between two scrapes: Grafana asks for no more points than there are."""

    @property
    def step(self) -> float:
        return max(self.interval, (self.end - self.start) / 240)

    def range(self, expr: str) -> list[Series]:
        asked = {"start": self.start, "end": self.end, "step": self.step}
        found = self._get("query_range", query=interpolated(expr, self.values), **asked)
        return [Series(each["metric"], [(at, float(value)) for at, value in each["values"]]) for each in found]

    def now(self, expr: str) -> list[Series]:
        found = self._get("query", query=interpolated(expr, self.values), time=self.end)
        return [Series(each["metric"], [(each["value"][0], float(each["value"][1]))]) for each in found]

    def _get(self, path: str, **parameters: object) -> list[Json]:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
            result: list[Json] = json.load(answer)["data"]["result"]
        return result


class Box(NamedTuple):
    """A place in the picture, in pixels."""

    x: float
    y: float
    width: float
    height: float


def stretches(series: Series, step: float) -> list[tuple[float, float, float]]:
    """Begin, end and value of each time in which the value stays the same and no sample is missing. It ends where the next one
    begins, if that follows at once."""
    found: list[tuple[float, float, float]] = []
    for at, value in series.points:
        follows = bool(found) and at - found[-1][1] <= step * 1.5
        if follows:
            found[-1] = (found[-1][0], at, found[-1][2])
        if not follows or found[-1][2] != value:
            found.append((at, at, value))
    return found


def series_name(template: str, labels: Mapping[str, str]) -> str:
    """A series' name in the legend."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template) or "(none)"


def word(value: float | str, defaults: Json) -> tuple[str, str]:
    """A value as the mappings say it, and its colour; else as a number, in the colour of the thresholds."""
    for mapping in defaults["mappings"]:
        key = value if isinstance(value, str) else f"{value:g}"
        if mapping["type"] == "value" and key in mapping["options"]:
            found = mapping["options"][key]
            return found["text"], found.get("color") or TEXT
    if isinstance(value, str):
        return value, TEXT
    colour = TEXT
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return number(value, defaults["unit"], defaults.get("decimals")), TEXT if colour in ("text", "transparent") else colour


def number(value: float, unit: str, decimals: int | None = None) -> str:
    """A number in a unit of Grafana's."""
    if not math.isfinite(value):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[f"{value}"]
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "bytes":
        sizes = ((1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B"))
        size, name = next(each for each in sizes if value >= each[0] or each[0] == 1.0)
        return f"{value / size:.4g} {name}"
    if unit == "s":
        for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "\u00b5s")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return "0 s"
    if unit == "short" and abs(value) >= 1000:
        return f"{value / 1000:.3g} K" if abs(value) < 1e6 else f"{value / 1e6:.3g} Mil"
    text = f"{value:.0f}" if decimals == 0 else f"{value:.3g}"
    return f"{text} /s" if unit == "ops" else text


def cut(text: str, width: float, size: float) -> str:
    """A text that fits into so many pixels."""
    most = max(3, int(width / (size * 0.6)))
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def rect(x: float, y: float, width: float, height: float, colour: str, opacity: float) -> str:
    """A filled rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" fill-opacity="{opacity}"/>'


def label(x: float, y: float, text: str, size: float, colour: str = TEXT, anchor: str = "start", weight: str = "normal") -> str:
    """A piece of text."""
    look = f'font-size="{size:.0f}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{html.escape(text)}</text>'


def times(plot: Box, asked: Asked) -> list[str]:
    """The axis of time below a plot."""
    y = plot.y + plot.height + 12
    return [
        label(
            plot.x + plot.width * part / 4,
            y,
            time.strftime("%H:%M:%S", time.gmtime(asked.start + (asked.end - asked.start) * part / 4)),
            10,
            FAINT,
            "middle",
        )
        for part in range(5)
    ]

"""A picture of a generated dashboard, drawn from the answers of a real Prometheus: the same queries, places, units and colours.

It is no Grafana, and says so in the picture. It shows whether a panel says what it should: titles, legends, lines, words.
Run by `dashboards_play.py`, which plays recorded runs first.
"""

from __future__ import annotations

import html
import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grafana_dashboards.queries import interpolated

Json = dict[str, Any]
COLUMN, ROW, GAP = 60, 38, 8
CLASSIC = ("#7EB26D", "#EAB839", "#6ED0E0", "#EF843C", "#E24D42", "#1F78C1", "#BA43A9", "#705DA0", "#508642", "#CCA300")
"""Grafana's classic palette; it takes the colour of a series by its name."""
TEXT, FAINT, FRAME = "#24292e", "#6e7781", "#d0d7de"


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

    @property
    def step(self) -> float:
        return max(1.0, (self.end - self.start) / 240)

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


def picture(made: Json, asked: Asked, note: str) -> str:
    """The whole dashboard as SVG without outside resources."""
    panels = _expanded(made["panels"])
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels) * ROW + 70
    marks = [series for each in made["annotations"]["list"] for series in asked.range(each["expr"])]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="1456" height="{height}" font-family="DejaVu Sans, sans-serif">',
        f'<rect width="1456" height="{height}" fill="#f4f5f5"/>',
        _text(12, 26, made["title"], 18, weight="bold"),
        _text(12, 46, f"Rendering, not Grafana: {note}", 12, FAINT),
    ]
    for panel in panels:
        at = panel["gridPos"]
        box = Box(8 + at["x"] * COLUMN, 60 + at["y"] * ROW, at["w"] * COLUMN - GAP, at["h"] * ROW - GAP)
        parts += _drawn(panel, box, asked, marks)
    return "\n".join((*parts, "</svg>", ""))


def _expanded(panels: Sequence[Json]) -> list[Json]:
    """A repeated panel once for each value of its variable (the three that are picked first)."""
    found = []
    for panel in panels:
        if panel.get("repeat") != "alert":
            found.append(panel)
            continue
        for place, alert in enumerate(("LogprobGapStop", "EssRatioDecline", "GradNormTenfold")):
            text = json.dumps(panel).replace("$alert", alert)
            found.append({**json.loads(text), "gridPos": {**panel["gridPos"], "x": place * panel["gridPos"]["w"]}})
    return found


def _drawn(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    if panel["type"] == "row":
        folded = f"  ({len(panel['panels'])} panels, folded)" if panel["collapsed"] else ""
        sign = "\u25b8" if panel["collapsed"] else "\u25be"
        return [_text(box.x, box.y + 20, f"{sign} {panel['title']}{folded}", 14, weight="bold")]
    frame = (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="2" fill="white" stroke="{FRAME}"/>'
        + _text(box.x + 8, box.y + 17, _cut(panel["title"], box.width - 16, 12), 12, weight="bold")
    )
    inner = Box(box.x + 8, box.y + 26, box.width - 16, box.height - 34)
    draw = {"stat": _stat, "timeseries": _graph, "state-timeline": _timeline, "table": _table}[panel["type"]]
    return [frame, *(draw(panel, inner, asked, marks) or [_nothing(panel, inner)])]


def _nothing(panel: Json, box: Box) -> str:
    word = panel["fieldConfig"]["defaults"]["noValue"]
    return _text(box.x + box.width / 2, box.y + box.height / 2, word, 14, FAINT, anchor="middle")


# ---- the four kinds


def _stat(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    found = asked.now(panel["targets"][0]["expr"])
    if not found:
        return []
    value, defaults = found[0].points[0][1], panel["fieldConfig"]["defaults"]
    text, colour = _word(value, defaults)
    size = min(30.0, box.width / max(1, len(text)) * 1.45)
    return [_text(box.x + box.width / 2, box.y + box.height / 2 + size / 3, text, size, colour, "middle", "bold")]


def _graph(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    defaults, lines = panel["fieldConfig"]["defaults"], []
    for target in panel["targets"]:
        look = _look(panel, target["refId"])
        for series in asked.range(target["expr"]):
            name = _legend(target["legendFormat"], series.labels)
            colour = look.get("color", {}).get("fixedColor") or CLASSIC[sum(map(ord, name)) % len(CLASSIC)]
            lines.append((name, colour, look, series))
    if not lines:
        return []
    wide = panel["options"]["legend"]["placement"] == "right"
    legend = min(len(lines), 9 if wide else 4)
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
    out += _times(plot, asked)
    return out + _legend_table(lines, box, plot, wide, legend, defaults["unit"])


def _timeline(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    target = panel["targets"][0]
    found = sorted(asked.range(target["expr"]), key=lambda series: _legend(target["legendFormat"], series.labels))
    if not found:
        return []
    names = min(260.0, box.width / 3)
    plot = Box(box.x + names, box.y, box.width - names - 6, box.height - 16)
    high = min(26.0, plot.height / len(found))
    out = []
    for place, series in enumerate(found):
        y = plot.y + place * high
        out.append(_text(box.x, y + high / 2 + 4, _cut(_legend(target["legendFormat"], series.labels), names - 6, 11), 11))
        for begin, end, value in _stretches(series, asked.step):
            text, colour = _word(value, panel["fieldConfig"]["defaults"])
            x = plot.x + (begin - asked.start) / (asked.end - asked.start) * plot.width
            width = max(2.0, (end - begin) / (asked.end - asked.start) * plot.width)
            out.append(_rect(x, y + high * 0.08, width, high * 0.84, colour, 0.85))
            if width > 8 * len(text) and high > 12:
                out.append(_text(x + 4, y + high / 2 + 4, text, 10, "white"))
    return out + _times(plot, asked)


def _table(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    rows: dict[tuple[str, ...], dict[str, str | float]] = {}
    organise = next(each["options"] for each in panel["transformations"] if each["id"] == "organize")
    several = len(panel["targets"]) > 1
    for target in panel["targets"]:
        for series in asked.now(target["expr"]):
            key = tuple(f"{name}={value}" for name, value in sorted(series.labels.items()) if name != "team")
            rows.setdefault(key, {}).update(series.labels)
            rows[key][f"Value #{target['refId']}" if several else "Value"] = series.points[0][1]
    if not rows:
        return []
    fields = sorted(organise["indexByName"], key=organise["indexByName"].get)
    overrides = {each["matcher"]["options"]: each["properties"] for each in panel["fieldConfig"]["overrides"]}
    widths, out, y = [], [], box.y + 14
    looks = [{each["id"]: each.get("value") for each in overrides[organise["renameByName"][field]]} for field in fields]
    free = box.width - sum(look.get("custom.width", 0) for look in looks)
    rest = max(60.0, free / max(1, sum("custom.width" not in look for look in looks)))
    for look in looks:
        widths.append(look.get("custom.width", rest))
    shrink = min(1.0, box.width / sum(widths))
    for row in [None, *_sorted(panel, list(rows.values()))]:
        if y > box.y + box.height:
            out.append(_text(box.x + box.width, y - 16, f"... {len(rows)} rows", 10, FAINT, "end"))
            break
        x = box.x
        for field, look, width in zip(fields, looks, widths, strict=True):
            text, colour = organise["renameByName"][field], FAINT
            if row is not None:
                value = row.get(field, "")
                config = {"mappings": look.get("mappings", []), "unit": look.get("unit", "short"), "thresholds": {"steps": []}}
                text, colour = _word(value, config) if field in row else ("", TEXT)
                colour = colour if "custom.cellOptions" in look else "#0969da" if "links" in look else TEXT
            out.append(_text(x, y, _cut(text, width * shrink - 6, 11), 11, colour, weight="bold" if row is None else "normal"))
            x += width * shrink
        y += 19
    return out


def _sorted(panel: Json, rows: list[dict[str, str | float]]) -> list[dict[str, str | float]]:
    """As the panel says, and else by layer and alert."""
    names = next(each["options"]["renameByName"] for each in panel["transformations"] if each["id"] == "organize")
    rows.sort(key=lambda row: f"{row.get('layer', '')}{row.get('alert', '')}")
    for by in panel["options"].get("sortBy") or []:
        field = next(field for field, title in names.items() if title == by["displayName"])
        rows.sort(key=lambda row: row.get(field, ""), reverse=by["desc"])
    return rows


# ---- parts of a graph


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
        for part in range(5):
            at = self.low + (self.high - self.low) * part / 4
            y = self.plot.y + self.plot.height * (1 - part / 4)
            x, anchor = (self.plot.x + self.plot.width + 4, "start") if right else (self.plot.x - 4, "end")
            out.append(_text(x, y + 4, _number(10**at if self.log else at, unit), 10, FAINT, anchor))
            if not right:
                out.append(f'<path d="M{self.plot.x:.1f} {y:.1f}h{self.plot.width:.1f}" stroke="{FRAME}" stroke-width="0.5"/>')
        return out


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
    for begin, end, value in _stretches(series, asked.step):
        if value > 0:
            x = plot.x + (begin - asked.start) / (asked.end - asked.start) * plot.width
            out.append(
                _rect(x, plot.y, max(2.0, (end - begin) / (asked.end - asked.start) * plot.width), plot.height, colour, 0.2)
            )
    return out


def _marked(plot: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    out = []
    for series in marks:
        for begin, end, _ in _stretches(series, asked.step):
            x = plot.x + (begin - asked.start) / (asked.end - asked.start) * plot.width
            width = max(1.5, (end - begin) / (asked.end - asked.start) * plot.width)
            out += [_rect(x, plot.y, width, plot.height, "#D55E00", 0.05), _rect(x, plot.y - 3, width, 3, "#D55E00", 1)]
    return out


def _times(plot: Box, asked: Asked) -> list[str]:
    y = plot.y + plot.height + 12
    return [
        _text(
            plot.x + plot.width * part / 4,
            y,
            time.strftime("%H:%M:%S", time.gmtime(asked.start + (asked.end - asked.start) * part / 4)),
            10,
            FAINT,
            "middle",
        )
        for part in range(5)
    ]


def _legend_table(lines: Sequence[Any], box: Box, plot: Box, wide: bool, most: int, unit: str) -> list[str]:
    x, y = (plot.x + plot.width + 40, plot.y + 12) if wide else (box.x, plot.y + plot.height + 26)
    width = box.x + box.width - x
    out = [_text(x + width - 70, y, "last", 9, FAINT, "end"), _text(x + width, y, "max", 9, FAINT, "end")]
    for place, (name, colour, look, series) in enumerate(lines[:most]):
        down = y + 13 * (place + 1)
        finite = [value for _, value in series.points if math.isfinite(value)]
        kind = look.get("unit", unit)
        out += [
            _rect(x, down - 6, 12, 3, colour, 1),
            _text(x + 16, down, _cut(name, width - 150, 10), 10),
            _text(x + width - 70, down, _number(finite[-1], kind) if finite else "", 10, anchor="end"),
            _text(x + width, down, _number(max(finite), kind) if finite else "", 10, anchor="end"),
        ]
    return out


def _stretches(series: Series, step: float) -> list[tuple[float, float, float]]:
    """Begin, end and value of each time in which the value stays the same and no sample is missing."""
    found: list[tuple[float, float, float]] = []
    for at, value in series.points:
        if found and found[-1][2] == value and at - found[-1][1] <= step * 1.5:
            found[-1] = (found[-1][0], at, value)
        else:
            found.append((at, at, value))
    return found


# ---- words and numbers


def _look(panel: Json, ref: str) -> Json:
    for each in panel["fieldConfig"]["overrides"]:
        if each["matcher"] == {"id": "byFrameRefID", "options": ref}:
            return {prop["id"]: prop.get("value") for prop in each["properties"]}
    return {}


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template) or "(none)"


def _word(value: float | str, defaults: Json) -> tuple[str, str]:
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
    return _number(value, defaults["unit"], defaults.get("decimals")), TEXT if colour in ("text", "transparent") else colour


def _number(value: float, unit: str, decimals: int | None = None) -> str:
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


def _cut(text: str, width: float, size: float) -> str:
    most = max(3, int(width / (size * 0.6)))
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _rect(x: float, y: float, width: float, height: float, colour: str, opacity: float) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" fill-opacity="{opacity}"/>'


def _text(x: float, y: float, text: str, size: float, colour: str = TEXT, anchor: str = "start", weight: str = "normal") -> str:
    look = f'font-size="{size:.0f}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{html.escape(text)}</text>'

"""A picture of a generated dashboard, drawn from the answers of a real Prometheus: the same queries, places, units and colours.

It is no Grafana, and says so in the picture. It shows whether a panel says what it should: titles, legends, lines, words.
Run by `dashboards_play.py`, which plays recorded runs first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from docs.images.dashboards_graph import graph
from docs.images.dashboards_pen import (
    FAINT,
    FRAME,
    TEXT,
    Asked,
    Box,
    Json,
    Series,
    cut,
    label,
    rect,
    series_name,
    stretches,
    times,
    word,
)

COLUMN: Final = 60
ROW: Final = 38
GAP: Final = 8


def picture(made: Json, asked: Asked, note: str) -> str:
    """The whole dashboard as SVG without outside resources."""
    panels = _expanded(made["panels"])
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels) * ROW + 70
    marks = [series for each in made["annotations"]["list"] for series in asked.range(each["expr"])]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="1456" height="{height}" font-family="DejaVu Sans, sans-serif">',
        f'<rect width="1456" height="{height}" fill="#f4f5f5"/>',
        label(12, 26, made["title"], 18, weight="bold"),
        label(12, 46, f"Rendering, not Grafana: {note}", 12, FAINT),
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
        return [label(box.x, box.y + 20, f"{sign} {panel['title']}{folded}", 14, weight="bold")]
    frame = (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="2" fill="white" stroke="{FRAME}"/>'
        + label(box.x + 8, box.y + 17, cut(panel["title"], box.width - 16, 12), 12, weight="bold")
    )
    inner = Box(box.x + 8, box.y + 26, box.width - 16, box.height - 34)
    draw = {"stat": _stat, "timeseries": graph, "state-timeline": _timeline, "table": _table}[panel["type"]]
    return [frame, *(draw(panel, inner, asked, marks) or [_nothing(panel, inner)])]


def _nothing(panel: Json, box: Box) -> str:
    said = panel["fieldConfig"]["defaults"]["noValue"]
    return label(box.x + box.width / 2, box.y + box.height / 2, said, 14, FAINT, anchor="middle")


def _stat(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    found = asked.now(panel["targets"][0]["expr"])
    if not found:
        return []
    value, defaults = found[0].points[0][1], panel["fieldConfig"]["defaults"]
    text, colour = word(value, defaults)
    size = min(30.0, box.width / max(1, len(text)) * 1.45)
    return [label(box.x + box.width / 2, box.y + box.height / 2 + size / 3, text, size, colour, "middle", "bold")]


def _timeline(panel: Json, box: Box, asked: Asked, marks: Sequence[Series]) -> list[str]:
    target = panel["targets"][0]
    found = sorted(asked.range(target["expr"]), key=lambda series: series_name(target["legendFormat"], series.labels))
    if not found:
        return []
    names = min(260.0, box.width / 3)
    plot = Box(box.x + names, box.y, box.width - names - 6, box.height - 16)
    high = min(26.0, plot.height / len(found))
    out = []
    for place, series in enumerate(found):
        y = plot.y + place * high
        out.append(label(box.x, y + high / 2 + 4, cut(series_name(target["legendFormat"], series.labels), names - 6, 11), 11))
        for begin, end, value in stretches(series, asked.step):
            text, colour = word(value, panel["fieldConfig"]["defaults"])
            x = plot.x + (begin - asked.start) / (asked.end - asked.start) * plot.width
            width = max(2.0, (end - begin) / (asked.end - asked.start) * plot.width)
            out.append(rect(x, y + high * 0.08, width, high * 0.84, colour, 0.85))
            if width > 8 * len(text) and high > 12:
                out.append(label(x + 4, y + high / 2 + 4, text, 10, "white"))
    return out + times(plot, asked)


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
            out.append(label(box.x + box.width, y - 16, f"... {len(rows)} rows", 10, FAINT, "end"))
            break
        x = box.x
        for field, look, width in zip(fields, looks, widths, strict=True):
            text, colour = organise["renameByName"][field], FAINT
            if row is not None:
                value = row.get(field, "")
                config = {"mappings": look.get("mappings", []), "unit": look.get("unit", "short"), "thresholds": {"steps": []}}
                text, colour = word(value, config) if field in row else ("", TEXT)
                colour = colour if "custom.cellOptions" in look else "#0969da" if "links" in look else TEXT
            out.append(label(x, y, cut(text, width * shrink - 6, 11), 11, colour, weight="bold" if row is None else "normal"))
            x += width * shrink
        y += 19
    return out


def _sorted(panel: Json, rows: list[dict[str, str | float]]) -> list[dict[str, str | float]]:
    """As the panel says."""
    names = next(each["options"]["renameByName"] for each in panel["transformations"] if each["id"] == "organize")
    # The last column first: each sort keeps the order of equal rows.
    for by in reversed(panel["options"].get("sortBy") or []):
        field = next(field for field, title in names.items() if title == by["displayName"])
        rows.sort(key=lambda row: row.get(field, ""), reverse=by["desc"])
    return rows

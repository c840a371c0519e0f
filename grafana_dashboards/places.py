"""Where each panel stands on Grafana's grid of 24 columns: from left to right, line below line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from grafana_dashboards.model import Panel, Row

COLUMNS: Final = 24


class Place(NamedTuple):
    """In columns and rows of the grid; a row of it is 38 pixels with its gap."""

    x: int
    y: int
    width: int
    height: int


class Placed(NamedTuple):
    """A row's heading and its panels."""

    row: Row
    place: Place
    panels: list[tuple[Panel, Place]]


def placed(rows: Sequence[Row]) -> list[Placed]:
    """Panels of a collapsed row stand where they appear when it is opened. Raises ValueError (too wide)."""
    found = []
    top = 0
    for row in rows:
        heading = Place(0, top, COLUMNS, 1)
        x, y, below = 0, top + 1, top + 1
        panels = []
        for panel in row.panels:
            if panel.width > COLUMNS:
                raise ValueError(f"{panel.title!r} is {panel.width} columns wide; there are {COLUMNS}")
            if x + panel.width > COLUMNS:
                x, y = 0, below
            panels.append((panel, Place(x, y, panel.width, panel.height)))
            x += panel.width
            below = max(below, y + panel.height)
        found.append(Placed(row, heading, panels))
        top = top + 1 if row.collapsed else below
    return found

"""What the graphs of all layers of one run are made of: lines of a gauge, graphs, graphs of shares, a line and its twin."""

from __future__ import annotations

from dataclasses import replace

from grafana_dashboards.model import Kind, Line, Panel, Scale, Target, When
from grafana_dashboards.promql import gauge

Panels = tuple[Panel, ...]


def series(metric: str, legend: str, colour: str, when: When = When.ALWAYS, **looks: bool) -> Target:
    """One gauge of the run as a line."""
    return Target(gauge(metric), legend, when, colour, dashed=looks.get("dashed", False), right=looks.get("right", False))


def graph(
    title: str,
    description: str,
    *targets: Target,
    unit: str = "short",
    lines: tuple[Line, ...] = (),
    width: int = 8,
    low: float | None = None,
    high: float | None = None,
    scale: Scale = Scale.LINEAR,
) -> Panel:
    """One graph of a layer."""
    return Panel(
        title,
        Kind.TIMESERIES,
        width,
        9,
        targets,
        description,
        unit=unit,
        lines=lines,
        minimum=low,
        maximum=high,
        scale=scale,
        no_value="not logged by this trainer" if all(each.when is When.LOGGED for each in targets) else "no data",
    )


def shares(
    title: str, description: str, *targets: Target, lines: tuple[Line, ...] = (), high: float | None = 1, width: int = 8
) -> Panel:
    """A graph of ratios from 0 on, as per cent. `high` None: of small ones, which would be flat on an axis up to 1."""
    return graph(title, description, *targets, unit="percentunit", lines=lines, width=width, low=0, high=high)


def against(title: str, description: str, one: Target, other: Target, high: float | None = 1) -> Panel:
    """Two shares that are read against each other: what is seen, and dashed what it is held against."""
    return shares(title, description, one, replace(other, dashed=True), high=high)

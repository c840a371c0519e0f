"""A dashboard as Grafana's Classic JSON, by the builders of grafana-foundation-sdk; its panels are `panel_builders`.

What the builders add unasked is taken out again at the end (`clean`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from grafana_dashboards.model import Annotation, Dashboard, Variable
from grafana_dashboards.model import VariableKind as Kinds
from grafana_dashboards.panel_builders import built, link
from grafana_dashboards.places import Place, placed
from grafana_dashboards.sdk import SOURCE, JSONEncoder, dashboards, models


def classic(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as it is written to a file: without `id` and `version`, which belong to one Grafana."""
    builder = (
        dashboards.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags(["tocsin", "generated"])
        .readonly()
        .time(dashboard.since, "now")
        .timezone("browser")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .variables([_variable(each) for each in dashboard.variables])
        .annotations([_annotation(each) for each in dashboard.annotations])
        .links([_others(), *(link(title, url) for title, url in dashboard.links)])
    )
    for row, place, panels in placed(dashboard.rows):
        header = dashboards.Row(row.title).id(row.id).collapsed(row.collapsed).grid_pos(_grid(place))
        made_of = [built(panel).grid_pos(_grid(where)) for panel, where in panels]
        if row.collapsed:
            for each in made_of:
                header.with_panel(each)
        builder.with_row(header)
        if not row.collapsed:  # the SDK folds a row as soon as a panel is put into it
            for each in made_of:
                builder.with_panel(each)
    made: dict[str, Any] = json.loads(json.dumps(builder.build(), cls=JSONEncoder))
    clean(made)
    return made


def clean(made: dict[str, Any]) -> None:
    """Take out what the builders add unasked. Changes `made`."""
    # `placement: inControlsMenu` hides links and annotations in a menu.
    for place in (made["links"], made["annotations"]["list"], *_link_lists(made["panels"])):
        for each in place:
            each.pop("placement", None)
    for variable in made["templating"]["list"]:
        for key in [key for key in variable if key.startswith("auto")]:
            del variable[key]
    for panel in made["panels"] + [inner for row in made["panels"] for inner in row.get("panels", [])]:
        if "repeat" not in panel:
            panel.pop("repeatDirection", None)
    for key in ("id", "version"):
        made.pop(key, None)


def _link_lists(panels: Iterable[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    for panel in panels:
        yield panel.get("links", [])
        config = panel.get("fieldConfig", {})
        yield config.get("defaults", {}).get("links", [])
        for override in config.get("overrides", []):
            yield from (each["value"] for each in override["properties"] if each["id"] == "links")
        yield from _link_lists(panel.get("panels", []))


def _grid(place: Place) -> models.GridPos:
    return models.GridPos(h=place.height, w=place.width, x=place.x, y=place.y)


def _others() -> dashboards.DashboardLink:
    return (
        dashboards.DashboardLink("Tocsin")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags(["tocsin"])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def _annotation(annotation: Annotation) -> dashboards.AnnotationQuery:
    return (
        dashboards.AnnotationQuery()
        .name(annotation.name)
        .datasource(SOURCE)
        .enable(True)
        .hide(False)
        .icon_color(annotation.colour)
        .expr(annotation.expr)
        .step("15s")
        .title_format(annotation.title)
        .text_format(annotation.text)
        .tag_keys(annotation.tags)
        .use_value_for_time(False)
    )


def _variable(
    variable: Variable,
) -> dashboards.DatasourceVariable | dashboards.ConstantVariable | dashboards.QueryVariable:
    if variable.kind is Kinds.DATASOURCE:
        return dashboards.DatasourceVariable(variable.name).label(variable.label).type(variable.query)
    if variable.kind is Kinds.CONSTANT:
        return dashboards.ConstantVariable(variable.name).label(variable.label).value(variable.query)
    builder = (
        dashboards.QueryVariable(variable.name)
        .label(variable.label)
        .query({"query": variable.query, "refId": "StandardVariableQuery"})
        .definition(variable.query)
        .datasource(SOURCE)
        .multi(variable.multi)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if variable.all_value is not None:
        builder.include_all(True).all_value(variable.all_value)
    if variable.default:
        values = list(variable.default)
        builder.current(models.VariableOption(selected=True, text=values, value=values))
    elif variable.all_value is not None:
        builder.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return builder

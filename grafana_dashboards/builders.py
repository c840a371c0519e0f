"""A dashboard as Grafana's Classic JSON, by the builders of grafana-foundation-sdk 0.0.21. The only module that imports them.

What the builders leave open or get wrong is set right here, for all panels alike: ids, places, legends, tooltips, the placement
of links (`clean`). Source of the traps: the SDK's own output, and Grafana's front end.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Final

from grafana_dashboards.model import Annotation, Column, Dashboard, Kind, Line, Panel, Scale, Target, Variable, Word
from grafana_dashboards.model import VariableKind as Kinds
from grafana_dashboards.palette import GREY
from grafana_dashboards.places import Place, placed

with warnings.catch_warnings():
    # The builder of Classic dashboards says at its import that there is a newer kind. Classic is what every Grafana reads.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import common as common_builders
    from grafana_foundation_sdk.builders import dashboard as dashboards
    from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common
    from grafana_foundation_sdk.models import dashboard as models
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDE: Final = 12
"""From this width on there is room for the legend beside the graph."""
_NO_LIMIT: Final = "transparent"

AnyPanel = timeseries.Panel | stat.Panel | table.Panel | statetimeline.Panel


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
        .links([_others(), *(_link(title, url) for title, url in dashboard.links)])
    )
    for row, place, panels in placed(dashboard.rows):
        header = dashboards.Row(row.title).id(row.id).collapsed(row.collapsed).grid_pos(_grid(place))
        built = [_panel(panel).grid_pos(_grid(where)) for panel, where in panels]
        if row.collapsed:
            for each in built:
                header.with_panel(each)
        builder.with_row(header)
        if not row.collapsed:  # the SDK folds a row as soon as a panel is put into it
            for each in built:
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


# ---- panels


def _panel(panel: Panel) -> AnyPanel:
    builder: AnyPanel
    match panel.kind:
        case Kind.TIMESERIES:
            builder = _timeseries(panel)
        case Kind.STAT:
            builder = _stat(panel)
        case Kind.TIMELINE:
            builder = _timeline(panel)
        case Kind.TABLE:
            builder = _table(panel)
    builder.id(panel.id).title(panel.title).description(panel.description).datasource(SOURCE).no_value(panel.no_value)
    builder.targets([_target(target, ref, panel.kind) for ref, target in zip(_refs(), panel.targets, strict=False)])
    builder.unit(panel.unit)
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    if panel.link is not None:
        builder.data_links([_link(*panel.link)])
    if panel.repeat is not None:
        builder.repeat(panel.repeat).repeat_direction("h").max_per_row(24 // panel.width)
    return builder


def _refs() -> Iterable[str]:
    return map(chr, range(ord("A"), ord("Z") + 1))


def _target(target: Target, ref: str, kind: Kind) -> prometheus.Dataquery:
    query = prometheus.Dataquery().ref_id(ref).expr(target.expr).datasource(SOURCE).legend_format(target.legend or "__auto")
    if kind is Kind.TABLE:
        return query.instant().format(PromQueryFormat.TABLE)
    if kind is Kind.STAT:
        return query.instant().format(PromQueryFormat.TIME_SERIES)
    return query.range().format(PromQueryFormat.TIME_SERIES)


def _timeseries(panel: Panel) -> timeseries.Panel:
    scale = common.ScaleDistribution.LINEAR if panel.scale is Scale.LINEAR else common.ScaleDistribution.LOG
    distribution = common_builders.ScaleDistributionConfig().type(scale)
    if panel.scale is Scale.LOG:
        distribution.log(10)
    style = common.GraphThresholdsStyleMode.DASHED if panel.lines else common.GraphThresholdsStyleMode.OFF
    stacking = common.StackingMode.NORMAL if panel.stacked else common.StackingMode.NONE
    builder = (
        timeseries.Panel()
        .legend(_legend(panel))
        .tooltip(_tooltip())
        .color_scheme(dashboards.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .thresholds(_thresholds(panel.lines, _NO_LIMIT))
        .thresholds_style(common_builders.GraphThresholdsStyleConfig().mode(style))
        .scale_distribution(distribution)
        .stacking(common_builders.StackingConfig().mode(stacking))
        .line_width(2)
        .fill_opacity(20 if panel.stacked else 0)
        .show_points(common.VisibilityMode.AUTO)
        .point_size(4)
        .span_nulls(False)  # a gap in the records is a finding; it stays to be seen
    )
    if panel.minimum is not None:
        builder.axis_soft_min(panel.minimum)
    if panel.maximum is not None:
        builder.axis_soft_max(panel.maximum)
    for ref, target in zip(_refs(), panel.targets, strict=False):
        if looks := _looks(target):
            builder.override_by_query(ref, looks)
    return builder


def _looks(target: Target) -> list[models.DynamicConfigValue]:
    found: list[tuple[str, object]] = []
    if target.colour is not None:
        found.append(("color", {"mode": "fixed", "fixedColor": target.colour}))
    if target.unit is not None:
        found.append(("unit", target.unit))
    if target.dashed:
        found.append(("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}))
    if target.right:
        found.append(("custom.axisPlacement", "right"))
    if target.shade:
        found += [
            ("custom.axisPlacement", "hidden"),
            ("custom.fillOpacity", 25),
            ("custom.lineWidth", 0),
            ("custom.lineInterpolation", "stepAfter"),
            ("custom.showPoints", "never"),
            ("custom.scaleDistribution", {"type": "linear"}),
            ("custom.axisLabel", "shading"),  # an axis of its own: series with the same unit would share theirs with it
            ("unit", "bool_yes_no"),
            ("min", 0),
            ("max", 1),
        ]
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in found]


def _stat(panel: Panel) -> stat.Panel:
    builder = (
        stat.Panel()
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .text_mode(common.BigValueTextMode.AUTO)
        .color_scheme(dashboards.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds(panel.lines, panel.targets[0].colour or "text"))
    )
    return builder.mappings(_mappings(panel.words))


def _timeline(panel: Panel) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .mappings(_mappings(panel.words))
        .color_scheme(dashboards.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds((), GREY))
        .legend(_legend(panel))
        .tooltip(_tooltip())
        .show_value(common.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(85)
        .line_width(0)
        .span_nulls(False)
    )


def _table(panel: Panel) -> table.Panel:
    builder = (
        table.Panel()
        .cell_height(common.TableCellHeight.SM)
        .color_scheme(dashboards.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds((), "text"))
        .filterable(True)
    )
    if panel.sort is not None:
        builder.sort_by([common_builders.TableSortByFieldState().display_name(panel.sort[0]).desc(panel.sort[1])])
    if len(panel.targets) > 1:
        builder.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    # Only the columns that are named are shown, in their order, under their titles.
    names = {"names": [column.field for column in panel.columns]}
    builder.with_transformation(models.DataTransformerConfig(id_val="filterFieldsByName", options={"include": names}))
    organise = {
        "excludeByName": {},
        "indexByName": {column.field: place for place, column in enumerate(panel.columns)},
        "renameByName": {column.field: column.title for column in panel.columns},
    }
    builder.with_transformation(models.DataTransformerConfig(id_val="organize", options=organise))
    for column in panel.columns:
        builder.override_by_name(column.title, _cells(column))
    return builder


def _cells(column: Column) -> list[models.DynamicConfigValue]:
    found: list[tuple[str, object]] = []
    if column.width is not None:
        found.append(("custom.width", column.width))
    if column.unit is not None:
        found.append(("unit", column.unit))
    if column.words or column.texts:
        texts = {value: models.ValueMappingResult(text=text, color=colour) for value, text, colour in column.texts}
        found.append(("mappings", [*_mappings(column.words), *([models.ValueMap(options=texts)] if texts else [])]))
    if column.coloured:
        found.append(("custom.cellOptions", {"type": "color-text"}))
    if column.link is not None:
        found.append(("links", [_link(*column.link).build()]))
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in found]


def _mappings(words: Sequence[Word]) -> list[models.ValueMapping]:
    nan = models.SpecialValueMap(
        options=models.DashboardSpecialValueMapOptions(
            match=models.SpecialValueMatch.NA_N, result=models.ValueMappingResult(text="NaN", color=GREY)
        )
    )
    if not words:
        return [nan]
    values = {f"{word.value:g}": models.ValueMappingResult(text=word.text, color=word.colour) for word in words}
    return [models.ValueMap(options=values), nan]


def _thresholds(lines: Sequence[Line], base: str) -> dashboards.ThresholdsConfig:
    steps = [models.Threshold(value=None, color=base)]
    steps += [models.Threshold(value=line.value, color=line.colour) for line in sorted(lines, key=lambda line: line.value)]
    return dashboards.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _legend(panel: Panel) -> common_builders.VizLegendOptions:
    if panel.kind is Kind.TIMELINE or not panel.legend:  # a timeline has its names at the left and its words in the bars
        return common_builders.VizLegendOptions().show_legend(False).display_mode(common.LegendDisplayMode.LIST)
    return (
        common_builders.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.RIGHT if panel.width >= _WIDE else common.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )


def _tooltip() -> common_builders.VizTooltipOptions:
    return common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)


# ---- around the panels


def _link(title: str, url: str) -> dashboards.DashboardLink:
    return dashboards.DashboardLink(title).type(models.DashboardLinkType.LINK).url(url).target_blank(not url.startswith("/d/"))


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

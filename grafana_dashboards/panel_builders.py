"""Panels as grafana-foundation-sdk builds them, with the looks of this house: legends, tooltips, colours, gaps that stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from grafana_dashboards.model import Column, Kind, Line, Panel, Scale, Target, Word
from grafana_dashboards.palette import GREY
from grafana_dashboards.sdk import (
    SOURCE,
    PromQueryFormat,
    common,
    common_builders,
    dashboards,
    models,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)

_WIDE: Final = 12
"""From this width on there is room for the legend beside the graph."""
_NO_LIMIT: Final = "transparent"

AnyPanel = timeseries.Panel | stat.Panel | table.Panel | statetimeline.Panel


def built(panel: Panel) -> AnyPanel:
    """The panel, but for its place."""
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
        builder.data_links([link(*panel.link)])
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
        found.append(("color", {"mode": "shades" if target.shades else "fixed", "fixedColor": target.colour}))
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
    builder.sort_by([common_builders.TableSortByFieldState().display_name(title).desc(down) for title, down in panel.sort])
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
        found.append(("links", [link(*column.link).build()]))
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


def link(title: str, url: str) -> dashboards.DashboardLink:
    """A link; within Grafana in the same tab."""
    return dashboards.DashboardLink(title).type(models.DashboardLinkType.LINK).url(url).target_blank(not url.startswith("/d/"))

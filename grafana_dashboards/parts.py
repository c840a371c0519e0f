"""Panels that several dashboards have, and the links between them."""

from __future__ import annotations

from typing import Final

from grafana_dashboards import promql
from grafana_dashboards.model import Annotation, Column, Kind, Panel, Target, When
from grafana_dashboards.palette import ALERT_STATE, BLUE, GREY, RANKS, UP, VERMILION
from rules.bundle import Bundle

OVERVIEW: Final = "tocsin-overview"
RUN: Final = "tocsin-run"
RULES: Final = "tocsin-rules"
SERVICE: Final = "tocsin-service"
UIDS: Final = (OVERVIEW, RUN, RULES, SERVICE)

_PICKED: Final = "${datasource:queryparam}&${job:queryparam}&${__url_time_range}"
RUN_OF_SERIES: Final = ("Open the run", f"/d/{RUN}?{_PICKED}&var-run=${{__field.labels.run:percentencode}}")
"""On a series that has the label `run`."""
_RUN_OF_ROW: Final = ("Open the run", f"/d/{RUN}?{_PICKED}&var-run=${{__data.fields.Run:percentencode}}")
_RULE_OF_ROW: Final = (
    "Value against limit",
    f"/d/{RULES}?{_PICKED}&var-run=${{__data.fields.Run:percentencode}}&var-alert=${{__data.fields.Alert:percentencode}}",
)
_RUNBOOK: Final = ("Open the runbook", "${runbooks}/${__value.text}.md")
_BY_WHAT: Final = ((("Layer", False), ("Severity", True)), (("Severity", True), ("Layer", False)))
INCIDENTS: Final = ("Open incidents", "${collector}/")
AGE: Final = "Age of the newest record when it was judged, since the broker had it, or a spool was read; 0 while none come."
NO_AGE: Final = "unknown with clock: event"
"""Where the time of the records is the trainer's, as in a replay, nobody knows when they came."""
RUN_PAGE: Final = ("Run in Tocsin", "${collector}/runs/${run:percentencode}")
"""What moved first, rollouts, who was told."""


def up(width: int) -> Panel:
    """Whether Prometheus reaches the collector: all that a dead one exports just vanishes, so its silence needs a tile."""
    return Panel(
        "Collector",
        Kind.STAT,
        width,
        4,
        (Target(f"min(up{{{promql.JOB}}})", "collector"),),
        "The worst of the scraped collectors. UNREACHABLE or no data: nobody watches the runs, whatever else is shown here.",
        words=UP,
        no_value="NOT SCRAPED",
    )


def firing_alerts(selector: str, bundle: Bundle, width: int, height: int, many: bool) -> Panel:
    """The alerts that fire now, each with its runbook. `many`: over several runs, what wakes somebody first; else by layer, the
    order in which a run's alerts are to be read."""
    runbooks = tuple((rule.name, rule.runbook, None) for rule in bundle.alerts)
    expr = promql.firing_ranked(selector)
    if many:
        expr = promql.of_model(f"({expr})")
    # One label more, of the same value: the column that is mapped to the name of the runbook's page.
    expr = f'label_replace({expr}, "runbook", "$1", "alert", "(.*)")'
    run = (Column("team", "Team", 110), Column("run", "Run", 260, link=_RUN_OF_ROW)) if many else (Column("run", "Run", 200),)
    return Panel(
        "Alerts that fire now",
        Kind.TABLE,
        width,
        height,
        (Target(expr, when=When.SICK),),
        "What fires at the end of the time range. An alert that an earlier layer explains is not here; the rules dashboard"
        " has it. Alerts of your own rule files have no page under this name unless you add one.",
        columns=(
            Column("Value", "Severity", 110, words=RANKS, coloured=True),
            Column("layer", "Layer", 70),
            *run,
            Column("alert", "Alert", 240, link=_RULE_OF_ROW),
            Column("runbook", "Runbook", 240, texts=runbooks, link=_RUNBOOK),
        ),
        no_value="nothing fires",
        sort=(*_BY_WHAT[many], ("Run", False), ("Alert", False)),
    )


def records() -> tuple[Target, ...]:
    """Records per second by what became of them: new steps, and beside them what is rarer."""

    def of(matcher: str, colour: str, shades: bool) -> Target:
        return Target(promql.rate("records_total", "outcome", matcher), "{{outcome}}", colour=colour, shades=shades)

    return of('outcome="step"', BLUE, False), of('outcome!="step"', GREY, True)


def alert_marks(selector: str) -> tuple[Annotation, ...]:
    """Marks on every graph of one run: stretches in which a page or a stop fires."""
    return (_marks("Pages and stops", _loud(selector), "{{severity}}: {{alert}}"),)


def alert_onsets(selector: str) -> tuple[Annotation, ...]:
    """Marks on graphs of many runs: when a page or a stop began; the stretches of all runs would cover each other."""
    begun = f"{_loud(selector)} unless {_loud(selector, ' offset $__interval')}"
    return (_marks("Pages and stops begin", begun, "{{severity}}: {{alert}} on {{run}}"),)


def _loud(selector: str, moment: str = "") -> str:
    state = f'tocsin_alert_state{{{selector},severity=~"page|stop"}}{moment}'
    return f"max by (run, alert, severity, layer) ({state} == {promql.FIRING})"


def _marks(name: str, expr: str, title: str) -> Annotation:
    return Annotation(name, expr, title, "{{run}}, layer {{layer}}", "severity,layer", VERMILION)


def alert_states(selector: str, width: int, height: int) -> Panel:
    """All alerts of a run that were not quiet in the time range, as bars."""
    expr = f"max by (run, alert, severity, layer) (tocsin_alert_state{{{selector}}}) > 0"
    return Panel(
        "Alerts over time",
        Kind.TIMELINE,
        width,
        height,
        (Target(expr, "{{layer}} {{alert}} ({{severity}})", When.SICK),),
        "PENDING: the condition holds, its hold time has not passed. EXPLAINED: it fires; an earlier layer takes its meaning. A"
        " gap: inactive, or no data.",
        words=ALERT_STATE,
        no_value="nothing was pending or fired",
    )

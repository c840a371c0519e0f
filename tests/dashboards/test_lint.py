"""Every trap that the linter knows, sprung: a changed dashboard is reported under the code of that trap, and under no other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from grafana_dashboards.lint import lint, lint_together
from grafana_dashboards.lint_queries import lint_queries
from tests.kit.panels import committed

Json = dict[str, Any]


def panel(made: Json, kind: str) -> Json:
    """The first panel of a kind."""
    found: Json = next(each for each in made["panels"] if each["type"] == kind)
    return found


def first_query(text: str) -> Callable[[Json], None]:
    return lambda made: panel(made, "timeseries")["targets"][0].update(expr=text)


def at(kind: str, *path: str | int, to: Any) -> Callable[[Json], None]:
    """A change of one value of the first panel of a kind (or of the dashboard, for `""`)."""

    def change(made: Json) -> None:
        where: Any = panel(made, kind) if kind else made
        for key in path[:-1]:
            where = where[key]
        where[path[-1]] = to

    return change


def same_id(made: Json) -> None:
    panel(made, "timeseries")["id"] = panel(made, "stat")["id"]


def same_title(made: Json) -> None:
    panel(made, "timeseries")["title"] = panel(made, "stat")["title"]


def without_up_tile(made: Json) -> None:
    made["panels"] = [each for each in made["panels"] if each["title"] != "Collector"]


def folded_and_empty(made: Json) -> None:
    panel(made, "row")["collapsed"] = True


def on_top(made: Json) -> None:
    one, other = [each for each in made["panels"] if each["type"] == "timeseries"][:2]
    one["gridPos"] = dict(other["gridPos"])


def link(url: str) -> Callable[[Json], None]:
    return lambda made: made["links"].append({"title": "x", "type": "link", "url": url})


TRAPS: list[tuple[Callable[[Json], None], str]] = [
    (at("", "uid", to="not a uid"), "uid"),
    (at("", "id", to=3), "own-id"),
    (at("", "version", to=3), "own-id"),
    (at("", "__inputs", to=[{"name": "DS_PROMETHEUS"}]), "export"),
    (at("", "editable", to=True), "editable"),
    (at("", "tags", to=["tocsin"]), "tags"),
    (at("", "description", to="A dashboard."), "description"),
    (same_id, "duplicate-id"),
    (at("row", "id", to=0), "no-id"),
    (same_title, "duplicate-panel-title"),
    (lambda made: made["templating"]["list"].reverse(), "datasource-first"),
    (at("timeseries", "gridPos", "x", to=20), "overflow"),
    (on_top, "overlap"),
    (folded_and_empty, "row"),
    (at("timeseries", "description", to=""), "no-description"),
    (at("timeseries", "targets", 0, "datasource", to={"type": "prometheus", "uid": "abc"}), "datasource"),
    (at("timeseries", "fieldConfig", "defaults", "noValue", to=""), "no-value"),
    (at("timeseries", "fieldConfig", "defaults", "unit", to=""), "no-unit"),
    (lambda made: panel(made, "timeseries")["targets"].append(panel(made, "timeseries")["targets"][0]), "duplicate-ref"),
    (without_up_tile, "no-up-tile"),
    (at("timeseries", "options", "legend", "showLegend", to=False), "legend"),
    (at("timeseries", "options", "tooltip", "mode", to="single"), "tooltip"),
    (at("timeseries", "fieldConfig", "defaults", "custom", "spanNulls", to=True), "span-nulls"),
    (at("stat", "options", "graphMode", to="area"), "spark-line"),
    (at("timeseries", "fieldConfig", "defaults", "thresholds", "steps", 0, "value", to=1.0), "thresholds"),
    (at("timeseries", "fieldConfig", "defaults", "color", "mode", to="continuous-GrYlRd"), "colour"),
    (at("timeseries", "fieldConfig", "defaults", "thresholds", "steps", 0, "color", to="green"), "colour"),
    (at("stat", "fieldConfig", "defaults", "mappings", 0, "options", "0", to={"color": "#D55E00"}), "colour-alone"),
    (lambda made: made["annotations"]["list"][0].update(iconColor="red"), "colour"),
    (lambda made: made["annotations"]["list"][0].update(placement="inControlsMenu"), "placement"),
    (lambda made: made["links"][0].update(placement="inControlsMenu"), "placement"),
    (link("/d/tocsin-gone"), "dead-link"),
    (link("https://example.com/x"), "foreign-link"),
    (link("${nope}/"), "undefined-variable"),
    (
        lambda made: made["annotations"]["list"][0].update(expr='tocsin_alert_state{job=~"$job",run=~"$run"} == 3'),
        "all-excludes",
    ),
]


@pytest.mark.parametrize(("change", "code"), TRAPS, ids=[f"{number}-{code}" for number, (_, code) in enumerate(TRAPS)])
def test_each_trap_is_reported(change: Callable[[Json], None], code: str) -> None:
    made = copy.deepcopy(committed()["tocsin-overview"])
    change(made)
    assert {finding.code for finding in lint(made)} == {code}


QUERIES = [
    ('max(tocsin_run_stepp{job=~"$job"})', "unknown-metric", "nothing is called 'tocsin_run_stepp'"),
    ('max(tocsin_run_step{job=~"$job"}', "syntax", "this is no PromQL"),
    ('max(tocsin_run_step{job=~"$job",run=~"$rum"})', "undefined-variable", "$rum is defined nowhere"),
    ('sum(rate(tocsin_records_total{job=~"$job"}[5m]))', "fixed-range", "write $__rate_interval"),
    ('sum(increase(tocsin_records_total{job=~"$job"}[1h]))', "fixed-range", "write $__rate_interval"),
    ('sum(rate(tocsin_run_step{job=~"$job"}[$__rate_interval]))', "rate-of-gauge", "tocsin_run_step is no counter"),
    ('tocsin_run_step{job=~"$job",model="x"}', "unknown-label", "tocsin_run_step has no label 'model'"),
    ('tocsin_run_step{job=~"$job",exported_job="x"}', "exported-label", "exported_job"),
    ("tocsin_run_step", "no-job", "in all jobs"),
]


@pytest.mark.parametrize(("text", "code", "message"), QUERIES, ids=[f"{n}-{code}" for n, (_, code, _) in enumerate(QUERIES)])
def test_each_fault_of_a_query_is_reported(text: str, code: str, message: str) -> None:
    made = copy.deepcopy(committed()["tocsin-overview"])
    first_query(text)(made)
    (finding,) = lint_queries(made)
    assert finding.code == code and message in finding.message and text in finding.message
    assert finding.place == panel(made, "timeseries")["title"], "it says where"


def test_a_variable_that_asks_for_anything_else_is_reported() -> None:
    made = copy.deepcopy(committed()["tocsin-overview"])
    variable = next(each for each in made["templating"]["list"] if each["name"] == "run")
    variable["query"]["query"] = "query_result(tocsin_run_info)"
    assert [finding.code for finding in lint_queries(made)] == ["variable-query"]


def test_faults_across_files() -> None:
    made = committed()
    moved = {"tocsin-other" if uid == "tocsin-run" else uid: each for uid, each in made.items()}
    assert [finding.code for finding in lint_together(moved)] == ["file-name"]
    same = {uid: {**each, "title": "Tocsin"} for uid, each in made.items()}
    assert [finding.code for finding in lint_together(same)] == ["duplicate-title"]


def test_the_five_planted_faults_are_all_reported_at_once() -> None:
    made = copy.deepcopy(committed()["tocsin-run"])
    graphs = [each for each in made["panels"] if each["type"] == "timeseries"]
    graphs[0]["targets"][0]["expr"] = 'max(tocsin_no_such_metric{job=~"$job"})'
    graphs[1]["targets"][0]["expr"] = 'max(tocsin_grad_norm{job=~"$job"'
    graphs[2]["id"] = graphs[3]["id"]
    graphs[4]["targets"][0]["expr"] = 'max(tocsin_grad_norm{job=~"$job",run=~"$nope"})'
    graphs[5]["targets"][0]["expr"] = 'sum(rate(tocsin_records_total{job=~"$job"}[5m]))'
    codes = {finding.code for finding in (*lint(made), *lint_queries(made))}
    assert codes == {"unknown-metric", "syntax", "duplicate-id", "undefined-variable", "fixed-range"}

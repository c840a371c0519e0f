"""The committed JSON is what the code says, and what the code says has no fault."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from collector.exporter import Exporter
from collector.health import Health
from collector.model import AlertShown, RulesExposed, RunStatus
from collector.snapshot import RunExposed
from grafana_dashboards import known
from grafana_dashboards.builders import classic
from grafana_dashboards.generate import dashboards, generated
from grafana_dashboards.lint import lint, lint_together
from grafana_dashboards.lint_queries import lint_queries
from grafana_dashboards.model import Kind
from grafana_dashboards.parts import UIDS
from rules.loader import load_bundle, load_text, shipped_packs
from tests.kit.panels import committed


def test_regenerated_is_committed() -> None:
    folder = files("grafana_dashboards").joinpath("generated")
    made = generated()
    assert (
        sorted(made)
        == sorted(UIDS)
        == sorted(each.name.removesuffix(".json") for each in folder.iterdir() if each.name.endswith(".json"))
    )
    for uid, text in made.items():
        assert folder.joinpath(f"{uid}.json").read_text(encoding="utf-8") == text, f"run `tocsin dashboards build` ({uid})"


def test_two_builds_are_equal_to_the_byte() -> None:
    assert generated() == generated()


def test_no_faults() -> None:
    made = committed()
    assert [str(finding) for each in made.values() for finding in (*lint(each), *lint_queries(each))] == []
    assert lint_together(made) == []


def test_a_row_for_each_layer_in_order() -> None:
    rows = [panel["title"] for panel in committed()["tocsin-run"]["panels"] if panel["type"] == "row"]
    layers = sorted({group.layer for group in load_bundle([shipped_packs()]).groups})
    assert [title[0] for title in rows if title[0].isdigit()] == [str(layer) for layer in layers]


def test_every_line_is_a_number_of_the_rules() -> None:
    """Change the rules, and the lines of the dashboards change with them."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(shipped_packs().glob("1-*.yaml")))
    assert "gap_stop: {value: 0.01," in text
    other = load_text(text.replace("gap_stop: {value: 0.01,", "gap_stop: {value: 0.0321,"))
    bundle = load_bundle([shipped_packs()])
    from grafana_dashboards.limits import variable

    assert variable(other, "LogprobGapStop", "gap_stop").value == 0.0321
    drawn = {
        panel.title: panel.lines for each in dashboards(bundle) for panel in each.panels() if panel.kind is Kind.TIMESERIES
    }
    assert [line.value for line in drawn["Logprob gap: mean, p99, max (nats)"]] == [0.01]


def test_panel_ids_do_not_depend_on_what_stands_around() -> None:
    one, *_ = dashboards()
    from dataclasses import replace

    turned = replace(one, rows=one.rows[::-1])
    before = {panel["title"]: panel["id"] for panel in classic(one)["panels"]}
    assert before == {panel["title"]: panel["id"] for panel in classic(turned)["panels"]}


def test_the_known_names_are_those_that_the_exporter_writes() -> None:
    run = RunExposed(
        run="r",
        labels={"team": "t"},
        attempt=1,
        status=RunStatus.RUNNING,
        step=1,
        record=1,
        event_time=1.0,
        received_at=1.0,
        started_at=1.0,
        keys=("own",),
        values=(0.5,),
    )
    rules = RulesExposed((AlertShown("A", "page", 1),), ["firing"], [1.0], [2.0])
    text = Exporter(lambda: [run], lambda: [("r", rules)], Health()).render().decode()
    written = {line.split("{")[0] for line in text.splitlines() if line.startswith("tocsin_") and 'run="r"' in line}
    of_runs = {name for name, labels in known.metrics().items() if labels is None or "run" in labels} - {"ALERTS"}
    assert written <= of_runs
    fixed = {"tocsin_trainer_metric", "tocsin_alert_state", "tocsin_rule_value", "tocsin_rule_limit"}
    assert (
        fixed | {name for name in of_runs if name.startswith("tocsin_run_") and "_seconds" not in name} - {"tocsin_run_failed"}
        <= written
    )


@pytest.mark.parametrize("uid", UIDS)
def test_it_fits_into_a_config_map(uid: str) -> None:
    assert len(json.dumps(committed()[uid]).encode()) < 1024 * 1024

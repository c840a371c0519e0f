"""The Prometheus rules about Tocsin itself: they name metrics that exist, and promtool sees them fire and stay quiet."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from collector.health import DEFINITIONS
from rules.model import Severity
from service.own_alerts import Own
from tests.kit import prometheus, services

FILE = services.ROOT / "deploy" / "prometheus" / "tocsin-meta-rules.yaml"

PAGE = services.ROOT / "docs" / "operate" / "alerts-about-tocsin.md"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_every_metric_and_label_exists() -> None:
    known = {definition.name: {*definition.labels, "instance"} for definition in DEFINITIONS}
    for rule in rules():
        names = re.findall(r"\btocsin_\w+", rule["expr"])
        assert names or "up{" in rule["expr"] or rule["alert"] == "TocsinDeadMan"
        for name, matchers in re.findall(r"\b(tocsin_\w+)(?:\{([^}]*)\})?", rule["expr"]):
            assert set(re.findall(r"(\w+)(?:!=|=~|=)", matchers)) <= known[name], rule["alert"]
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert all(shown <= known.get(name, {"instance"}) for name in names), rule["alert"]
        kept = re.search(r"sum by \(([^)]*)\)", rule["expr"])
        assert kept is None or shown <= set(kept[1].split(", ")), f"{rule['alert']} shows a label that it sums away"


def test_every_alert_about_tocsin_has_its_part_of_the_page() -> None:
    """What somebody who is woken reads: each alert with its severity, under the anchor that the rule names."""
    outside, inside = PAGE.read_text(encoding="utf-8").split("\n## By Tocsin\n")
    parts = dict(re.findall(r"^### (\w+)\n\n(.+)$", outside, re.MULTILINE))
    assert list(parts) == [rule["alert"] for rule in rules()]
    for rule in rules():
        name, severity = rule["alert"], rule["labels"]["severity"]
        assert rule["annotations"]["runbook"] == f"{PAGE.relative_to(services.ROOT).as_posix()}#{name.lower()}"
        assert severity == "none" or parts[name].startswith(f"({severity}) "), name
    rows = re.findall(r"^\| `(\w+)`( \(page\))? \|", inside, re.MULTILINE)
    pages = {own.alert: own.severity is Severity.PAGE for own in Own} | {"TocsinCanaryLost": True}
    assert {name: bool(page) for name, page in rows} == pages | {"TocsinCanary": False, "TocsinStorm": False}
    known = {definition.name for definition in DEFINITIONS}
    assert set(re.findall(r"`(tocsin_\w+)`", outside + inside)) <= known


class Case(NamedTuple):
    """Series and their values a minute apart, of which the first six are as they should be."""

    series: dict[str, str]
    at: int = 14
    """Minute at which it fires."""
    quiet: int = 4
    """Minute at which it does not yet."""


REJECTED = 'tocsin_records_rejected_total{instance="a", reason="not_json"}'
REFUSED = 'tocsin_deliveries_total{instance="a", receiver="chat", outcome="rejected"}'
LIMIT = 'tocsin_over_limit_total{instance="a", limit="runs"}'
LAG = 'tocsin_source_lag{instance="a", partition="tocsin.records/0"}'
RECORDS = 'tocsin_records_total{instance="a", outcome="step"}'
HEARTBEATS = 'tocsin_heartbeats_total{instance="a", outcome="%s"}'

FIRES = [
    ("TocsinDown", Case({'up{job="tocsin", instance="a"}': "1x5 0x10"})),
    ("TocsinNotReady", Case({'tocsin_ready{instance="a"}': "1x5 0x10"})),
    ("TocsinBehind", Case({'tocsin_evaluation_lag_seconds{instance="a"}': "1x5 90x10"})),
    ("TocsinStuck", Case({LAG: "0x5 10+10x20", RECORDS: "0+60x5 300x20"}, at=24)),
    ("TocsinStuck", Case({LAG: "0x5 10+10x20"}, at=16)),
    ("TocsinLag", Case({LAG: "0x5 150000x20", RECORDS: "0+60x40"}, at=18)),
    ("TocsinDeadLetters", Case({REJECTED: "3x25 4x10"}, quiet=20, at=30)),
    ("TocsinDeadLetters", Case({REJECTED: "_x5 1x10"})),
    ("TocsinSourceDamaged", Case({'tocsin_source_faults_total{instance="a"}': "0x5 1x10"})),
    ("TocsinDeliveryLate", Case({'tocsin_delivery_lag_seconds{instance="a", receiver="chat"}': "1x5 400x10"})),
    ("TocsinDeliveryRefused", Case({REFUSED: "3x25 4x10"}, quiet=20, at=30)),
    ("TocsinDeliveryRefused", Case({REFUSED: "_x5 1x10"})),
    ("TocsinCanaryOverdue", Case({'tocsin_canary_age_seconds{instance="a", receiver="chat"}': "60x5 9000x10"})),
    ("TocsinHeartbeatFails", Case({HEARTBEATS % "timeout": "0x5 1+1x10"})),
    ("TocsinRulesRefused", Case({'tocsin_rule_bundle_loaded{instance="a"}': "1x5 0x30"}, at=35)),
    ("TocsinOverLimit", Case({LIMIT: "3x25 4x10"}, quiet=20, at=30)),
    ("TocsinOverLimit", Case({LIMIT: "_x5 1x10"})),
]
"""What each alert fires at. A counter fires when it grows and when it is born."""

QUIET = {
    "a born counter is old news after a quarter of an hour": Case({REJECTED: "_x5 1x40", REFUSED: "_x5 1x40"}, at=25),
    "a torn line at the end of a spool file waits for ever": Case({LAG: "0x5 900x40", RECORDS: "0+60x5 300x40"}, at=40),
    "records come faster than they are judged, for a while": Case({LAG: "0x5 10+10x20", RECORDS: "0+60x40"}, at=20),
    "one heartbeat of many got lost": Case({HEARTBEATS % "timeout": "0x5 1x20", HEARTBEATS % "ok": "0+1x30"}),
    "attempts that are repeated are no refusals": Case({REFUSED.replace("rejected", "server_error"): "_x5 1+1x20"}),
    "a scrape that failed once": Case({'up{job="tocsin", instance="a"}': "1x5 0 1x20"}),
}


def promtool_case(case: Case, firing: str | None) -> dict[str, Any]:
    """A test for promtool: nothing fires at first, `firing` and nothing else does at the case's minute."""
    expression = 'count by (alertname) (ALERTS{alertstate="firing", alertname!="TocsinDeadMan"})'
    then = [{"labels": f'{{alertname="{firing}"}}', "value": 1}] if firing else []
    given = {'up{job="tocsin"}': "1x60", **case.series}
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in given.items()],
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{case.quiet}m", "exp_samples": []},
            {"expr": expression, "eval_time": f"{case.at}m", "exp_samples": then},
        ],
    }


def promtool(tests: list[dict[str, Any]], folder: Path, rules_file: Path = FILE) -> subprocess.CompletedProcess[str]:
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules_file)], "tests": tests}), encoding="utf-8")
    command = [str(prometheus.tool("promtool")), "test", "rules", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.prometheus
def test_promtool_sees_each_fire_and_none_before(tmp_path: Path) -> None:
    assert {alert for alert, _ in FIRES} | {"TocsinAbsent", "TocsinDeadMan"} == {rule["alert"] for rule in rules()}
    done = promtool([promtool_case(case, alert) for alert, case in FIRES], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_promtool_sees_none_where_nothing_is_wrong(tmp_path: Path) -> None:
    done = promtool([promtool_case(case, None) for case in QUIET.values()], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_nobody_is_scraped_and_somebody_always_is(tmp_path: Path) -> None:
    def told(alert: str, severity: str, **labels: str) -> list[dict[str, Any]]:
        (rule,) = [rule for rule in rules() if rule["alert"] == alert]
        return [{"exp_labels": {"severity": severity, **labels}, "exp_annotations": rule["annotations"]}]

    always = told("TocsinDeadMan", "none")
    absent = told("TocsinAbsent", "page", job="tocsin")
    case = {
        "interval": "1m",
        "input_series": [{"series": 'up{job="other"}', "values": "1x20"}],
        "alert_rule_test": [
            {"eval_time": "0m", "alertname": "TocsinDeadMan", "exp_alerts": always},
            {"eval_time": "4m", "alertname": "TocsinAbsent", "exp_alerts": []},
            {"eval_time": "6m", "alertname": "TocsinAbsent", "exp_alerts": absent},
            {"eval_time": "20m", "alertname": "TocsinDeadMan", "exp_alerts": always},
        ],
    }
    done = promtool([case], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_a_rule_that_never_fires_is_noticed(tmp_path: Path) -> None:
    """The tests above can fail: each rule in turn is made one that waits an hour."""
    changed = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    (group,) = changed["groups"]
    for rule in group["rules"]:
        rule["for"] = "1h"
    broken = tmp_path / "rules.yaml"
    broken.write_text(yaml.safe_dump(changed), encoding="utf-8")
    done = promtool([promtool_case(case, alert) for alert, case in FIRES], tmp_path, broken)
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count("exp:") == len(FIRES), done.stdout + done.stderr

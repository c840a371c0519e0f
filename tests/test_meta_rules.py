"""The Prometheus rules about Tocsin itself: they name metrics that exist, and promtool sees them fire and stay quiet."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.health import DEFINITIONS
from tests.kit import prometheus, services

FILE = services.ROOT / "deploy" / "prometheus" / "tocsin-meta-rules.yaml"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_every_metric_and_label_exists() -> None:
    known = {definition.name: {*definition.labels, "instance"} for definition in DEFINITIONS}
    for rule in rules():
        names = re.findall(r"\btocsin_\w+", rule["expr"])
        assert names or "up{" in rule["expr"]
        for name, matchers in re.findall(r"\b(tocsin_\w+)(?:\{([^}]*)\})?", rule["expr"]):
            assert set(re.findall(r"(\w+)(?:!=|=~|=)", matchers)) <= known[name], rule["alert"]
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert all(shown <= known.get(name, {"instance"}) for name in names), rule["alert"]


FIRES = {
    "TocsinDown": ('up{job="tocsin", instance="a"}', "1x5 0x10"),
    "TocsinNotReady": ('tocsin_ready{instance="a"}', "1x5 0x10"),
    "TocsinBehind": ('tocsin_evaluation_lag_seconds{instance="a"}', "1x5 90x10"),
    "TocsinDeliveryLate": ('tocsin_delivery_lag_seconds{instance="a", receiver="chat"}', "1x5 400x10"),
    "TocsinDeliveryRefused": ('tocsin_deliveries_total{instance="a", receiver="chat", outcome="rejected"}', "0x5 1x10"),
    "TocsinCanaryOverdue": ('tocsin_canary_age_seconds{instance="a", receiver="chat"}', "60x5 9000x10"),
    "TocsinHeartbeatFails": ('tocsin_heartbeats_total{instance="a", outcome="timeout"}', "0x5 1+1x10"),
    "TocsinRulesRefused": ('tocsin_rule_bundle_loaded{instance="a"}', "1x5 0x30"),
    "TocsinOverLimit": ('tocsin_over_limit_total{instance="a", limit="runs"}', "0x5 1x10"),
}
"""By alert: a series, and values a minute apart, of which the first six are as they should be."""


@pytest.mark.prometheus
def test_promtool_sees_each_fire_and_none_before(tmp_path: Path) -> None:
    assert set(FIRES) | {"TocsinAbsent"} == {rule["alert"] for rule in rules()}
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values}, {"series": 'up{job="tocsin"}', "values": "1x40"}],
            "promql_expr_test": [
                {
                    "expr": 'count(ALERTS{alertstate="firing"} == 1) or vector(0)',
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": count}],
                }
                for at, count in (("5m", 0), ("35m" if alert == "TocsinRulesRefused" else "14m", 1))
            ],
        }
        for alert, (series, values) in FIRES.items()
    ]
    absent = {
        "interval": "1m",
        "input_series": [{"series": 'up{job="other"}', "values": "1x20"}],
        "alert_rule_test": [
            {"eval_time": "4m", "alertname": "TocsinAbsent", "exp_alerts": []},
            {
                "eval_time": "6m",
                "alertname": "TocsinAbsent",
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "page", "job": "tocsin"},
                        "exp_annotations": {"summary": "No Tocsin is scraped at all"},
                    }
                ],
            },
        ],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "tests": [*tests, absent]}), encoding="utf-8")
    done = subprocess.run(
        [str(prometheus.tool("promtool")), "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

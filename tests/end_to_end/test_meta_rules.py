"""The Prometheus rules about Tocsin on the real thing: a collector that is fed rubbish, is killed, cannot reach Kafka.

The rules are the shipped ones but for their `for:`, which is a second here; what promtool makes of the minutes is in
tests/test_meta_rules.py.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit import prometheus
from tests.kit.asking import http_client
from tests.kit.collecting import Process, collecting, spooled, until
from tests.kit.pipelines import step
from tests.test_meta_rules import FILE

pytestmark = pytest.mark.prometheus


class Watch:
    """A Prometheus that scrapes one collector every second by the shipped rules."""

    def __init__(self, start: prometheus.Start, collector: Process, folder: Path) -> None:
        hurried = yaml.safe_load(FILE.read_text(encoding="utf-8"))
        for rule in hurried["groups"][0]["rules"]:
            if "for" in rule:
                rule["for"] = "1s"
        self._file = folder / "rules.yaml"
        self._file.write_text(yaml.safe_dump(hurried), encoding="utf-8")
        target = collector.url.removeprefix("http://")
        self._server = start(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(self._file)],
                "scrape_configs": [{"job_name": "tocsin", "static_configs": [{"targets": [target]}]}],
            }
        )

    def firing(self) -> dict[str, dict[str, str]]:
        """Labels of what fires, by alert, without the one that always does; {} until that one does."""
        found = {alert["labels"]["alertname"]: alert["labels"] for alert in self._get("alerts")["alerts"] if _fires(alert)}
        return {name: labels for name, labels in found.items() if name != "TocsinDeadMan"}

    def evaluated(self) -> bool:
        """Whether every rule has been evaluated without an error since the collector was scraped.

        Prometheus hands targets over some 5 s after its start; until then nobody is scraped, which `TocsinAbsent` tells.
        """
        up = self._get("query", query='up{job="tocsin"} == 1')["result"]
        (group,) = self._get("rules")["groups"]
        health = {rule["name"]: rule["health"] for rule in group["rules"]}
        assert "err" not in health.values(), health
        return bool(up) and set(health.values()) == {"ok"} and "TocsinAbsent" not in self.firing()

    def _get(self, what: str, **query: str) -> Any:
        with http_client() as client:
            answer = client.get(f"{self._server.url}/api/v1/{what}", params=query).json()
        assert answer["status"] == "success", answer
        return answer["data"]


def _fires(alert: dict[str, Any]) -> bool:
    return bool(alert["state"] == "firing")


def test_dead_letters_and_a_killed_collector(prometheus_server: prometheus.Start, tmp_path: Path) -> None:
    with collecting(tmp_path, "clock: event\n") as collector:
        spooled(tmp_path, "r", [step("r", 1, grad_norm=1.0)])
        collector.wait_for_step("r", 1)
        watch = Watch(prometheus_server, collector, tmp_path)
        until(watch.evaluated, "the rules are evaluated over a scraped collector")
        until(lambda: watch.firing() == {}, "nothing fires")
        spooled(tmp_path, "rubbish", [b"no record"])  # the first of its reason: its counter is born with it
        letters = until(lambda: watch.firing().get("TocsinDeadLetters"), "the dead letter is told")
        assert letters["reason"] == "not_json"
        until(lambda: set(watch.firing()) == {"TocsinDeadLetters"}, "and nothing else is")
        collector.end(signal.SIGKILL)
        down = until(lambda: watch.firing().get("TocsinDown"), "the killed collector is told")
        assert down["severity"] == "page"
        assert down["instance"] == collector.url.removeprefix("http://")


def test_kafka_is_away(prometheus_server: prometheus.Start, tmp_path: Path, unreachable: str) -> None:
    with collecting(tmp_path, f"source: {{kafka: {{bootstrap: ['{unreachable}']}}}}\n") as collector:
        watch = Watch(prometheus_server, collector, tmp_path)
        until(watch.evaluated, "the rules are evaluated over a scraped collector")
        until(lambda: set(watch.firing()) == {"TocsinNotReady"}, "not ready is told, and that the process itself is well")
        assert collector.get("/healthz").status_code == 200

"""The development services start, answer, and go on with their data after a stop."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.kit import kafka, prometheus, services


@pytest.mark.kafka
def test_the_broker_keeps_its_data_and_its_address_over_a_stop(private_broker: kafka.Broker) -> None:
    topic = private_broker.topic("kept", partitions=3)
    assert private_broker.produce(topic, [b"a", b"b"], partition=2) == [0, 1]
    before = private_broker.bootstrap
    private_broker.stop()
    private_broker.start()
    assert private_broker.bootstrap == before
    assert private_broker.produce(topic, [b"c"], partition=2) == [2]
    listed = services.run(services.KAFKA, "topics", "--dir", str(private_broker.folder))
    assert f"{topic}\t3" in listed.splitlines()


@pytest.mark.kafka
def test_a_second_broker_on_the_same_folder_is_refused(kafka_broker: kafka.Broker) -> None:
    with pytest.raises(AssertionError, match="runs already"):
        services.run(services.KAFKA, "start", "--dir", str(kafka_broker.folder))


@pytest.mark.prometheus
def test_prometheus_answers_queries(prometheus_server: prometheus.Start) -> None:
    server = prometheus_server({"global": {"scrape_interval": "1s"}})
    with urllib.request.urlopen(f"{server.url}/api/v1/query?query=1%2B1", timeout=10) as answer:
        assert json.load(answer)["data"]["result"][1] == "2"


@pytest.mark.prometheus
def test_a_bad_configuration_is_told_with_the_servers_own_words(prometheus_server: prometheus.Start) -> None:
    with pytest.raises(AssertionError, match="cannot unmarshal"):
        prometheus_server("just text")


@pytest.mark.prometheus
def test_alertmanager_is_ready(prometheus_server: prometheus.Start) -> None:
    server = prometheus_server({"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}, program="alertmanager")
    with urllib.request.urlopen(f"{server.url}/api/v2/status", timeout=10) as answer:
        assert json.load(answer)["cluster"]["status"] == "disabled"


def test_a_missing_service_fails_under_ci_and_is_a_named_skip_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Java"):
        services.missing("no Java")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no Java"):
        services.missing("no Java")


@pytest.mark.parametrize(
    "script", [services.KAFKA, services.PROMETHEUS, services.CHROMIUM], ids=["kafka", "prometheus", "chromium"]
)
def test_a_script_says_with_its_own_status_that_a_program_is_missing(script: Path, tmp_path: Path) -> None:
    """The scripts as they are in an empty checkout on a machine with nothing but Python."""
    copy = tmp_path / "deploy" / "x" / script.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(script.read_bytes())
    if script == services.KAFKA:
        (copy.parent / "pom.xml").write_bytes((script.parent / "pom.xml").read_bytes())
    done = subprocess.run(
        [sys.executable, str(copy), "fetch"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4
    assert "not on PATH" in done.stderr


def test_waiting_has_an_end() -> None:
    with pytest.raises(AssertionError, match="not within 0 s: a miracle; the last answer was None"):
        services.until(lambda: None, "a miracle", seconds=0.0)

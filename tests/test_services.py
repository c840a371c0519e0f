"""The development services start, answer, and go on with their data after a stop."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
import warnings
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
    with urllib.request.urlopen(f"{server.url}/api/v1/query?query=1%2B1", timeout=300) as answer:
        assert json.load(answer)["data"]["result"][1] == "2"


@pytest.mark.prometheus
def test_a_bad_configuration_is_told_with_the_servers_own_words(prometheus_server: prometheus.Start) -> None:
    with pytest.raises(AssertionError, match="cannot unmarshal"):
        prometheus_server("just text")


@pytest.mark.prometheus
def test_alertmanager_is_ready(prometheus_server: prometheus.Start) -> None:
    server = prometheus_server({"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}, program="alertmanager")
    with urllib.request.urlopen(f"{server.url}/api/v2/status", timeout=300) as answer:
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
        timeout=300,
        check=False,
    )
    assert done.returncode == 4
    assert "not on PATH" in done.stderr


@pytest.mark.parametrize("room", [True, False], ids=["of our own", "all are the system's"])
@pytest.mark.parametrize("script", [services.KAFKA, services.PROMETHEUS], ids=["kafka", "prometheus"])
def test_ports_are_different_and_nobody_else_is_given_them(script: Path, room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the choice and the moment at which a server listens a minute may go by on a machine that is busy."""
    made = services.loaded(script)
    if not room:
        monkeypatch.setattr(made, "LOWEST_PORT", 65_535)
    chosen = [made.free_ports(3) for _ in range(50)]
    for ports in chosen:
        assert len(set(ports)) == 3
    said = Path("/proc/sys/net/ipv4/ip_local_port_range")
    systems = int(said.read_text(encoding="ascii").split()[0]) if said.exists() else 32_768
    assert all(port < systems for ports in chosen for port in ports) is (room and systems > made.LOWEST_PORT + 1000)


@pytest.mark.parametrize("forgotten", [False, True], ids=["ours", "kafka-python's"])
def test_only_what_kafka_python_forgets_is_closed_without_a_word(forgotten: bool) -> None:
    """Both go in the middle of a connection, when the client is ended."""
    from kafka.net.inet import KafkaNetSocket

    with socket.create_server(("127.0.0.1", 0)) as server:
        made = KafkaNetSocket().socket(socket.AF_INET, socket.SOCK_STREAM) if forgotten else socket.socket()
        made.connect(server.getsockname())
        there, _ = server.accept()
        with there, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            del made
            assert there.recv(1) == b"", "it is closed"
    assert [each.category for each in said] == ([] if forgotten else [ResourceWarning])


def test_waiting_has_an_end() -> None:
    with pytest.raises(AssertionError, match="not within 0 s: a miracle; the last answer was None"):
        services.until(lambda: None, "a miracle", seconds=0.0)

"""A new store, as docs/operate/upgrade.md says: old records wake nobody, then people hear of what still fires."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import recorded
from tests.kit.collector_process import CollectorProcess, FakePagerDuty
from tests.kit.kafka import Broker
from tests.kit.services import until

pytestmark = pytest.mark.kafka

QUIET = "receivers: {log: {kind: console}}\ndefault: log\n"


@pytest.fixture
def pagerduty() -> Iterator[FakePagerDuty]:
    server = FakePagerDuty()
    yield server
    server.close()


def test_what_is_over_wakes_nobody_and_what_fires_does(kafka_broker: Broker, tmp_path: Path, pagerduty: FakePagerDuty) -> None:
    lines = gzip.decompress((recorded.need() / "tiny" / "engine_sync-s1.jsonl.gz").read_bytes()).splitlines()

    def renamed(run: str, count: int) -> list[bytes]:
        return [json.dumps({**json.loads(line), "run": run}).encode() for line in lines[:count]]

    topic = kafka_broker.topic("upgrade", configs={"message.timestamp.type": "LogAppendTime"})
    over, firing = renamed("over", len(lines)), renamed("firing", 160)
    for run, values in (("over", over), ("firing", firing)):
        kafka_broker.produce(topic, values, key=run.encode(), linger_ms=5)
    collector = CollectorProcess(tmp_path, kafka_broker.bootstrap, topic, pagerduty=pagerduty.url)
    alerts = collector.folder / "alerts.yaml"
    real = alerts.read_text(encoding="utf-8")
    alerts.write_text(QUIET, encoding="utf-8")

    def steps() -> dict[str, int]:
        return {run["run"]: run["step"] for run in collector.get("/api/v1/runs")["runs"]}

    try:
        collector.start()
        ends = {run: json.loads(values[-1])["step"] for run, values in (("over", over), ("firing", firing))}
        until(lambda: steps() == ends, "Kafka's records are read")
        assert pagerduty.events == []
        alerts.write_text(real, encoding="utf-8")
        assert collector._process is not None
        collector._process.send_signal(signal.SIGHUP)
        kafka_broker.produce(topic, renamed("new", 160), key=b"new", linger_ms=5)
        until(lambda: "tocsin:new#1" in pagerduty.by_key(), "new trouble pages")
        until(lambda: "tocsin:firing#1" in pagerduty.by_key(), "what still fires pages")
        assert pagerduty.by_key() == {"tocsin:new#1": ["trigger"], "tocsin:firing#1": ["trigger"]}
        assert collector.stop() == 0
    finally:
        collector.close()

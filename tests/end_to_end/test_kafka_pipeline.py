"""The whole way over a real broker: replay and live agree event for event, and `kill -9` loses no page and repeats none."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import recorded
from tests.kit.collector_process import CollectorProcess, FakePagerDuty
from tests.kit.final_state import final_state
from tests.kit.kafka import Broker
from tests.kit.services import until

pytestmark = pytest.mark.kafka

BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
"""As `tocsin kafka init` makes the topic: when a record came is then a property of the record, also after a restart."""
LIVE = ("engine_sync", "verifier_zero", "lr_blowup", "hang", "nan", "resume")
FIELDS = ("run", "alert", "id", "severity", "layer", "state", "step", "record", "value", "limit", "verdict")


@pytest.fixture
def pagerduty() -> Iterator[FakePagerDuty]:
    server = FakePagerDuty()
    yield server
    server.close()


def lines(name: str) -> list[bytes]:
    return gzip.decompress((recorded.need() / "tiny" / f"{name}-s1.jsonl.gz").read_bytes()).splitlines()


def renamed(values: list[bytes], run: str) -> list[bytes]:
    """The same records under another run id."""
    return [json.dumps({**json.loads(value), "run": run}).encode() for value in values]


def produce(broker: Broker, topic: str, runs: dict[str, list[bytes]], partitions: int) -> int:
    """All records, interleaved, keyed by run as the client does it, each run in one partition."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", linger_ms=20)
    names = sorted(runs)
    count = 0
    for position in range(max(map(len, runs.values()))):
        for number, name in enumerate(names):
            if position < len(runs[name]):
                value = runs[name][position]
                stamp = int(json.loads(value)["time"] * 1000)
                producer.send(topic, value, key=name.encode(), partition=number % partitions, timestamp_ms=stamp)
                count += 1
    producer.flush(timeout=300)
    producer.close(timeout=300)
    return count


def read_to_the_end(collector: CollectorProcess, total: int, seconds: float = 120.0) -> None:
    """Until the store has taken every record and every delivery that is due is made."""

    def done() -> bool:
        state = final_state(collector.store)
        open_rows = [row for row in state["deliveries"] if row[3] in {"pending", "sending"}]
        return sum(offset for _, offset in state["positions"]) >= total and not open_rows

    until(done, f"{total} records read and everything delivered", seconds, pause=0.2)


def replayed(names: tuple[str, ...]) -> list[dict[str, Any]]:
    paths = [str(recorded.need() / "tiny" / f"{name}-s1.jsonl.gz") for name in names]
    command = [str(Path(sys.executable).with_name("tocsin")), "replay", "--json", *paths]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    return [json.loads(line) for line in output.splitlines()]


def test_replay_equals_live_over_kafka_event_for_event(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic("live", partitions=3)
    runs = {f"tiny-{name}-s1": lines(name) for name in LIVE}
    total = produce(kafka_broker, topic, runs, 3)
    collector = CollectorProcess(tmp_path, kafka_broker.bootstrap, topic)
    try:
        collector.start()
        read_to_the_end(collector, total)
        history = collector.get("/api/v1/alerts?limit=1000")["history"]
        assert collector.stop() == 0
    finally:
        collector.close()
    live: dict[str, list[dict[str, Any]]] = {}
    for event in reversed(history):
        live.setdefault(event["run"], []).append({name: event[name] for name in FIELDS})
    expected: dict[str, list[dict[str, Any]]] = {}
    for event in replayed(LIVE):
        expected.setdefault(event["run"], []).append({name: event[name] for name in FIELDS})
    assert live == expected
    assert set(expected) >= {"tiny-engine_sync-s1", "tiny-hang-s1", "tiny-nan-s1", "tiny-verifier_zero-s1", "tiny-lr_blowup-s1"}


KINDS = ("engine_sync", "verifier_zero", "nan", "lr_blowup", "healthy")


def load(count: int) -> dict[str, list[bytes]]:
    """Twenty runs: four of each kind."""
    base = {kind: lines(kind) for kind in KINDS}
    return {
        f"{kind}-{number}": renamed(base[kind], f"{kind}-{number}") for kind in KINDS for number in range(count // len(KINDS))
    }


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.soak)], ids=["six moments", "fifty moments"])
def test_kill_nine_at_random_moments_loses_no_page_and_repeats_none(
    kafka_broker: Broker, tmp_path: Path, pagerduty: FakePagerDuty, kills: int
) -> None:
    topic = kafka_broker.topic("kill", partitions=4, configs=BROKER_TIME)
    runs = load(20)
    undisturbed = CollectorProcess(tmp_path / "undisturbed", kafka_broker.bootstrap, topic, pagerduty=pagerduty.url)
    total = produce(kafka_broker, topic, runs, 4)
    try:
        undisturbed.start()
        began = time.monotonic()
        read_to_the_end(undisturbed, total)
        span = time.monotonic() - began
        assert undisturbed.stop() == 0
    finally:
        undisturbed.close()
    expected_state, expected_told = final_state(undisturbed.store), pagerduty.by_key()
    assert len(expected_told) >= 16, "every run but the healthy ones pages"

    disturbed_duty = FakePagerDuty()
    collector = CollectorProcess(tmp_path / "killed", kafka_broker.bootstrap, topic, pagerduty=disturbed_duty.url)
    rng = random.Random(kills)
    try:
        for _ in range(kills):
            collector.start()
            time.sleep(rng.uniform(0.0, span / (kills / 2)))
            collector.kill()
        collector.start()
        read_to_the_end(collector, total)
        assert collector.stop() == 0
    finally:
        collector.close()
        disturbed_duty.close()

    state = final_state(collector.store)
    for part in expected_state:
        assert state[part] == expected_state[part], f"{part} differ from those of the undisturbed collector"
    told = disturbed_duty.by_key()
    assert told == expected_told
    for opened in disturbed_duty.openings().values():
        # A second time only where a page or stop came under one that a warning had opened: only so does it wake anybody.
        assert len(opened) == 1 or opened in (["warning", "error"], ["warning", "critical"]), "no key is triggered twice"

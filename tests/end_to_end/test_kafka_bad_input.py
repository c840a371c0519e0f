"""A real topic full of rubbish through the real collector: all of it is dead-lettered, no valid record is touched."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode

from collector.dead_letters import FileDeadLetters, decode
from collector.run import Run
from service.store.store import Store
from tests.kit.asking import http_client
from tests.kit.bad_input import bad_values, odd_records
from tests.kit.collector_process import CollectorProcess
from tests.kit.final_state import final_state
from tests.kit.kafka import Broker
from tests.kit.services import until
from tests.kit.training import three_runs
from tocsin import wire

pytestmark = pytest.mark.kafka

LARGE = {"max.message.bytes": str(5 * 1024 * 1024)}
"""As `tocsin kafka init` makes the topic: what is over the record's own limit still comes through, to be told as that."""


def produce(broker: Broker, topic: str, values: Sequence[tuple[bytes | None, str]]) -> None:
    """In order into the one partition, at the same moments in every topic."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", linger_ms=20, max_request_size=5 * 1024 * 1024)
    stamp = 1_790_000_000_000
    for value, content_type in values:
        headers = [] if content_type == wire.JSON else [("content-type", content_type.encode())]
        producer.send(topic, value, key=b"r", partition=0, headers=headers, timestamp_ms=stamp)
    producer.flush(timeout=300)
    producer.close(timeout=300)


def collected(broker: Broker, topic: str, folder: Path, total: int) -> tuple[dict[str, Any], str]:
    """The final state after so many records, and /metrics before the end."""
    collector = CollectorProcess(folder, broker.bootstrap, topic)
    try:
        collector.start()
        until(lambda: final_state(collector.store)["positions"] == [(f"{topic}/0", total)], f"{total} records", pause=0.2)
        with http_client() as client:
            metrics = client.get(f"{collector.url}/metrics").text
        assert collector.stop() == 0
    finally:
        collector.close()
    assert "Traceback" not in (folder / "collect.log").read_text()
    return final_state(collector.store), metrics


def folds(file: Path, runs: Iterable[str]) -> dict[str, bytes]:
    """The whole of each run but for when its records came: two topics cannot get the same ones at the same moment."""
    found = {}
    with Store(f"sqlite:///{file}") as store:
        for name in runs:
            restored = store.restore(name)
            assert restored is not None and restored.checkpoint is not None and restored.records == []
            run = Run.load(restored.checkpoint)
            run.received_at = 0.0
            found[name] = run.dump()
    return found


def test_rubbish_between_records_costs_none_of_them(kafka_broker: Broker, tmp_path: Path) -> None:
    valid: list[tuple[bytes | None, str]] = [(value, wire.JSON) for value in three_runs()]
    alone = kafka_broker.topic("alone", configs=LARGE)
    produce(kafka_broker, alone, valid)
    expected, _ = collected(kafka_broker, alone, tmp_path / "alone", len(valid))
    assert set(expected["events"]) >= {"s"} and set(expected["folds"]) == {"r", "s", "t"}

    rng = random.Random(2)
    bad = bad_values()
    others: list[tuple[bytes | None, str, str]] = [(each.value, each.content_type, str(each.reason)) for each in bad]
    others += [(None, wire.JSON, "not_json"), (None, wire.MSGPACK, "not_msgpack"), (b"{}", "\xff", "unknown_version")]
    others += [(value, wire.JSON, "") for value in odd_records("odd")]
    rng.shuffle(others)
    values: list[tuple[bytes | None, str]] = []
    letters: list[tuple[int, str]] = []
    rest = iter(valid)
    for value, content_type, reason in others:
        if reason:
            letters.append((len(values), reason))
        values.append((value, content_type))
        values += islice(rest, rng.randint(0, 1))
    values += rest
    mixed = kafka_broker.topic("mixed", configs=LARGE)
    produce(kafka_broker, mixed, values)
    found, metrics = collected(kafka_broker, mixed, tmp_path / "mixed", len(values))

    for run, events in expected["events"].items():
        assert encode(found["events"][run]) == encode(events), "encoded, as NaN equals itself there"
    assert folds(tmp_path / "mixed" / "store.db", "rst") == folds(tmp_path / "alone" / "store.db", "rst")
    assert [row for row in found["rules"] if row[0] in expected["folds"]] == expected["rules"]
    lines = (tmp_path / "mixed" / "dead-letters" / FileDeadLetters.NAME).read_bytes().splitlines()
    kept = [decode(line) for line in lines]
    assert [(letter.partition, letter.offset, letter.reason) for letter in kept] == [
        (f"{mixed}/0", offset, reason) for offset, reason in letters
    ]
    for reason, count in Counter(reason for _, reason in letters).items():
        assert f'tocsin_records_rejected_total{{reason="{reason}"}} {float(count)}' in metrics
    assert "tocsin_scrape_faults_total{" not in metrics

"""A real Kafka broker for the benchmarks, in a temporary folder, stopped afterwards."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "deploy" / "kafka-dev" / "kafka"


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Bootstrap servers of a broker that lives as long as the context."""
    started = subprocess.run([str(SCRIPT), "start", "--dir", str(folder)], capture_output=True, text=True, check=True)
    try:
        yield started.stdout.strip()
    finally:
        subprocess.run([str(SCRIPT), "stop", "--dir", str(folder)], capture_output=True, check=True)


def produce(bootstrap: str, topic: str, runs: Sequence[tuple[str, Sequence[bytes]]]) -> int:
    """Write all values of all runs, interleaved as live runs are; how many there were."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20)
    count = 0
    for position in range(max(len(values) for _, values in runs)):
        for name, values in runs:
            if position < len(values):
                producer.send(topic, values[position], key=name.encode())
                count += 1
    producer.flush(timeout=120)
    producer.close(timeout=10)
    return count

"""Through the real broker and the store: how many records per second in both forms, and how long from produce to the
receiver's request."""

from __future__ import annotations

import http.server
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import msgspec

from alerts.redaction import Redactor
from benchmarks.broker import broker, produce
from benchmarks.forms import forms, measure
from benchmarks.records import METRICS, encoded
from collector.sources.kafka.topics import TopicPlan, create_topics
from service import garbage
from service.config import parse
from service.consume import Processed
from service.running import Running
from tocsin import wire

TURNS = 3
RUNS = 20
RECORDS_PER_RUN = 1_500
"""So that a turn is some seconds of steady work: with a third of it there are four commits, and windows still grow."""
ALERTS = 200
PAUSE_SECONDS = 0.05
DEADLINE_SECONDS = 300.0


class Mark(NamedTuple):
    """After a commit: how many records were read, and both clocks in seconds."""

    records: int
    wall: float
    cpu: float


def run() -> dict[str, float]:
    """kafka_records_per_s, kafka_cpu_us_per_record, kafka_first_commit_s (median of the turns, for the compiled form with
    `compiled_` before their names), latency_p50_ms, latency_p99_ms."""
    turns: dict[str, list[dict[str, float]]] = {form: [] for form in forms()}
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder, broker(Path(folder) / "kafka") as bootstrap:
        for turn in range(TURNS):
            for form, places in forms().items():
                topic = f"bench-throughput-{form}{turn}"
                turns[form].append(measure("benchmarks.through_kafka", places, folder, bootstrap, topic))
        found = latency(Path(folder), bootstrap)
    medians = {form + name: median(turn[name] for turn in several) for form, several in turns.items() for name in several[0]}
    return medians | found


def throughput(folder: Path, bootstrap: str, topic: str) -> dict[str, float]:
    """A backlog is read to its end: from the first commit to the last, records per second; the same as CPU time per record of
    the whole process, which other processes on the machine disturb less."""
    create_topics(bootstrap, [TopicPlan(topic, 4, {})])
    runs = [(f"run-{number}", encoded(f"run-{number}", RECORDS_PER_RUN, seed=number)) for number in range(RUNS)]
    total = produce(bootstrap, topic, runs)
    done = threading.Event()
    offsets: dict[str, int] = {}
    marks: list[Mark] = []

    def watch(processed: Processed) -> None:
        offsets.update(processed.positions)
        read = sum(offsets.values())
        if read and not done.is_set():
            marks.append(Mark(read, time.perf_counter(), time.process_time()))
        if read >= total:
            done.set()

    running = collector(folder / topic, bootstrap, topic, on_commit=watch)
    started = time.perf_counter()
    running.start()
    if not done.wait(DEADLINE_SECONDS):
        raise TimeoutError(f"{sum(offsets.values())} of {total} records after {DEADLINE_SECONDS:.0f} s")
    running.stop()
    first, last = marks[0], marks[-1]
    count = last.records - first.records
    return {
        "kafka_records_per_s": count / (last.wall - first.wall),
        "kafka_cpu_us_per_record": (last.cpu - first.cpu) / count * 1e6,
        "kafka_first_commit_s": first.wall - started,
    }


def latency(folder: Path, bootstrap: str) -> dict[str, float]:
    """Each of many runs breaks at a known record; the clock runs from just before `send` to the request's last byte."""
    from kafka import KafkaProducer

    topic = "bench-latency"
    create_topics(bootstrap, [TopicPlan(topic, 4, {})])
    arrivals: dict[str, float] = {}
    with receiver(lambda body: arrivals.setdefault(body["run"], time.perf_counter())) as url:
        running = collector(folder / "latency", bootstrap, topic, alerts_url=url)
        running.start()
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=0)
        sent: dict[str, float] = {}
        try:
            for number in range(ALERTS):
                name = f"run-{number}"
                for step in (1, 2):
                    producer.send(topic, _step(name, step, 0.4), key=name.encode())
                producer.flush(timeout=30)
                time.sleep(PAUSE_SECONDS)
                sent[name] = time.perf_counter()
                producer.send(topic, _step(name, 3, float("nan")), key=name.encode())
                producer.flush(timeout=30)
            end = time.monotonic() + 30
            while len(arrivals) < ALERTS and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            producer.close(timeout=10)
            running.stop()
    if len(arrivals) < ALERTS:
        raise TimeoutError(f"{len(arrivals)} of {ALERTS} alerts arrived")
    taken = [(arrivals[name] - sent[name]) * 1e3 for name in sent][ALERTS // 20 :]  # the first ones warm the connections
    return {"latency_p50_ms": median(taken), "latency_p99_ms": quantiles(taken, n=100)[98], "latency_max_ms": max(taken)}


def collector(
    folder: Path,
    bootstrap: str,
    topic: str,
    *,
    alerts_url: str | None = None,
    on_commit: Callable[[Processed], None] = lambda processed: None,
) -> Running:
    """The collector as `tocsin collect` wires it."""
    folder.mkdir(parents=True)
    alerts = ""
    if alerts_url is not None:
        receivers = (
            f"receivers:\n  hook: {{kind: webhook, url: '{alerts_url}'}}\ndefault: hook\nstorm: {{incidents: {2 * ALERTS}}}\n"
        )
        (folder / "alerts.yaml").write_text(receivers, encoding="utf-8")
        alerts = "alerts: alerts.yaml\n"
    text = (
        f"source: {{kafka: {{bootstrap: ['{bootstrap}'], topic: {topic}, group: {topic}}}}}\n"
        f"store: {{url: 'sqlite:///store.db'}}\nhttp: {{port: 0}}\n{alerts}"
    )
    garbage.settle()
    return Running(
        parse(text, "bench.yaml", base=folder), environ={}, redactor=Redactor(), write=lambda line: None, on_commit=on_commit
    )


def _step(run: str, step: int, grad_norm: float) -> bytes:
    metrics: dict[str, Any] = {name: centre for name, (centre, _) in METRICS.items()} | {"grad_norm": grad_norm}
    return wire.encode(wire.StepRecord(run=run, step=step, time=time.time(), metrics=metrics))


class receiver:
    """A webhook on loopback that notes when each body was complete."""

    def __init__(self, took: Callable[[dict[str, Any]], object]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                took(_event(json.loads(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _event(body: dict[str, Any]) -> dict[str, Any]:
    """The alert in a webhook body."""
    event: dict[str, Any] = body.get("event", body)
    return msgspec.convert(event, dict[str, Any])


if __name__ == "__main__":
    print(json.dumps(throughput(Path(sys.argv[1]), *sys.argv[2:])))

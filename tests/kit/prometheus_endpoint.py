"""A trainer that exposes Prometheus metrics, and the follower of it, step by step on a clock of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    generate_latest,
)

from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.endpoint import Choice, Endpoint
from tocsin.ship.fetch import address
from tocsin.ship.shipper import Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import Record, StepRecord

PRIME_RL = (
    "trainer_step trainer_loss trainer_throughput_tokens_per_sec trainer_last_step_timestamp_seconds trainer_grad_norm "
    "trainer_peak_memory_gib trainer_learning_rate trainer_mfu_percent trainer_entropy trainer_mismatch_kl "
    "trainer_kl_ent_ratio trainer_runs_max"
).split()


class Trainer:
    """A trainer's endpoint: what `answer` gives, by path."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.gauges: dict[str, Gauge] = {}
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.metrics
        self.asked: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append({"path": self.path, **dict(self.headers.items())})
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"

    def metrics(self, handler: BaseHTTPRequestHandler) -> None:
        self.send(handler, generate_latest(self.registry))

    def send(self, handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def set(self, **values: float) -> Trainer:
        for name, value in values.items():
            if name not in self.gauges:
                self.gauges[name] = Gauge(name, name, registry=self.registry)
            self.gauges[name].set(value)
        return self

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Ship:
    """A tocsin-ship on one endpoint; `start` is a new process."""

    def __init__(self, url: str, state: Path, *, from_end: bool = False, names: str | None = None, **choice: Any) -> None:
        self.url, self.state, self.from_end, self.names = url, state, from_end, names
        self.choice = Choice(**choice)
        self.now = 1790000000.0
        self.transport = MemoryTransport()
        self.said: list[str] = []
        self.shipper = self._made()

    def _made(self) -> Shipper:
        reading = Reading(
            to="x", run="r", bookmarks=Bookmarks(self.state), key="k", clock=lambda: self.now, names=self.names,
            from_end=self.from_end,
        )  # fmt: skip
        self.endpoint = Endpoint(address(self.url), reading, self.choice)
        return Shipper([Log(self.endpoint, reading)], self.transport, self.said.append)

    def start(self) -> Ship:
        self.shipper = self._made()
        return self

    def poll(self, after: float = 0.0, *, last: bool = False) -> list[Record]:
        self.now += after
        before = len(self.transport.messages)
        self.shipper.poll_once(last=last)
        return self.transport.records[before:]


def steps(records: list[Record]) -> list[tuple[int, int, dict[str, Any]]]:
    return [(record.attempt, record.step, record.metrics) for record in records if isinstance(record, StepRecord)]


def seen(ship: Ship) -> list[tuple[int, int]]:
    return [place[:2] for place in steps(ship.transport.records)]

"""What `Reporter.log` costs a training loop: 60 metrics a step, microseconds in the caller.

Two rhythms, as they are different costs: "tight" logs as fast as it can, so the sender's thread competes for the interpreter
all the time; "paced" works between two steps as a training loop does, so each call finds cold caches and wakes the sender.
Limits: median under 50 us, 99th percentile under 1 ms.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks._table import table
from tocsin import Reporter
from tocsin.transports import Transport
from tocsin.transports.memory import MemoryTransport
from tocsin.transports.spool import SpoolTransport

METRICS = {f"actor/metric_{index}": index / 7 for index in range(60)}
TIGHT = 20_000
PACED = 1_000
PAUSE = 0.002


def run() -> dict[str, float]:
    """Microseconds: `client_log_us_p50` and `_p99`, the worst of all, and each as client_log_<transport>_<rhythm>_us_p50.

    "nothing" copies the dictionary and calls no reporter: what the machine itself makes of the rhythm. It is in no worst.
    """
    results = {"client_log_us_p50": 0.0, "client_log_us_p99": 0.0}
    for name in ("nothing", "memory", "spool"):
        for rhythm, count, pause in (("tight", TIGHT, 0.0), ("paced", PACED, PAUSE)):
            with tempfile.TemporaryDirectory() as folder:
                taken = sorted(_measure(name, Path(folder), count, pause))
            for share in (50, 99):
                figure = taken[count * share // 100] / 1000
                results[f"client_log_{name}_{rhythm}_us_p{share}"] = figure
                if name != "nothing":
                    results[f"client_log_us_p{share}"] = max(figure, results[f"client_log_us_p{share}"])
    return results


def _measure(name: str, folder: Path, count: int, pause: float) -> list[int]:
    """Nanoseconds of each call."""
    if name == "nothing":
        return _times(lambda step, metrics: dict(metrics), count, pause)
    transport: Transport = MemoryTransport() if name == "memory" else SpoolTransport(folder)
    # A queue that holds all: what is measured is handing over, not dropping.
    with Reporter("benchmark", transport=transport, rank=0, attempt=1, queue_items=10**6, queue_bytes=10**9) as reporter:
        reporter.log(0, METRICS)
        reporter.flush()
        taken = _times(reporter.log, count, pause)
        reporter.flush(60)
    return taken


def _times(call: Callable[[int, dict[str, float]], object], count: int, pause: float) -> list[int]:
    taken = []
    for step in range(1, count + 1):
        if pause:
            _work(pause)
        start = time.perf_counter_ns()
        call(step, METRICS)
        taken.append(time.perf_counter_ns() - start)
    return taken


def _work(seconds: float) -> None:
    """A step of training: half of it computing under the interpreter's lock, half waiting for a device."""
    until = time.perf_counter() + seconds / 2
    while time.perf_counter() < until:
        sum(range(100))
    time.sleep(seconds / 2)


if __name__ == "__main__":
    table(
        [{"microseconds in the caller, 60 metrics": name, "us": figure} for name, figure in run().items()],
        "Reporter.log; limits: p50 50, p99 1,000",
    )

"""Plays the recorded runs into a spool, step by step, while a real collector reads it. No Kafka, no network, no state left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from collector.model import RunStatus
from rules.model import AlertEvent
from service import config
from service.config import Settings
from service.demo.runs import RUNS, rounds
from service.running import Running
from tocsin.transports.spool import SpoolTransport

QUIET_ROUNDS: Final = 110
"""Until shortly before the faults begin: only the baselines are learnt."""
QUIET_SECONDS: Final = 0.06
FAULT_SECONDS: Final = 0.27
"""Between two steps of all runs, slow enough to read along: about 45 s in all."""
_PATIENCE_SECONDS: Final = 60.0


def settings(folder: Path) -> Settings:
    """The default configuration in a folder of its own, on a free port, with the time of the recorded runs."""
    return config.parse("{http: {port: 0}, clock: event}", "demo", folder)


def play(folder: Path, speed: float, wait: Callable[[float], object]) -> Iterator[int]:
    """Send one round of records after the other; yields the number of rounds sent. `wait` sleeps between them."""
    transport = SpoolTransport(folder)
    try:
        for number, messages in enumerate(rounds(), start=1):
            transport.send(messages)
            yield number
            wait((QUIET_SECONDS if number <= QUIET_ROUNDS else FAULT_SECONDS) / speed)
    finally:
        transport.close(timeout=5.0)


def all_read(running: Running, patience: float = _PATIENCE_SECONDS) -> bool:
    """Wait until the collector has seen the end of every run; False when it takes too long."""
    names, pause = {run.run for run in RUNS}, threading.Event()
    for _ in range(int(patience / 0.1)):
        if names <= {row.run for row in running.store.runs() if row.status is not RunStatus.RUNNING}:
            return True
        pause.wait(0.1)
    return False


def first_firings(events: Sequence[AlertEvent], run: str) -> list[AlertEvent]:
    """Of each alert of a run the first event that told somebody, in order."""
    first: dict[str, AlertEvent] = {}
    for event in events:
        if event.run == run and event.state.value == "firing":
            first.setdefault(event.alert, event)
    return list(first.values())

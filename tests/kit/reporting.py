"""A reporter on a transport in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import tocsin
from tocsin import wire
from tocsin.transports import Message
from tocsin.transports.memory import MemoryTransport

METRICS = {f"actor/metric_{index}": index / 7 for index in range(60)}


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Stuck(MemoryTransport):
    """Takes nothing until it is let go: a sender that cannot keep up."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def send(self, messages: Sequence[Message]) -> None:
        self.entered.set()
        assert self.released.wait(300)
        super().send(messages)


def make(transport: Any, **settings: Any) -> tocsin.Reporter:
    return tocsin.Reporter("run-1", **{"rank": 0, "attempt": 1, "clock": Clock(), "transport": transport, **settings})


def steps(transport: MemoryTransport) -> list[wire.StepRecord]:
    return [record for record in transport.records if isinstance(record, wire.StepRecord)]

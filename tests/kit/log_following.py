"""A log that is followed, and what was shipped of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tocsin.ship.bookmarks import Bookmarks, beside
from tocsin.ship.follow import Follower
from tocsin.ship.shipper import Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import EndRecord, Record, RunRecord, StepRecord

NOW = 1790000000.0
NewShip = Callable[..., "Ship"]


class Ship:
    """A tocsin-ship on one path; `start` is a new process with the same files."""

    def __init__(self, path: Path, *, format: str = "auto", from_end: bool = False, to: str = "memory:") -> None:
        self.path = path
        self.format = format
        self.from_end = from_end
        self.to = to
        self.transport = MemoryTransport()
        self.said: list[str] = []
        self.follower, self.shipper = self._made()

    def close(self) -> None:
        self.shipper.close()

    def start(self) -> Ship:
        self.close()
        self.follower, self.shipper = self._made()
        return self

    def _made(self) -> tuple[Follower, Shipper]:
        bookmarks = Bookmarks(beside(self.path))
        reading = Reading(to=self.to, run="r", bookmarks=bookmarks, key="log", clock=lambda: NOW, from_end=self.from_end)
        follower = Follower(self.path, self.format, reading)
        return follower, Shipper([Log(follower, reading)], self.transport, self.said.append)

    def poll(self, *, last: bool = False) -> list[Record]:
        """What one look brings."""
        before = len(self.transport.messages)
        while self.shipper.poll_once(last=last):
            pass
        return self.transport.records[before:]


def told(records: Sequence[Record]) -> list[tuple[str, int, int]]:
    """(kind, attempt, step) of each record."""
    kinds = {RunRecord: "run", StepRecord: "step", EndRecord: "end"}
    return [(kinds[type(record)], record.attempt, getattr(record, "step", 0)) for record in records]


def steps(records: Sequence[Record]) -> list[tuple[int, int]]:
    return [(record.attempt, record.step) for record in records if isinstance(record, StepRecord)]


def row(step: int, value: float = 0.5) -> str:
    return json.dumps({"step": step, "data": {"actor/grad_norm": value}}) + "\n"


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)

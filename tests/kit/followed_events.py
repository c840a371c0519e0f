"""Event files of a test and a tocsin-ship that follows them, on a clock of the test."""

from __future__ import annotations

from pathlib import Path

from tests.kit import events
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.follow import Follower
from tocsin.ship.shipper import Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import Record

Row = events.Row


class Ship:
    """A tocsin-ship on one path; `start` is a new process with the same files."""

    def __init__(self, path: Path, state: Path, format: str = "auto", *, from_end: bool = False) -> None:
        self.path, self.state, self.format, self.from_end = path, state, format, from_end
        self.now = 100.0
        self.transport = MemoryTransport()
        self.said: list[str] = []
        self.follower, self.shipper = self._made()

    def _made(self) -> tuple[Follower, Shipper]:
        reading = Reading(
            to="x", run="r", bookmarks=Bookmarks(self.state), key="log", clock=lambda: self.now, from_end=self.from_end
        )
        follower = Follower(self.path, self.format, reading)
        return follower, Shipper([Log(follower, reading)], self.transport, self.said.append)

    def start(self) -> Ship:
        self.shipper.close()
        self.follower, self.shipper = self._made()
        return self

    def poll(self, after: float = 0.0, *, last: bool = False) -> list[Record]:
        """What one look brings, `after` seconds."""
        self.now += after
        before = len(self.transport.messages)
        while self.shipper.poll_once(last=last):
            pass
        return self.transport.records[before:]


def rows(*numbers: int, base: float = 100.0, value: float = 0.5) -> list[Row]:
    return [(base + number, number, {"train/policy_loss": value, "train/actor_lr": 1.0}) for number in numbers]

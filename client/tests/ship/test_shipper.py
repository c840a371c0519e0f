"""The shipper and a transport that gives trouble."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.follow import Follower
from tocsin.ship.shipper import MAX_REWINDS, Additions, Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports import Message, TransportCounts
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import RunRecord, StepRecord


class Troubled(MemoryTransport):
    """Confirms, drops and refuses as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.confirms = True
        self.drop = 0
        self.lost: dict[str, int] = {}

    def send(self, messages: Sequence[Message]) -> None:
        if self.drop:
            self.drop -= 1
            self.lost["memory_full"] = self.lost.get("memory_full", 0) + len(messages)
            return
        super().send(messages)

    def flush(self, timeout: float) -> bool:
        return self.confirms

    def counts(self) -> TransportCounts:
        return super().counts()._replace(dropped=self.lost)


class Ship:
    """A shipper on one log."""

    def __init__(self, folder: Path, additions: Additions | None = None) -> None:
        self.path, self.state = folder / "log.jsonl", folder / "state.json"
        self.transport, self.said = Troubled(), list[str]()
        reading = Reading(to="x", run="r", bookmarks=Bookmarks(self.state), key="log", clock=lambda: 5.0)
        self.shipper = Shipper(
            [Log(Follower(self.path, "verl-jsonl", reading), reading)], self.transport, self.said.append, additions
        )

    def write(self, *steps: int) -> None:
        with self.path.open("a") as file:
            file.writelines(json.dumps({"step": step, "data": {"actor/lr": 1.0}}) + "\n" for step in steps)

    def steps(self) -> list[int]:
        return [record.step for record in self.transport.records if isinstance(record, StepRecord)]


def test_nothing_is_read_and_no_place_is_kept_while_the_transport_does_not_confirm(tmp_path: Path) -> None:
    ship = Ship(tmp_path)
    ship.write(1)
    ship.transport.confirms = False
    ship.shipper.poll_once()
    ship.write(2)
    ship.shipper.poll_once()
    assert ship.steps() == [1]
    assert not ship.state.exists()
    assert not ship.shipper.settle()
    ship.transport.confirms = True
    ship.shipper.poll_once()
    assert ship.steps() == [1, 2]
    assert ship.shipper.settle()
    assert ship.state.exists()
    assert ship.said == ["the transport does not confirm; waiting, the logs keep what is new", "the transport confirms again"]
    ship.shipper.close()


def test_what_the_transport_dropped_is_read_again(tmp_path: Path) -> None:
    ship = Ship(tmp_path)
    ship.write(1)
    ship.shipper.poll_once()
    ship.write(2, 3)
    ship.transport.drop = 1
    ship.shipper.poll_once()
    assert ship.steps() == [1]
    assert not ship.shipper.settle()
    ship.shipper.poll_once()
    assert ship.steps() == [1, 2, 3]
    assert ship.shipper.settle()
    assert ship.said == ["the transport dropped 2 records; reading them again"]
    ship.shipper.close()


def test_a_last_look_is_repeated_after_a_loss_but_not_for_ever(tmp_path: Path) -> None:
    ship = Ship(tmp_path)
    ship.write(1)
    ship.transport.drop = 1
    while ship.shipper.poll_once(last=True):
        pass
    assert ship.steps() == [1]
    ship.write(2)
    ship.shipper.close()
    again = Ship(tmp_path)
    again.transport.drop = 10**9
    looks = 1
    while again.shipper.poll_once(last=True):
        looks += 1
    assert looks == MAX_REWINDS
    assert not again.shipper.settle()
    again.shipper.close()


def test_refused_records_are_not_read_again(tmp_path: Path) -> None:
    ship = Ship(tmp_path)
    ship.write(1)
    ship.transport.lost["refused"] = 0
    ship.shipper.poll_once()
    ship.write(2)
    ship.transport.lost["refused"] = 1
    ship.shipper.poll_once()
    assert ship.steps() == [1, 2]
    assert ship.shipper.tally.refused == 1
    ship.shipper.close()


def test_labels_and_configuration_go_into_every_run_record(tmp_path: Path) -> None:
    ship = Ship(tmp_path, Additions({"team": "reasoning", "framework": "mine"}, {"group_size": 16}))
    ship.write(5, 4)
    ship.shipper.poll_once()
    runs = [record for record in ship.transport.records if isinstance(record, RunRecord)]
    assert [(run.attempt, run.labels, run.config) for run in runs] == [
        (attempt, {"team": "reasoning", "framework": "mine"}, {"group_size": 16}) for attempt in (1, 2)
    ]
    assert (ship.shipper.tally.steps, ship.shipper.tally.others) == (2, 2)
    ship.shipper.close()


def test_a_place_that_cannot_be_kept_is_told_and_sending_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship = Ship(tmp_path)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    ship.write(1)
    ship.shipper.poll_once()
    ship.write(2)
    ship.shipper.poll_once()
    assert ship.steps() == [1, 2]
    assert ship.said == [f"{ship.state}: cannot keep the place in the log: No space left on device. Use --state FILE."]
    assert ship.shipper.tally.failed == 1
    assert list(tmp_path.iterdir()) == [ship.path]
    ship.shipper.close()

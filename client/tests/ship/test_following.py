"""Following real files: what frameworks, restarts and log rotation do to them. Nothing here waits for a clock."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.log_following import NOW, NewShip, Ship, append, row, steps, told
from tocsin.formats.merge import GRACE_SECONDS
from tocsin.ship.bookmarks import Bookmarks, beside
from tocsin.ship.follow import Follower
from tocsin.ship.shipper import Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import StepRecord


@pytest.fixture
def ship_on() -> Iterator[Callable[..., Ship]]:
    """Makes a Ship on a path; all are closed at the end."""
    made: list[Ship] = []

    def make(path: Path, format: str = "auto", *, from_end: bool = False, to: str = "memory:") -> Ship:
        made.append(Ship(path, format=format, from_end=from_end, to=to))
        return made[-1]

    yield make
    for ship in made:
        ship.close()


# --- growth ------------------------------------------------------------------------------------------------------------


def test_a_file_that_does_not_exist_yet_and_then_grows(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    ship = ship_on(path)
    assert ship.poll() == []
    assert ship.follower.status() == "waiting for the file"
    path.touch()
    assert ship.poll() == []
    assert ship.follower.status() == "waiting for a first row that tells the format"
    append(path, row(1))
    assert told(ship.poll()) == [("run", 1, 0), ("step", 1, 1)]
    assert ship.poll() == []
    append(path, row(2) + row(3))
    assert told(ship.poll()) == [("step", 1, 2), ("step", 1, 3)]
    assert ship.said == []


def test_a_half_written_line_waits_for_its_end(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1) + row(2)[:20])
    ship = ship_on(path)
    assert steps(ship.poll()) == [(1, 1)]
    assert ship.poll() == []
    append(path, row(2)[20:])
    assert steps(ship.poll()) == [(1, 2)]
    assert ship.shipper.tally.unreadable == 0


def test_a_last_look_takes_an_unfinished_line_but_does_not_pass_it(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1) + row(2).rstrip("\n"))
    assert steps(ship_on(path).poll(last=True)) == [(1, 1), (1, 2)]
    append(path, "\n" + row(3)[:9])
    assert steps(ship_on(path).poll(last=True)) == [(1, 2)]
    append(path, row(3)[9:])
    ship = ship_on(path)
    assert steps(ship.poll(last=True)) == [(1, 3)]
    assert ship.shipper.tally.unreadable == 0


def test_bytes_that_are_no_record_are_counted_and_told_five_times(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1) + "{nonsense}\n" * 8 + row(2))
    ship = ship_on(path)
    assert steps(ship.poll()) == [(1, 1), (1, 2)]
    assert ship.shipper.tally.unreadable == 8
    assert len(ship.said) == 5
    assert f"{path}: unreadable at {len(row(1))}: not JSON" in ship.said[0]


def test_large_files_come_in_portions(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(row(step) for step in range(1, 1801)))
    ship = ship_on(path)
    assert ship.shipper.poll_once()
    assert 0 < len(ship.transport.messages) < 600
    ship.poll()
    assert steps(ship.transport.records) == [(1, step) for step in range(1, 1801)]


# --- where to begin -----------------------------------------------------------------------------------------------------


def test_from_the_end_only_what_is_new_with_its_context(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,actor_lr\n1,0.5\n2,0.5\n")
    ship = ship_on(path, from_end=True)
    assert told(ship.poll()) == [("run", 1, 0)]
    append(path, "3,0.5\n")
    assert told(ship.start().poll()) == [("step", 1, 3)]
    path.write_text("step,actor_lr\n1,0.5\n")
    assert told(ship.poll()) == [("run", 2, 0), ("step", 2, 1)]


def test_another_destination_starts_over(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1))
    ship_on(path).poll()
    assert ship_on(path).poll() == []
    assert steps(ship_on(path, to="kafka://elsewhere:9092").poll()) == [(1, 1)]


@pytest.mark.parametrize("content", ["{", '{"version": 2, "logs": {}}', '{"version": 1, "logs": {"log": 3}}'])
def test_a_spoilt_state_file_costs_only_repetition(tmp_path: Path, content: str, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1))
    ship_on(path).poll()
    beside(path).write_text(content)
    assert steps(ship_on(path).poll()) == [(1, 1)]


def test_a_parser_state_of_another_version_starts_over(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1))
    ship_on(path).poll()
    state = json.loads(beside(path).read_bytes())
    state["logs"]["log"]["parser"] = {"something": "else"}
    beside(path).write_text(json.dumps(state))
    assert steps(ship_on(path).poll()) == [(1, 1)]


# --- gzip ------------------------------------------------------------------------------------------------------------------


def test_gzip_is_sent_in_one_pass_and_once(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress("".join(row(step) for step in range(1, 1201)).encode()))
    ship = ship_on(path)
    assert steps(ship.poll()) == [(1, step) for step in range(1, 1201)]
    assert ship.poll() == []
    assert ship.start().poll() == []


def test_gzip_is_gone_on_with_where_the_first_pass_stopped(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress("".join(row(step) for step in range(1, 1201)).encode()))
    ship = ship_on(path)
    ship.shipper.poll_once()
    sent = len(steps(ship.transport.records))
    assert 0 < sent < 1200
    assert steps(ship.start().poll())[0] == (1, sent + 1)
    assert steps(ship.transport.records) == [(1, step) for step in range(1, 1201)]


# --- canonical ---------------------------------------------------------------------------------------------------------------


def test_canonical_records_pass_byte_for_byte(tmp_path: Path, ship_on: NewShip) -> None:
    lines = [
        '{"v":1,"kind":"run","run":"mine","time":1.5,"attempt":3,"later":"field"}',
        '{"v":1,"kind":"step","run":"mine","step":7,"time":2.5,"attempt":3,"metrics":{"a":NaN}}',
        '{"v":1,"kind":"end","run":"mine","step":7,"time":3.5,"attempt":3}',
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(lines) + "\n")
    ship = ship_on(path)
    ship.poll()
    assert [message.value.decode() for message in ship.transport.messages] == lines
    assert [(message.run, message.time, message.keep) for message in ship.transport.messages] == [
        ("mine", 1.5, True),
        ("mine", 2.5, False),
        ("mine", 3.5, True),
    ]


# --- trouble -----------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told_once_and_tried_again(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1))
    path.chmod(0)
    ship = ship_on(path)
    assert ship.poll() == ship.poll() == []
    assert ship.said == [f"{path}: Permission denied; trying again"]
    path.chmod(0o600)
    assert steps(ship.poll()) == [(1, 1)]


def test_a_path_that_is_no_log_is_told_once_and_tried_again(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    ship = ship_on(path, "csv")
    assert ship.poll() == ship.poll() == []
    assert ship.said == [f"{path}: Is a directory; trying again"]


def test_a_last_look_at_a_missing_or_unknown_file_fails(tmp_path: Path, ship_on: NewShip) -> None:
    missing = ship_on(tmp_path / "none.log")
    missing.poll(last=True)
    assert missing.said == [f"{tmp_path / 'none.log'}: No such file or directory"]
    assert missing.shipper.over
    (tmp_path / "odd.log").write_text("nothing here\n")
    odd = ship_on(tmp_path / "odd.log")
    odd.poll(last=True)
    assert "looked for canonical records" in odd.said[0]
    assert odd.shipper.tally.failed == 1


def test_rows_of_one_step_are_joined_and_not_held_longer_than_the_grace(tmp_path: Path) -> None:
    """prime-rl's trainer is slow: what it wrote of a step is sent soon after."""
    path, state, now = tmp_path / "metrics.jsonl", tmp_path / "state", [1000.0]
    reading = Reading(to="x", run="r", bookmarks=Bookmarks(state), key="log", clock=lambda: now[0])
    follower = Follower(path, "flat-jsonl", reading)
    rows = [b'{"step": 1, "time": 1790000000.1, "optim/lr": 1e-06}\n', b'{"step": 1, "time": 1790000000.2, "loss/mean": 0.5}\n']
    path.write_bytes(rows[0])
    assert follower.poll(last=False).parsed == ()
    with path.open("ab") as file:
        file.write(rows[1])
    now[0] += GRACE_SECONDS / 2
    assert follower.poll(last=False).parsed == ()
    now[0] += GRACE_SECONDS
    batch = follower.poll(last=False)
    assert [parsed.record.metrics for parsed in batch.parsed if isinstance(parsed.record, StepRecord)] == [
        {"optim/lr": 1e-06, "loss/mean": 0.5}
    ]
    assert batch.bookmark is not None
    assert batch.bookmark.offset == len(rows[0]) + len(rows[1])
    follower.close()


def test_a_console_without_a_clock_that_is_sent_again_and_again_is_not_dated_anew(tmp_path: Path) -> None:
    """`tocsin-ship --once` from cron on slime's console: the last step waits for the rest of it, and is no reason to read the
    whole log again, which would look like a restart."""
    path = tmp_path / "console.log"
    bookmarks = Bookmarks(tmp_path / "state")
    sent: list[int] = []
    for turn in range(3):
        with path.open("a") as file:
            file.writelines(f"step {step}: {{'train/grad_norm': 0.5}}\n" for step in range(20 * turn, 20 * (turn + 1)))
        reading = Reading(to="memory:", run="r", bookmarks=bookmarks, key="log", clock=lambda: NOW)
        transport = MemoryTransport()
        shipper = Shipper([Log(Follower(path, "auto", reading), reading)], transport, lambda text: None)
        while shipper.poll_once(last=True):
            pass
        shipper.close()
        assert {record.attempt for record in transport.records} == {1}
        sent += [record.step for record in transport.records if isinstance(record, StepRecord)]
    # The newest step of each turn comes once more: nobody knew whether it was complete.
    assert sent == [*range(20), 19, *range(20, 40), 39, *range(40, 60)]

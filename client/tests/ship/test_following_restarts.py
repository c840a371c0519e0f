"""A followed log that is cut, rotated, replaced or copied: which of it is a restart of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.log_following import NewShip, Ship, append, row, steps, told
from tocsin.wire import RunRecord, StepRecord


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


def test_truncation_by_a_restart_is_a_new_attempt(tmp_path: Path, ship_on: NewShip) -> None:
    """verl opens its file with "wb"."""
    path = tmp_path / "log.jsonl"
    path.write_text(row(1) + row(2) + row(3))
    ship = ship_on(path)
    ship.poll()
    path.write_text(row(4))  # it goes on from a checkpoint: the step alone would not tell
    assert told(ship.poll()) == [("run", 2, 0), ("step", 2, 4)]


def test_truncation_that_grew_past_the_old_place_before_we_looked(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1, 0.25) + row(2, 0.25))
    ship = ship_on(path)
    ship.poll()
    path.write_text("".join(row(step, 0.75) for step in range(1, 6)))
    assert steps(ship.poll()) == [(2, step) for step in range(1, 6)]


def test_truncation_while_nobody_looked(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1, 0.25) + row(2, 0.25))
    ship = ship_on(path)
    ship.poll()
    path.write_text("".join(row(step, 0.75) for step in range(1, 6)))
    assert steps(ship.start().poll()) == [(2, step) for step in range(1, 6)]
    path.write_text("")
    assert ship.start().poll() == []
    append(path, row(6))
    assert steps(ship.start().poll()) == [(3, 6)]


def test_another_framework_at_the_same_path_is_read_in_its_own_format(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log"
    path.write_text(row(1, 0.25) + row(2, 0.25))
    ship = ship_on(path)
    ship.poll()
    path.write_text("".join(f"{{'loss': 0.5, 'grad_norm': 0.4, 'learning_rate': 1e-6, 'epoch': 0.{n}}}\n" for n in range(1, 6)))
    assert len(steps(ship.start().poll(last=True))) == 5


def test_rotation_goes_on_in_the_same_attempt(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1))
    ship = ship_on(path)
    ship.poll()
    append(path, row(2))
    path.rename(tmp_path / "log.jsonl.1")
    assert steps(ship.poll()) == [(1, 2)]  # the path is gone, the open file is not
    append(tmp_path / "log.jsonl.1", row(3))
    path.write_text(row(4))
    assert told(ship.poll()) == [("step", 1, 3), ("step", 1, 4)]


def test_rotation_while_nobody_looked(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1))
    ship = ship_on(path)
    ship.poll()
    append(path, row(2))
    path.rename(tmp_path / "log.jsonl.1")
    path.write_text(row(3))
    assert steps(ship.start().poll()) == [(1, 2), (1, 3)]


def test_replacement_by_a_restart_is_a_new_attempt(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(row(1) + row(2))
    ship = ship_on(path)
    ship.poll()
    (tmp_path / "new").write_text(row(1, 0.75))
    (tmp_path / "new").replace(path)
    assert told(ship.poll()) == [("run", 2, 0), ("step", 2, 1)]


def test_a_copy_of_the_log_is_gone_on_with(tmp_path: Path, ship_on: NewShip) -> None:
    """Another inode, the same bytes: restored from a backup, moved to another disk."""
    path = tmp_path / "log.jsonl"
    path.write_text(row(1) + row(2))
    ship = ship_on(path)
    ship.poll()
    (tmp_path / "copy").write_text(path.read_text() + row(3))
    (tmp_path / "copy").replace(path)
    assert told(ship.start().poll()) == [("step", 1, 3)]


def test_a_table_that_is_begun_anew_has_a_header_of_its_own(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,actor_lr,kl\n1,0.5,1\n2,0.5,1\n")
    ship = ship_on(path)
    ship.poll()
    path.write_text("step,kl,actor_lr\n3,7,8\n")
    (run, step) = ship.poll()
    assert isinstance(run, RunRecord)
    assert isinstance(step, StepRecord)
    assert (step.attempt, step.metrics) == (2, {"kl": 7.0, "actor_lr": 8.0})


def test_consoles_restart_in_the_same_file(tmp_path: Path, ship_on: NewShip) -> None:
    path = tmp_path / "train.log"
    console = "noise\n  0%|  | 0/4 [00:00<?, ?it/s]\n" + "".join(
        f"\r {25 * step}%|#  | {step}/4 [00:01<00:01]\r{' ' * 30}\r{{'loss': 0.5, 'grad_norm': 1.0, 'epoch': {step / 4}}}\n"
        for step in (2, 4)
    )
    path.write_text(console)
    ship = ship_on(path)
    assert steps(ship.poll()) == [(1, 2), (1, 4)]
    append(path, console)
    assert steps(ship.start().poll()) == [(2, 2), (2, 4)]

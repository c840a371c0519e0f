"""Recognising dumps, and the command that ships them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import dumps
from tocsin.dumps import DUMPS, recognise_dump
from tocsin.formats import FORMATS, UnknownFormat
from tocsin.ship import cli

MADE = dumps.make(3)


def nemo(folder: Path) -> Path:
    dumps.write(folder / "exp_001" / "train_data_step3.jsonl", dumps.nemo_rows(MADE))
    return folder


def nemo_attempt(folder: Path) -> Path:
    return nemo(folder) / "exp_001"


def verl(folder: Path) -> Path:
    dumps.write(folder / "3.jsonl", dumps.verl_rows(MADE, 3))
    return folder


def open_instruct(folder: Path) -> Path:
    dumps.write(folder / "x_rollouts_000000.jsonl", dumps.open_instruct_rows(MADE, 3))
    return folder


def swift(folder: Path) -> Path:
    return dumps.write(folder / "completions.jsonl", [dumps.swift_row(MADE, 3)])


def areal(folder: Path) -> Path:
    dumps.write_areal(folder, 3, MADE)
    return folder


MAKERS: list[tuple[Callable[[Path], Path], str]] = [
    (nemo, "nemo-samples"),
    (nemo_attempt, "nemo-samples"),
    (verl, "verl-rollouts"),
    (open_instruct, "open-instruct-rollouts"),
    (swift, "ms-swift-completions"),
    (areal, "areal-trajectories"),
]


@pytest.mark.parametrize(("maker", "name"), MAKERS)
def test_recognised_and_shipped(maker: Callable[[Path], Path], name: str, tmp_path: Path) -> None:
    path = maker(tmp_path / "dump")
    assert recognise_dump(path) == name
    status, said = ship(tmp_path, path, "--run", "r")
    assert (status, said[-1]) == (0, "sent 1 steps and 1 run and end records")
    status, said = ship(tmp_path, path, "--run", "r", "--format", name, "--state", tmp_path / "elsewhere")
    assert status == 0
    first, again = (list(map(json.loads, file.read_text().splitlines())) for file in sorted(spooled(tmp_path)))
    assert [(record["kind"], record["run"]) for record in first] == [("run", "r"), ("step", "r")]
    assert first[1]["step"] == 3 and "names" not in first[1] and first == again


def test_what_is_none(tmp_path: Path) -> None:
    assert recognise_dump(tmp_path) is None
    dumps.write(tmp_path / "metrics" / "12.jsonl", [{"step": 1, "data": {"actor/grad_norm": 0.5}}])
    assert recognise_dump(tmp_path / "metrics") is None
    dumps.write(tmp_path / "output" / "checkpoint-10" / "trainer_state.json", [{"log_history": []}])
    (tmp_path / "output" / "completions").mkdir()
    assert recognise_dump(tmp_path / "output") is None
    (tmp_path / "7").mkdir()
    assert recognise_dump(tmp_path) is None
    other = dumps.write(tmp_path / "completions.jsonl", [{"prompt": "p", "completion": "c"}])
    assert recognise_dump(other) is None
    assert recognise_dump(dumps.write(tmp_path / "3.jsonl", dumps.verl_rows(MADE, 3))) is None, "the folder is the dump"


def test_a_folder_of_events_and_samples_says_how_to_ship_both(tmp_path: Path) -> None:
    path = nemo(tmp_path / "logs")
    events = path / "exp_001" / "tensorboard" / "events.out.tfevents.1.host"
    events.parent.mkdir()
    events.touch()
    with pytest.raises(UnknownFormat, match="--format tensorboard, one with --format nemo-samples"):
        recognise_dump(path)
    status, said = ship(tmp_path, path)
    assert status == 1 and "event files and a dump" in said[-2]
    assert ship(tmp_path, path, "--format", "nemo-samples")[0] == 0


def test_a_configuration_that_means_nothing_to_a_dump_is_told(tmp_path: Path) -> None:
    status, said = ship(tmp_path, verl(tmp_path / "rollouts"), "--config", "group_size=all")
    assert status == 1 and said[-2] == "--config group_size is 'all', expected a whole number of 1 or more"


def test_notes_and_bad_rows_are_told_once_with_their_place(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts"
    rows = dumps.verl_rows(MADE, 3)
    for step in (3, 4):
        dumps.write(folder / f"{step}.jsonl", [{}, *rows, rows[0]])
    status, said = ship(tmp_path, folder)
    assert status == 0
    assert f"{folder}: unreadable at 0: 3.jsonl, row 1: no input" in said
    assert said.count(f"{folder}: copies of one sample in a step count once") == 1
    assert said[-1] == "sent 2 steps and 1 run and end records; 2 unreadable places"


def test_the_command_line_names_all_formats() -> None:
    text = cli.parser().format_help()
    assert all(f"  {name} " in text for name in (*FORMATS, *DUMPS))
    assert not FORMATS.keys() & DUMPS.keys()


def test_numpy_is_needed_for_dumps_alone(tmp_path: Path) -> None:
    """In a process that has none: the command starts, a dump says what to install, a log is shipped."""
    path = verl(tmp_path / "rollouts")
    log = dumps.write(tmp_path / "log.jsonl", [{"step": 1, "data": {"actor/grad_norm": 0.5}}])
    code = "import sys; sys.modules['numpy'] = None; from tocsin.ship import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--once", "--spool", str(tmp_path / "spool")]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1 and "verl-rollouts needs numpy" in done.stderr and "tocsin[batch]" in done.stderr
    assert subprocess.run([*command, str(log)], check=False, timeout=300).returncode == 0


def spooled(folder: Path) -> list[Path]:
    return list((folder / "spool" / "records").glob("*.jsonl"))


def ship(folder: Path, path: Path, *arguments: str | Path) -> tuple[int, list[str]]:
    said: list[str] = []
    given = [str(argument) for argument in (path, *arguments, "--once", "--spool", folder / "spool")]
    status = cli.run(given, environ={}, say=said.append, clock=lambda: 5.0)
    return status, said

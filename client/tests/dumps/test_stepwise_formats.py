"""Following the dumps of NeMo-RL, AReaL and TRL, each with files of its own kind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kit import dumps
from tests.kit.stepwise import Following
from tocsin.wire import StepRecord


def nemo(following: Following, folder: str, step: int, seed: int = 0) -> None:
    path = following.path / folder / f"train_data_step{step}.jsonl"
    following.touch(dumps.write(path, dumps.nemo_rows(dumps.make(step, seed=seed))))


def test_nemo_a_start_of_the_trainer_that_goes_back_is_an_attempt(tmp_path: Path) -> None:
    following = Following(tmp_path / "logs", tmp_path / "state", "nemo-samples")
    for step in (1, 2, 3):
        nemo(following, "exp_001", step)
    assert following.looks() == ["run 1", "1:1", "1:2", "1:3"]
    nemo(following, "exp_001", 4)
    for step in (3, 4):
        nemo(following, "exp_002", step, seed=1)
    following.start()
    assert following.looks() == ["1:4", "run 2", "2:3", "2:4"]
    nemo(following, "exp_010", 5, seed=2)  # went on where it stopped
    assert following.looks() == ["2:5"]
    nemo(following, "exp_010", 6, seed=2)
    shutil.rmtree(following.path / "exp_001")
    assert following.looks() == ["2:6"]
    nemo(following, "exp_011", 6, seed=3)
    following.start()
    assert following.looks() == ["run 3", "3:6"]


def test_nemo_one_attempts_folder_alone(tmp_path: Path) -> None:
    following = Following(tmp_path / "logs" / "exp_002", tmp_path / "state", "nemo-samples")
    for step in (3, 4):
        nemo(following, "", step)
    assert following.looks() == ["run 1", "1:3", "1:4"]


def test_areal_a_version_is_complete_when_two_later_ones_are_there(tmp_path: Path) -> None:
    following = Following(tmp_path / "rollout", tmp_path / "state", "areal-trajectories")
    dumps.write_areal(following.path, 0, dumps.make(0))
    dumps.write_areal(following.path, 1, dumps.make(1, prompts=1))
    assert following.look() == []
    dumps.write_areal(following.path, 0, dumps.make(0, first=8))  # the last of version 0, after the first of version 1
    dumps.write_areal(following.path, 2, dumps.make(2))
    assert following.look() == ["run 1", "1:0"]
    record = following.records[1]
    assert isinstance(record, StepRecord) and record.groups is not None
    assert following.looks() == ["1:1", "1:2"]
    dumps.write_areal(following.path, 1, dumps.make(1, first=8))
    assert following.looks() == []


def test_trl_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional: only TRL's parquet dumps need it")
    arrow = pytest.importorskip("pyarrow", reason="as above")
    config = {"reward_weights": [1.0, 0.0]}
    following = Following(tmp_path / "completions", tmp_path / "state", "trl-completions", config=config)
    following.path.mkdir()

    def write(step: int, row: dict[str, Any]) -> None:
        row = {("advantage" if key == "advantages" else key): value for key, value in row.items() if key != "entropy"}
        path = following.path / f"completions_{step:05d}.parquet"
        parquet.write_table(arrow.table({**row, "step": [str(step)] * len(row["step"])}), path)
        following.touch(path)

    write(10, dumps.swift_row(dumps.make(10), 10))
    write(20, dumps.swift_row(dumps.make(20), 20))
    write(30, dumps.swift_row(dumps.make(20), 30))
    (following.path / "completions_00040.parquet").write_bytes(b"PAR1half")
    told = following.looks()
    assert told[:3] == ["run 1", "1:10", "1:20"] and len(told) == 5
    assert told[3].startswith("completions_00040.parquet, row 1") and told[4].endswith("step 40 has no readable sample")
    assert any("nothing new was generated" in note for note in following.notes)
    record = following.records[1]
    assert isinstance(record, StepRecord)
    assert record.metrics["zero_variance_group_ratio"] == pytest.approx(0.5)

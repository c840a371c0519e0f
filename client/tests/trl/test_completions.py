"""The completions that a real GRPOTrainer dumps, measured: what it logged itself comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import trl_run
from tocsin import wire
from tocsin.dumps import follow_dump
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.source import Reading


def test_what_the_trainer_logged_comes_out_of_its_dump(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is optional: only TRL's parquet dumps need it")
    trainer = trl_run.trainer(tmp_path, max_steps=3, log_completions=True, reward_funcs=[trl_run.accuracy_reward])
    trainer.train()
    folder = tmp_path / "completions"
    reading = Reading(to="x", run="r", bookmarks=Bookmarks(tmp_path / "state"), key="k", clock=lambda: 5.0)
    source = follow_dump(folder, "trl-completions", reading)
    steps: list[wire.StepRecord] = []
    while (batch := source.poll(last=True)).parsed:
        steps += [parsed.record for parsed in batch.parsed if isinstance(parsed.record, wire.StepRecord)]
    logged = {row["step"]: row for row in trainer.state.log_history if "reward" in row}
    assert [record.step for record in steps] == list(logged) == [1, 2, 3]
    for record in steps:
        row = logged[record.step]
        assert record.metrics["reward_mean"] == pytest.approx(row["reward"], abs=1e-6)
        assert record.metrics["zero_variance_group_ratio"] == pytest.approx(row["frac_reward_zero_std"], abs=1e-6)
        assert record.metrics["reward_component_mean"] == {"accuracy_reward": pytest.approx(row["reward"], abs=1e-6)}
        assert record.groups is not None and (record.groups.size, len(record.groups.prompt)) == (4, 4)
        assert record.rollouts and record.rollouts[0].prompt in trl_run.PROMPTS

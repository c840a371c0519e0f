"""A job of two processes: rank 0 reports what all of them generated, and its decision to stop reaches the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import services, trl_run
from tests.kit.services import until
from tocsin import control, spool, wire

ROOT = Path(__file__).resolve().parents[3]


class Pair:
    """Two processes of one job, on loopback."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        folder.mkdir()
        self.spool = folder / "spool"
        self.output = folder / "out"
        (port,) = services.loaded(services.KAFKA).free_ports(1)
        self._logs = [folder / f"log{rank}" for rank in range(2)]
        self._processes = []
        for rank, log in enumerate(self._logs):
            place = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            where = {"TOCSIN_SPOOL": str(self.spool)}
            environ = {name: value for name, value in os.environ.items() if name != "TOCSIN_KAFKA"}
            with log.open("wb") as stream:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "tests.kit.trl_run", json.dumps({"folder": str(self.output), **arguments})],
                        cwd=ROOT,
                        env={**environ, **trl_run.ENVIRONMENT, **place, **where},
                        stdout=stream,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait(self) -> list[int]:
        """The steps at which the processes ended, of their own."""
        statuses = [process.wait(timeout=300) for process in self._processes]
        texts = [log.read_text(encoding="utf-8", errors="replace") for log in self._logs]
        assert statuses == [0, 0], "\n".join(text[-2000:] for text in texts)
        return [int(json.loads(text.strip().splitlines()[-1])["step"]) for text in texts]

    def records(self) -> list[wire.Record]:
        lines = [line for path in spool.record_files(self.spool) for line in path.read_bytes().split(b"\n")[:-1]]
        return [wire.decode(line).record for line in lines]

    def steps(self) -> list[wire.StepRecord]:
        return [record for record in self.records() if isinstance(record, wire.StepRecord)]

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait(timeout=300)


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    started: list[Pair] = []
    yield started
    for pair in started:
        pair.close()


def test_two_processes_are_one_run_and_stop_together(tmp_path: Path, pairs: list[Pair]) -> None:
    pairs.append(Pair(tmp_path / "job", run="two", steps=3000, on_stop="checkpoint_and_stop"))
    (pair,) = pairs
    until(lambda: len(pair.steps()) >= 3, "the job reports", pause=0.1)
    now = time.time()
    request = control.StopRequest(
        run="two",
        id="stop-1",
        rule="R",
        step=3,
        reason="why",
        action="checkpoint_and_stop",
        requested_at=now,
        expires_at=now + 600,
    )
    spool.write_control(pair.spool, request)
    stopped = pair.wait()
    assert len(set(stopped)) == 1 and 3 < stopped[0] < 3000, "at the same step"
    assert [path.parent.name for path in pair.output.glob("checkpoint-*/trainer_state.json")] == [f"checkpoint-{stopped[0]}"]

    records = pair.records()
    kinds = [type(record).__name__ for record in records]
    assert (kinds.count("RunRecord"), kinds.count("EndRecord")) == (1, 1), "rank 1 reports nothing"
    end = records[-1]
    assert isinstance(end, wire.EndRecord)
    assert (end.status, end.step, end.stop_ack) == ("stopped", stopped[0], "stop-1")
    assert [record.step for record in pair.steps()] == list(range(1, stopped[0] + 1))
    run = records[0]
    assert isinstance(run, wire.RunRecord)
    assert (run.config["group_size"], run.config["prompts_per_step"]) == (4, 8)
    for record in pair.steps():
        metrics, groups = record.metrics, record.groups
        assert groups is not None and len(groups.prompt) == 8, "the groups of both processes"
        # What TRL logs is of both processes; so are rewards and groups here, which it has gathered.
        assert metrics["reward_mean"] == pytest.approx(metrics["reward"], rel=1e-6)
        assert metrics["zero_variance_group_ratio"] == metrics["frac_reward_zero_std"]
        assert metrics["correct_ratio"] == pytest.approx(metrics["rewards/accuracy_reward/mean"], rel=1e-6)
        # Tokens are this process's: their lengths must not stand in the series of those of all.
        assert not {"response_length_mean", "response_length_max", "response_length_min", "truncated_ratio"} & metrics.keys()
        assert metrics["rollout_logprob_abs_diff_mean"] < 1e-5
        assert metrics["loss_mask_mismatch_tokens"] == 0

"""Per-sample dumps all the way: `tocsin-ship` reads them, the collector joins them with the framework's own log, rules fire."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit import dumps
from tests.kit.collecting import alerts, collecting, until
from tests.kit.services import PATIENCE
from tocsin.ship import cli

SICK = 21


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def ship(folder: Path, *arguments: str | Path) -> list[str]:
    """`tocsin-ship --once` into the spool of the folder; what it said."""
    said: list[str] = []
    given = [str(argument) for argument in arguments]
    status = cli.run([*given, "--once", "--spool", str(folder / "spool")], environ={}, say=said.append, clock=time.time)
    assert status == 0, said
    return said


def nemo(folder: Path, steps: Sequence[int], gap: float) -> None:
    for step in steps:
        made = dumps.make(step, prompts=6, tokens=40, gap=gap)
        dumps.write(folder / "logs" / "exp_001" / f"train_data_step{step}.jsonl", dumps.nemo_rows(made))


def test_a_perturbed_engine_in_nemo_dumps_stops_the_run(folder: Path) -> None:
    nemo(folder, range(1, SICK), gap=0.002)
    ship(folder, folder / "logs", "--run", "nemo", "--config", "group_size=4")
    with collecting(folder, "clock: event\n") as process:
        process.wait_for_step("nemo", SICK - 1)
        assert not [alert for alert in alerts(process) if alert[1] == "LogprobGapStop"]
        nemo(folder, range(SICK, SICK + 6), gap=0.05)
        ship(folder, folder / "logs", "--run", "nemo", "--config", "group_size=4")
        process.wait_for_step("nemo", SICK + 5)
        fired = until(lambda: [alert for alert in alerts(process) if alert[1] == "LogprobGapStop"], "LogprobGapStop")
        assert fired[0][:3] == ("nemo", "LogprobGapStop", "firing") and SICK < fired[0][3] <= SICK + 4
        metrics = process.get("/metrics").text
        assert 'tocsin_zero_variance_group_ratio{run="nemo",team=""} 0.33' in metrics
        assert "tocsin_rollout_logprob_abs_diff_p99" in metrics and "tocsin_ess_ratio{" in metrics


def test_a_finished_dump_is_replayed_from_the_spool(folder: Path) -> None:
    nemo(folder, range(1, SICK), gap=0.002)
    nemo(folder, range(SICK, SICK + 6), gap=0.05)
    ship(folder, folder / "logs", "--run", "nemo")
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "replay", "--json", str(folder / "spool")],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    stops = [event for event in events if event["alert"] == "LogprobGapStop" and event["state"] == "firing"]
    assert [event["run"] for event in stops] == ["nemo"] and SICK < stops[0]["step"] <= SICK + 4


def test_verl_rollouts_and_its_file_log_are_one_run(folder: Path) -> None:
    log = folder / "grpo-7b.jsonl"
    for step in range(1, 13):
        dumps.write(folder / "rollouts" / f"{step}.jsonl", dumps.verl_rows(dumps.make(step), step))
        row = {"step": step, "data": {"actor/grad_norm": 0.5, "critic/score/mean": 0.5}}
        dumps.write(log, [row], append=True)
        if step % 4 == 0:  # both followers run beside the trainer; the dump may be some steps behind
            ship(folder, log)
            ship(folder, folder / "rollouts", "--run", "grpo-7b")
    with collecting(folder, "clock: event\n") as process:
        process.wait_for_step("grpo-7b", 12)
        both = ('tocsin_grad_norm{run="grpo-7b",team=""} 0.5', 'tocsin_zero_variance_group_ratio{run="grpo-7b",team=""} 0.5')
        until(lambda: all(line in process.get("/metrics").text for line in both), "the log's values and the dump's")
        assert process.run("grpo-7b")["attempt"] == 1


def test_a_follower_that_is_killed_goes_on_where_it_was(folder: Path) -> None:
    """A real process, a writer beside it, SIGKILL in the middle: every step arrives, in order, as one attempt."""
    rollouts, spool = folder / "rollouts", folder / "spool"
    rollouts.mkdir()
    command = [sys.executable, "-m", "tocsin.ship.cli", str(rollouts), "--run", "r", "--spool", str(spool), "--poll", "0.05"]

    def shipped() -> list[int]:
        files = sorted((spool / "records").glob("*.jsonl"))
        records = [
            json.loads(line) for file in files for line in file.read_text().splitlines(keepends=True) if line[-1] == "\n"
        ]
        assert all(record.get("attempt", 1) == 1 for record in records)
        return [record["step"] for record in records if record["kind"] == "step"]

    def has(step: int) -> bool:
        return step in (0, *shipped())

    process = subprocess.Popen(command)
    try:
        for step in range(1, 11):
            dumps.write(rollouts / f"{step}.jsonl", dumps.verl_rows(dumps.make(step), step))
            until(functools.partial(has, step - 1), f"step {step - 1}")
            if step in (4, 5):
                process.kill()
                process.wait()
                process = subprocess.Popen(command)
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
    ship(folder, rollouts, "--run", "r")
    assert sorted(set(shipped())) == list(range(1, 11))
    firsts = list(dict.fromkeys(shipped()))
    assert firsts == sorted(firsts)


def test_what_is_shipped_is_what_the_collector_takes(folder: Path) -> None:
    """Every format's records pass the wire with groups and rollouts, under a run opened as that framework's."""
    made = dumps.make(5)
    dumps.write(folder / "completions.jsonl", [dumps.swift_row(made, 5)])
    dumps.write(folder / "oi" / "x_rollouts_000000.jsonl", dumps.open_instruct_rows(made, 5))
    dumps.write_areal(folder / "areal", 5, made)
    for path, framework in (("completions.jsonl", "ms_swift"), ("oi", "open_instruct"), ("areal", "areal")):
        spool = folder / framework
        ship(
            spool,
            folder / path,
            "--run",
            framework,
            "--config",
            "filter_zero_std_samples=false",
            "--config",
            "reward_weights=[1,0]",
        )
        (records,) = (spool / "spool" / "records").glob("*.jsonl")
        opening, step = map(json.loads, records.read_text().splitlines())
        assert opening["labels"] == {"framework": framework}
        assert step["step"] == 5 and step["groups"]["size"] == 4 and step["groups"]["success"] == [0, 4, 2, 2]
        assert (len(step.get("rollouts", [])) > 1) is (framework != "open_instruct")

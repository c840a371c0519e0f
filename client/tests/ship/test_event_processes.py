"""A trainer with its own writer, killed in the middle of a step and started again, and a tocsin-ship killed beside it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.services import until
from tocsin import wire
from tocsin.formats import read_records
from tocsin.wire import RunRecord, StepRecord

TRAINER = """
import signal, sys
{import_}
folder, first, last, value = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
writer = SummaryWriter(folder)
for step in range(first, last + 1):
    writer.add_scalar("train/policy_loss", value, step)
    if step == last:
        writer.flush()
        signal.raise_signal(signal.SIGKILL)
    writer.add_scalar("train/actor_lr", 1e-6, step)
    writer.flush()
"""
WRITERS = {
    "torch": "from torch.utils.tensorboard import SummaryWriter",
    "tensorboardX": "from tensorboardX import SummaryWriter",
}


def train(writer: str, folder: Path, first: int, last: int, value: float) -> None:
    """Train from one step to another, in which the process dies."""
    script = TRAINER.format(import_=WRITERS[writer])
    ended = subprocess.run([sys.executable, "-c", script, str(folder), str(first), str(last), str(value)], check=False)
    assert ended.returncode == -signal.SIGKILL


def sent(spool: Path) -> list[wire.Record]:
    files = sorted(spool.rglob("*.jsonl"))
    return [
        wire.decode(line).record
        for file in files
        for line in file.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


def losses(spool: Path) -> dict[tuple[int, int], float]:
    """(attempt, step) -> loss of what was sent."""
    return joined(sent(spool))


def on_disk(folder: Path) -> dict[tuple[int, int], float]:
    """(attempt, step) -> loss of what the trainers left."""
    return joined([place.record for place in read_records(folder) if place.record is not None])


def joined(records: list[wire.Record]) -> dict[tuple[int, int], float]:
    """As the collector joins the rows."""
    found: dict[tuple[int, int], float] = {}
    for record in records:
        if isinstance(record, StepRecord) and "train/policy_loss" in record.metrics:
            found[record.attempt, record.step] = wire.metric_value(record.metrics["train/policy_loss"]) or 0.0
    return found


@pytest.mark.parametrize("writer", list(WRITERS))
def test_a_killed_trainer_and_a_killed_follower(writer: str, tmp_path: Path) -> None:
    folder, spool = tmp_path / "tensorboard" / "grpo-7b", tmp_path / "spool"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "tocsin.ship.cli", str(folder), "--spool", str(spool), "--quiet"]
    follower = subprocess.Popen([*command, "--poll", "0.05"])
    try:
        train(writer, folder, 1, 6, 0.5)
        begun = on_disk(folder)  # how much a killed trainer leaves is its writer's business
        until(lambda: losses(spool).keys() >= begun.keys() - {max(begun)}, "every step that another one follows")
    finally:
        follower.kill()
        follower.wait()
    train(writer, folder, 2, 7, 0.25)
    assert subprocess.run([*command, "--once"], check=False).returncode == 0
    both = on_disk(folder)
    assert losses(spool) == both
    assert {attempt for attempt, _ in both} == {1, 2}
    assert all(value == (0.5 if attempt == 1 else 0.25) for (attempt, _), value in both.items())
    runs = {record.attempt: record for record in sent(spool) if isinstance(record, RunRecord)}
    assert {attempt: (record.run, record.labels["framework"]) for attempt, record in runs.items()} == {
        1: ("grpo-7b", "openrlhf"),
        2: ("grpo-7b", "openrlhf"),
    }

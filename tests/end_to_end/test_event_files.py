"""NeMo RL's event files, by their own writer, to an alert: replayed as they are, and shipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

START = 1790000000.0
ONSET = 40


def write(folder: Path, first: int, last: int, at: float) -> None:
    """A start of the trainer: steps of a minute, with a logprob gap from step ONSET on."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))
    for index, step in enumerate(range(first, last + 1)):
        gap = 0.4 if step >= ONSET else 0.001
        logged = {
            "train/token_mult_prob_error": 1.0 + gap,
            "train/grad_norm": 0.5,
            "train/reward": 0.4,
            "timing/train/generation": 20.0,
        }
        for key, value in logged.items():
            writer.add_scalar(key, value, step, at + 60.0 * index)
    writer.close()


def events(*arguments: str | Path) -> list[dict[str, Any]]:
    """What a replay raises."""
    command = [sys.executable, "-m", "service.cli", "replay", "--json", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_gap_in_event_files_is_found_whichever_way_they_come(tmp_path: Path) -> None:
    logs, spool = tmp_path / "grpo-7b", tmp_path / "spool"
    write(logs / "exp_001" / "tensorboard", 1, 30, START)
    write(logs / "exp_002" / "tensorboard", 21, 60, START + 3600.0)
    replayed = events(logs)
    fired = [event for event in replayed if event["alert"] == "LogprobGapStop" and event["state"] == "firing"]
    assert [event["run"] for event in fired] == ["grpo-7b"]
    assert ONSET <= fired[0]["step"] <= ONSET + 3
    ship = [sys.executable, "-m", "tocsin.ship.cli", str(logs), "--once", "--quiet", "--spool", str(spool)]
    subprocess.run(ship, check=True, timeout=300)
    assert events(spool / "records") == replayed

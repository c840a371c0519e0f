"""Every command of docs/frameworks/shipping.md, run as it is written (plus --once, so that it ends)."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import threading
from pathlib import Path

import pytest

from tests.kit import events
from tocsin.formats import FORMATS
from tocsin.ship import cli
from tocsin.ship.fetch import Address

PAGE = Path(__file__).parents[3] / "docs" / "frameworks" / "shipping.md"
COMMANDS = re.findall(r"^```sh\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
CONSOLE = "{'loss': 0.5, 'grad_norm': 1.0, 'epoch': 0.5}\n"
LOGS = {
    "runs/grpo-7b/train.log": CONSOLE.encode(),
    "output/checkpoint-10/trainer_state.json": json.dumps({"log_history": [{"loss": 1.0, "step": 10}]}).encode(),
    "checkpoints/my_project/grpo-7b.jsonl": b'{"step": 1, "data": {"actor/lr": 0.5}}\n',
    "logs/grpo-7b.log": b"(TaskRunner pid=1) step:1 - actor/lr:0.5\n",
    "output/v0-20260101/logging.jsonl": b'{"loss": 0.5, "global_step/max_steps": "1/9"}\n',
    "runs/grpo-7b/console.log": b"(PPOTrainer pid=1) Global step 1: {'policy_loss': 0.5}\n",
    "exports/wandb-grpo-7b.csv": b"_step,train/loss,train/reward\n1,0.5,0.5\n",
    "old/run-17.log.gz": gzip.compress(CONSOLE.encode()),
    "tensorboard_log/my_project/grpo-7b/events.out.tfevents.1": events.whole([(5.0, 1, {"actor/lr": 0.5})], 1.0),
    "kafka.json": b"{}",
}


def test_the_page_has_a_command_for_each_way() -> None:
    assert len(COMMANDS) == 11
    assert all(f"`{name}`" in PAGE.read_text(encoding="utf-8") for name in FORMATS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in LOGS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    program, *argv = shlex.split(command)
    assert program == "tocsin-ship"
    given = cli.parser().parse_args(argv)
    if given.kafka:
        assert cli.destination(given, {}) == "kafka://broker-1:9092,broker-2:9092/tocsin.records"
        return
    if any(isinstance(target, Address) for target in given.paths):
        return  # nothing answers there; test_prometheus runs such a command
    said: list[str] = []
    assert cli.run([*argv, "--once"], environ={}, say=said.append, clock=lambda: 5.0, stop=threading.Event()) == 0
    assert said[-1] == "sent 1 steps and 1 run and end records"


@pytest.mark.parametrize("example", re.findall(r"^      (tocsin-ship .*)$", cli.parser().format_help(), re.MULTILINE))
def test_an_example_of_the_help_is_a_command(example: str) -> None:
    assert cli.parser().parse_args(shlex.split(example)[1:]).paths

"""The pages on frameworks: their commands are commands, and their code runs as it is written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin import EndRecord, RunRecord, StepRecord, wire
from tocsin.ship import cli

PAGES = Path(__file__).parents[2] / "docs" / "frameworks"
COMMANDS = [
    (page.name, command)
    for page in sorted(PAGES.glob("*.md"))
    for block in re.findall(r"^```sh\n(.*?)\n```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for command in block.splitlines()
    if command.startswith("tocsin-ship ")
]


def code(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def records_of(spool: Path) -> list[wire.Record]:
    files = sorted(spool.rglob("*.jsonl"))
    return [wire.decode(line).record for file in files for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_is_one(page: str, command: str) -> None:
    given = cli.parser().parse_args(shlex.split(command)[1:])
    assert given.paths


WANDB = '''"""What the page relies on of W&B, and no more: init() sets log() of the module anew."""

def log(data, step=None):
    raise RuntimeError("call wandb.init() first")

def init(project):
    def log(data, step=None):
        print("wandb", step, sorted(data))
    globals()["log"] = log
    return "the run"
'''
TRAINER = """
import sys, wandb
assert wandb.init(project="x") == "the run"
for step in (1, 2):
    wandb.log({"training_step": step, "global_step": 64 * step, "optim/grad_norm": 0.5, "val/rho_hist": [1, 2]}, step=step)
wandb.log({"eval/scores": 0.25}, step=2)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("status", "end"), [(0, "finished"), (3, "failed")])
def test_the_recipe_for_open_instruct(tmp_path: Path, status: int, end: str) -> None:
    """A process as the page starts it, with a trainer that knows of nothing."""
    (recipe,) = code("open-instruct.md")
    for name, text in (("watched.py", recipe), ("wandb.py", WANDB), ("grpo_fast.py", TRAINER)):
        (tmp_path / name).write_text(text)
    environment = {"TOCSIN_SPOOL": str(tmp_path / "spool"), "PYTHONPATH": ":".join([str(tmp_path), *sys.path])}
    ran = subprocess.run(
        [sys.executable, "watched.py", "grpo_fast.py", str(status)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == status, ran.stderr
    assert len(ran.stdout.splitlines()) == 3, "W&B got every call"
    run, *steps, last = records_of(tmp_path / "spool")
    assert isinstance(run, RunRecord)
    assert run.config == {"group_size": 16}
    assert [(row.step, row.names) for row in steps if isinstance(row, StepRecord)] == [(n, "open_instruct") for n in (1, 2, 2)]
    assert isinstance(last, EndRecord)
    assert (last.status, last.step) == (end, 2)


def test_the_loop_of_the_python_page(tmp_path: Path) -> None:
    loop = code("python.md")[0]
    script = f"steps = 3\ntrain_step = lambda: {{'grad_norm': 0.5}}\n{loop}"
    environment = {"TOCSIN_SPOOL": str(tmp_path / "spool"), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    run, *steps, last = records_of(tmp_path / "spool")
    assert isinstance(run, RunRecord)
    assert (run.run, run.on_stop) == ("grpo-7b", "checkpoint_and_stop")
    assert [(row.step, row.metrics) for row in steps if isinstance(row, StepRecord)] == [
        (n, {"grad_norm": 0.5}) for n in range(3)
    ]
    assert isinstance(last, EndRecord)
    assert last.status == "finished"


def test_the_names_of_the_python_page_are_those_of_the_alias_table() -> None:
    text = (PAGES / "python.md").read_text(encoding="utf-8")
    listed = text.partition("There are: ")[2].partition(".")[0]
    data = (Path(__file__).parents[2] / "collector" / "data" / "aliases.yaml").read_text(encoding="utf-8")
    sources = re.search(r"^sources:\n((?:  .*\n)+)", data, re.MULTILINE)
    assert sources is not None
    assert re.findall(r"`(\w+)`", listed) == re.findall(r"^  (\w+):", sources[1], re.MULTILINE)

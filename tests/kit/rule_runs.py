"""Small rule folders, logs and git repositories for the tests of commands that replay."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from service.cli import tocsin
from tests.kit.pipelines import end, step

_RULES = """group: team
layer: 2
question: Is the gradient what I think it is?
vars:
  high: {{value: {high}, unit: "1", doc: "gradient norm"}}
rules:
  - alert: GradHigh
    id: grad-high
    expr: grad_norm > $high
    for: {hold} records
    severity: {severity}
    summary: "Gradient norm {{{{ value | sig(3) }}}}"
  - alert: LossHigh
    id: loss-high
    expr: policy_loss > 5
    severity: warning
    summary: "Loss {{{{ value | sig(3) }}}}"
"""


def rules(folder: Path, *, high: float = 10, hold: int = 1, severity: str = "page", extra: str = "") -> Path:
    """A folder with one rule file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "team.yaml").write_text(_RULES.format(high=high, hold=hold, severity=severity) + extra, encoding="utf-8")
    return folder


def log(path: Path, grad_norm: Sequence[float], *, loss: float = 1.0, ended: bool = False) -> Path:
    """A log of the canonical format; its run is called like the file."""
    run = path.name.partition(".")[0]
    rows = [step(run, number, grad_norm=value, policy_loss=loss) for number, value in enumerate(grad_norm, start=1)]
    if ended:
        rows.append(end(run, len(grad_norm)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(rows) + b"\n")
    return path


def call(*arguments: object) -> Result:
    """One command of `tocsin`."""
    return CliRunner().invoke(tocsin, [str(argument) for argument in arguments])


def replayed(rule_folder: Path, runs: Path) -> list[tuple[str, str, str, int, str]]:
    """(run, alert, state, step, severity) of every event, by the command `tocsin replay`."""
    done = call("replay", "--json", "--no-shipped", "--rules", rule_folder, runs)
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [(line["run"], line["alert"], line["state"], line["step"], line["severity"]) for line in lines]


def git(folder: Path, *arguments: str) -> str:
    """One call of git that knows nothing of the settings of whoever runs the tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True, env=environ)
    return done.stdout.strip()


def commit(folder: Path, message: str) -> None:
    """Everything in the folder, committed."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)

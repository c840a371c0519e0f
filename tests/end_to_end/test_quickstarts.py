"""The quick starts, as written: their code runs, their commands work, what they promise happens, their links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    """Every fenced block of a page as (language, text)."""
    parts = re.split(r"^```(.*)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(parts[number], parts[number + 1].lstrip("\n")) for number in range(1, len(parts), 4)]


def block(page: str, language: str) -> str:
    """The first block of a language."""
    return next(text for found, text in blocks(page) if found == language)


def commands(page: str, program: str) -> list[str]:
    """Every line of the page's plain blocks that calls a program."""
    lines = [line for language, text in blocks(page) if not language for line in text.splitlines()]
    return [line.split(" #")[0].strip() for line in lines if line.startswith(program + " ")]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    program = Path(sys.executable).with_name(words[0])
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return subprocess.run(
        [str(program), *words[1:]], cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=environ
    )


def test_the_trainers_owner(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(block("quickstart-trainer.md", "python"), encoding="utf-8")
    done = run("python job.py", tmp_path)
    assert done.returncode == 0, done.stderr
    replay = next(line for line in commands("quickstart-trainer.md", "tocsin") if "tocsin-spool" in line)
    answer = run(f"{replay} --json", tmp_path)
    assert answer.returncode == 0, answer.stderr
    events = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(event["alert"], event["step"]) for event in events if event["state"] == "firing"] == [("LogprobGapStop", 27)]


def test_a_log_that_exists(tmp_path: Path) -> None:
    (tmp_path / "trainer.log").write_text(
        "".join(f"step:{step} - actor/grad_norm:0.5 - critic/score/mean:0.4\n" for step in range(1, 6)), encoding="utf-8"
    )
    assert run(commands("quickstart-trainer.md", "tocsin")[0], tmp_path).returncode == 0
    (ship,) = [line for line in commands("quickstart-trainer.md", "tocsin-ship")]
    done = run(ship.replace("/shared/tocsin", str(tmp_path / "spool")), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "5 steps" in done.stderr
    assert list((tmp_path / "spool" / "records").glob("*.jsonl"))


def test_the_rule_author(tmp_path: Path) -> None:
    (tmp_path / "my-rules" / "tests").mkdir(parents=True)
    written, tested = [text for language, text in blocks("quickstart-rules.md") if language == "yaml"]
    (tmp_path / "my-rules" / "entropy.yaml").write_text(written, encoding="utf-8")
    (tmp_path / "my-rules" / "tests" / "entropy.yaml").write_text(tested, encoding="utf-8")
    (tmp_path / "service").symlink_to(ROOT / "service")
    listed = commands("quickstart-rules.md", "tocsin")
    assert len(listed) == 4
    for command in listed:
        done = run(command, tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    events = [json.loads(line) for line in run(listed[-1], tmp_path).stdout.splitlines()]
    assert {event["alert"] for event in events} == {"EntropyHalved"}
    file = tmp_path / "my-rules" / "entropy.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("policy_entropy", "policy_entopy"), encoding="utf-8")
    refused = run(listed[0], tmp_path)
    assert refused.returncode == 1
    assert "entropy.yaml:9:16" in refused.stdout + refused.stderr
    assert "did you mean 'policy_entropy'" in refused.stdout + refused.stderr

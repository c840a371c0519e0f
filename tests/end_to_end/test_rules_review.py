"""docs/rules/review.md and the workflow beside it, executed: what the page promises is what the commands say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.test_quickstarts import ROOT, blocks, commands, run
from tests.kit.rule_runs import commit, git, rules

_PAGE = "rules/review.md"
_WORKFLOW = ROOT / "docs" / "rules" / "ci" / "rules.yml"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The repository of the page, with the rule and its tests on main and the edit in the working tree."""
    folder = tmp_path / "repository"
    (folder / "my-rules" / "tests").mkdir(parents=True)
    rule, tests = (text for language, text in blocks(_PAGE) if language == "yaml")
    (folder / "my-rules" / "gradient.yaml").write_text(rule, encoding="utf-8")
    (folder / "my-rules" / "tests" / "gradient.yaml").write_text(tests, encoding="utf-8")
    git(folder, "init", "-q")
    commit(folder, "the rule")
    (folder / "runs").symlink_to(ROOT / "service" / "demo" / "data")
    (folder / "my-rules" / "gradient.yaml").write_text(rule.replace("value: 20", "value: 3"), encoding="utf-8")
    return folder


def test_the_page_from_edit_to_gate(repository: Path) -> None:
    listed = commands(_PAGE, "tocsin")
    assert [command.split()[2] for command in listed] == ["check", "test", "diff", "explain", "diff"]
    check, test, diff, explain, gate = (run(command, repository) for command in listed)
    assert check.returncode == 0, check.stdout + check.stderr
    assert test.returncode == 0, test.stdout + test.stderr
    assert diff.returncode == 0, diff.stderr
    (promised,) = [text for language, text in blocks(_PAGE) if language == "markdown"]
    table = [line for line in promised.splitlines() if line.startswith("|")]
    assert [line for line in diff.stdout.splitlines() if line in table] == table
    assert diff.stdout.startswith(promised.split("\n\n| run")[0])
    assert "- $times of my-gradient: 20 -\\> 3" in diff.stdout
    assert explain.stdout.startswith("GradNormFar on tiny-lr_blowup-s1 at step 121 ")
    assert "my-rules/gradient.yaml:5:18" in explain.stdout
    assert gate.returncode == 1
    assert gate.stderr == "tocsin: over the page budget: 1 page more than before, 0 allowed\n"


# ---- the workflow


def _steps() -> dict[str, dict[str, Any]]:
    workflow = yaml.safe_load(_WORKFLOW.read_text(encoding="utf-8"))
    return {step["name"]: step for step in workflow["jobs"]["review"]["steps"] if "run" in step}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """`tocsin`, and a `gh` that writes down how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "tocsin").symlink_to(Path(sys.executable).with_name("tocsin"))
    (folder / "gh").write_text('#!/bin/sh\nprintf "%s\\n" "$*" >> gh-calls\n')
    (folder / "gh").chmod(0o755)
    return folder


def _run(step: dict[str, Any], repository: Path, programs: Path, **environ: str) -> int:
    """A step as the runner does it: bash with -e, the workflow's environment, the step's own variables given."""
    workflow = yaml.safe_load(_WORKFLOW.read_text(encoding="utf-8"))
    everything = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TOCSIN_", "GIT_"))},
        **workflow["env"],
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(repository / "summary"),
        "GITHUB_OUTPUT": str(repository / "output"),
        **environ,
    }
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(script, cwd=repository, env=everything, check=False, timeout=300, capture_output=True).returncode


@pytest.mark.parametrize(("allowed", "status"), [("0", 1), ("1", 0)])
def test_the_workflow_posts_the_table_and_keeps_the_gate(repository: Path, programs: Path, allowed: str, status: int) -> None:
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "edit")
    git(repository, "add", "my-rules")
    git(repository, "commit", "-q", "-m", "the edit")
    steps = _steps()
    assert list(steps) == ["install", "check", "test", "diff", "comment", "gate"]
    for name in ("check", "test"):
        assert _run(steps[name], repository, programs) == 0
    assert _run(steps["diff"], repository, programs, BASE=base, NEW_PAGES=allowed) == 0, "the gate comes after the comment"
    assert "| tiny-lr\\_blowup-s1 | GradNormFar | new |" in (repository / "summary").read_text()
    assert (repository / "output").read_text() == f"status={status}\n"
    assert _run(steps["comment"], repository, programs, PULL_REQUEST="7") == 0
    assert (repository / "gh-calls").read_text() == "pr comment 7 --edit-last --create-if-none --body-file diff.md\n"
    assert (repository / "diff.md").read_text() == (repository / "summary").read_text()
    assert _run(steps["gate"], repository, programs, STATUS=str(status)) == status


def test_rules_that_do_not_load_close_the_gate(repository: Path, programs: Path) -> None:
    base = git(repository, "rev-parse", "HEAD")
    rules(repository / "my-rules", extra="  - nonsense\n")
    git(repository, "add", "my-rules")
    git(repository, "commit", "-q", "-m", "a fault")
    steps = _steps()
    assert _run(steps["check"], repository, programs) == 1
    assert _run(steps["diff"], repository, programs, BASE=base) == 0
    assert (repository / "output").read_text() == "status=2\n"
    assert _run(steps["comment"], repository, programs, PULL_REQUEST="7") == 0
    assert not (repository / "gh-calls").exists(), "there is no table to post"


def test_no_words_of_a_stranger_reach_a_shell() -> None:
    """What a pull request brings is passed as a variable, never pasted into a script."""
    for step in _steps().values():
        assert "${{" not in step["run"]
    text = _WORKFLOW.read_text(encoding="utf-8")
    assert "://" not in text
    assert "pull_request_target" not in text, "code of a fork never runs with a token that writes"

"""The hook for the pre-commit framework: its entry is run as the framework runs it, on a folder with a good and a bad file."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "rules"


def hook() -> dict[str, Any]:
    (found,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def run(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """The entry with the files that changed behind it, in the repository's root, with the commands of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [*shlex.split(hook()["entry"]), *files]
    return subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


def team(folder: Path, kind: str) -> None:
    rules = folder / "my-rules"
    rules.mkdir()
    text = (SAMPLES / kind / "never-ratio.yaml").read_text(encoding="utf-8")
    (rules / "rules.yaml").write_text(text, encoding="utf-8")
    other = text.replace("group: sample", "group: other").replace("High", "Other").replace("id: high", "id: other")
    other = re.sub(r"expr: .*", "expr: firing(High) and reward_mean < 0", other)
    (rules / "other.yaml").write_text(other, encoding="utf-8")


def test_a_good_folder_passes_also_where_the_changed_file_needs_its_neighbour(tmp_path: Path) -> None:
    team(tmp_path, "good")
    done = run(tmp_path, "my-rules/other.yaml")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_bad_one_stops_the_commit(tmp_path: Path) -> None:
    team(tmp_path, "bad")
    done = run(tmp_path, "my-rules/rules.yaml", "my-rules/other.yaml")
    assert done.returncode == 1
    assert done.stdout.startswith("my-rules/rules.yaml:7:11: error: ess_ratio > 1.2 is never true")
    assert done.stdout.count("\n") == 1, "the folder is checked once, however many files it is named by"


def test_warnings_stop_it_too(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    text = (SAMPLES / "bad" / "page-at-once.yaml").read_text(encoding="utf-8")
    (tmp_path / "rules" / "rules.yaml").write_text(text, encoding="utf-8")
    assert run(tmp_path, "rules/rules.yaml").returncode == 1


def test_which_files_it_is_for() -> None:
    files = re.compile(hook()["files"])
    assert hook()["types"] == ["yaml"] and hook()["language"] == "system"
    assert all(files.search(name) for name in ("rules/a.yaml", "my-rules/entropy.yaml", "alerting/team.rules/x.yaml"))
    assert not any(
        files.search(name) for name in ("my-rules/tests/entropy.yaml", "alerts.yaml", "my-rules/labels.yml", "rules.yaml")
    )


def test_the_samples_of_the_page_name_it() -> None:
    page = (ROOT / "docs" / "rules" / "checks.md").read_text(encoding="utf-8")
    first, second = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "hooks:" in block)
    assert first["repos"][0].keys() == {"repo", "rev", "hooks"}
    for used in (*first["repos"][0]["hooks"], *second["hooks"]):
        assert used["id"] == hook()["id"]

"""`tocsin dashboards build`, `check` and `export`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grafana_dashboards.parts import UIDS
from service.cli import tocsin
from service.commands.dashboards_build import GENERATED
from tests.kit.panels import committed


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tocsin, ["dashboards", *arguments], catch_exceptions=False)


def test_build_writes_what_is_committed_and_says_when_nothing_changes(tmp_path: Path) -> None:
    first = run("build", "--out", str(tmp_path))
    assert first.exit_code == 0 and first.output.count("written") == len(UIDS)
    for uid in UIDS:
        assert (tmp_path / f"{uid}.json").read_bytes() == (GENERATED / f"{uid}.json").read_bytes()
    assert run("build", "--out", str(tmp_path)).output.count("unchanged") == len(UIDS)


def test_build_draws_the_lines_of_your_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "ours.yaml").write_text("group: probability-consistency\nvars:\n  gap_stop: {value: 0.0123}\n", encoding="utf-8")
    assert run("build", "--rules", str(rules), "--out", str(tmp_path)).exit_code == 0
    made = json.loads((tmp_path / "tocsin-run.json").read_text(encoding="utf-8"))
    panel = next(each for each in made["panels"] if each["title"].startswith("Logprob gap"))
    assert [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]] == [None, 0.0123]


def test_rules_with_faults_are_told_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("group: [\n", encoding="utf-8")
    result = run("build", "--rules", str(tmp_path / "ours.yaml"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2 and "ours.yaml:" in result.output and not (tmp_path / "out").exists()


def test_check_of_what_is_committed() -> None:
    result = run("check")
    assert (result.exit_code, result.output) == (0, "4 dashboards, no faults\n")


def test_check_finds_faults_and_says_where(tmp_path: Path) -> None:
    made = committed()["tocsin-run"]
    made["panels"][4]["targets"][0]["expr"] = "max(tocsin_nope"
    made["panels"][2]["id"] = made["panels"][3]["id"]
    (tmp_path / "tocsin-run.json").write_text(json.dumps(made), encoding="utf-8")
    result = run("check", str(tmp_path))
    assert result.exit_code == 1 and result.output.endswith("1 dashboard, 2 faults\n")
    assert f"tocsin-run: {made['panels'][4]['title']}: this is no PromQL" in result.output and "[duplicate-id]" in result.output


@pytest.mark.parametrize(("text", "why"), [("{", "is no JSON"), (None, "no dashboard (*.json)")])
def test_check_of_what_cannot_be_read(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "tocsin-run.json").write_text(text, encoding="utf-8")
    result = run("check", str(tmp_path))
    assert result.exit_code == 2 and why in result.output


def test_export_sets_the_addresses(tmp_path: Path) -> None:
    result = run("export", str(tmp_path / "out"), "--runbooks", "https://wiki.example/runbooks/")
    assert result.exit_code == 0
    for uid in UIDS:
        made = json.loads((tmp_path / "out" / f"{uid}.json").read_text(encoding="utf-8"))
        constants = {each["name"]: each["query"] for each in made["templating"]["list"] if each["type"] == "constant"}
        assert constants["runbooks"] == "https://wiki.example/runbooks"
    assert run("check", str(tmp_path / "out")).exit_code == 0


def test_export_of_your_own_build(tmp_path: Path) -> None:
    made = committed()
    made["tocsin-run"]["description"] += " Ours."
    (tmp_path / "built").mkdir()
    for uid, each in made.items():
        (tmp_path / "built" / f"{uid}.json").write_text(json.dumps(each), encoding="utf-8")
    address = "https://tocsin.example"
    result = run("export", str(tmp_path / "out"), "--from", str(tmp_path / "built"), "--collector", address)
    assert result.exit_code == 0
    text = (tmp_path / "out" / "tocsin-run.json").read_text(encoding="utf-8")
    assert json.loads(text)["description"].endswith(" Ours.") and address in text


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    result = run("export", str(tmp_path), "--collector", "javascript:alert(1)")
    assert result.exit_code == 2 and "--collector: not an address" in result.output


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("grafana_foundation_sdk", ["build", "--out", "out"], "tocsin-server[dashboards]"),
        ("promql_parser", ["check"], "tocsin-server[dashboards]"),
        ("grafana_api", ["publish", "--url", "http://127.0.0.1:1"], "tocsin-server[grafana]"),
    ],
)
def test_without_the_extra_it_says_which_one(tmp_path: Path, package: str, arguments: list[str], extra: str) -> None:
    """In a process of its own, in which that package is not there."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"sys.argv = ['tocsin', 'dashboards', *{arguments!r}]\n"
        "from service.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2 and extra in done.stderr and "Traceback" not in done.stderr


def test_what_ships_needs_none_of_them(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('grafana_foundation_sdk', 'promql_parser', 'grafana_api'): sys.modules[name] = None\n"
        "sys.argv = ['tocsin', 'dashboards', 'export', 'out']\n"
        "from service.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.stem for path in (tmp_path / "out").iterdir()) == sorted(UIDS)

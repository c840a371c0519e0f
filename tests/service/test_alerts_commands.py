"""`tocsin alerts check` and `route-test`: offline, from the files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli import tocsin

ALERTS = """
receivers:
  oncall: {kind: pagerduty, routing_key: env:NOBODY_HAS_THIS_KEY}
  chat: {kind: console}
default: chat
quiet_hours: [{from: "22:00", to: "07:00", zone: UTC}]
routes:
  - match: {severity: [page, stop]}
    receiver: oncall
    continue: true
  - match: {labels: {team: vision}}
    routes:
      - match: {layer: 3}
        receiver: []
maintenance:
  - {name: drain, match: {run: "a-*"}, owner: ops, reason: nodes, from: "2026-12-01 10:00", to: "2026-12-01 12:00", zone: UTC}
silences: silences.yaml
"""
SILENCES = """
silences:
  - {id: known, match: {alert: NanLoss}, owner: ada, reason: ablation, expires: "2026-12-04T12:00Z"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "silences.yaml").write_text(SILENCES.replace("2026", "2999"))
    (tmp_path / "alerts.yaml").write_text(ALERTS)
    return tmp_path / "alerts.yaml"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tocsin, ["alerts", *map(str, arguments)])


def test_check_needs_no_secret_unless_told(file: Path) -> None:
    done = run("check", file)
    assert (done.exit_code, done.stdout) == (0, "no fault; 2 receivers, 1 silence and 1 maintenance window\n")
    done = run("check", "--secrets", file)
    assert done.exit_code == 1
    assert "alerts.yaml:3:11: receiver 'oncall': routing_key: env:NOBODY_HAS_THIS_KEY: no such environment" in done.stdout


def test_an_expired_silence_is_a_fault_of_the_check(file: Path) -> None:
    (file.parent / "silences.yaml").write_text(SILENCES.replace("2026", "2020"))
    done = run("check", file)
    assert done.exit_code == 1
    assert "silences.yaml:3:5: silence 'known' of ada has expired" in done.stdout
    found = json.loads(run("check", "--format", "json", file).stdout)
    assert [(fault["line"], fault["column"]) for fault in found["errors"]] == [(3, 5)]
    assert run("route-test", file).exit_code == 0, "a collector starts with it"


def test_check_shows_every_fault(file: Path) -> None:
    file.write_text(ALERTS.replace("default: chat", "default: chatt").replace("zone: UTC}]", "zone: UTX}]"))
    done = run("check", file)
    assert done.exit_code == 1 and "no time zone is named 'UTX'" in done.stdout
    file.write_text(ALERTS.replace("default: chat", "default: chatt"))
    assert "did you mean 'chat'" in run("check", file).stdout


def test_the_way_through_the_tree(file: Path) -> None:
    done = run("route-test", file, "--severity", "page", "--label", "team=vision", "--at", "2026-12-01T23:00Z")
    assert done.stdout.splitlines() == [
        f"route    default > {file}:8: oncall",
        f"route    default > {file}:11: chat",
        "quiet    22:00-07:00 UTC",
        "told now oncall, chat",
    ]
    done = run("route-test", file, "--severity", "warning", "--layer", "3", "--label", "team=vision")
    assert done.stdout.splitlines()[0] == f"route    default > {file}:11 > {file}:13: nobody"


def test_what_mutes_it(file: Path) -> None:
    night = ("--at", "2026-12-01T23:00Z")
    done = run("route-test", file, "--severity", "warning", *night)
    assert "muted    by quiet hours until 2026-12-02 07:00 UTC\ntold now nobody" in done.stdout
    found = json.loads(
        run("route-test", file, "--run", "a-1", "--alert", "NanLoss", "--json", "--at", "2026-12-01T10:00Z").stdout
    )
    assert [mute["by"] for mute in found["muted"]] == ["silence known", "maintenance drain"]
    assert (found["receivers"], found["told"]) == (["oncall"], [])
    assert "info is sent to nobody" in run("route-test", file, "--severity", "info").stdout


def test_what_is_expected(file: Path) -> None:
    assert run("route-test", file, "--severity", "stop", "--expect", "oncall").exit_code == 0
    done = run("route-test", file, "--severity", "stop", "--expect", "chat")
    assert (done.exit_code, done.stderr) == (1, "tocsin: expected chat; told now: oncall\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--at", "tomorrow"], "is no moment"),
        (["--label", "team"], "write NAME=VALUE"),
        (["--expect", "nobody"], "no receiver of this name"),
    ],
)
def test_wrong_usage(file: Path, arguments: list[str], why: str) -> None:
    done = run("route-test", file, *arguments)
    assert done.exit_code == 2 and why in done.stderr

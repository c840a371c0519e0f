"""`tocsin alerts check` and `route-test`: offline, from the files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli import tocsin
from tests.kit.pipelines import step

NIGHT = 1_796_166_000.0
"""2026-12-01 23:00 UTC, in the quiet hours below."""

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


def test_whether_the_job_is_asked_to_stop(file: Path) -> None:
    """Whom routes name is of no account for that; what mutes the alert is."""
    day, asks = ("--at", "2026-12-01T12:00Z"), "asks     the job to pause or stop, if its run opted in (on_stop)"
    assert asks in run("route-test", file, "--severity", "stop", *day).stdout.splitlines()
    assert "asks " not in run("route-test", file, "--severity", "page", *day).stdout
    muted = run("route-test", file, "--severity", "stop", "--run", "a-1", "--at", "2026-12-01T10:00Z")
    assert "asks   " not in muted.stdout and "note     a stop that is muted asks the job nothing" in muted.stdout
    nobody = file.with_name("nobody.yaml")
    nobody.write_text("receivers: {own: {kind: console}}\ndefault: []\n")
    told = run("route-test", nobody, "--severity", "stop").stdout.splitlines()
    assert told[-1] == "told now nobody" and asks in told
    assert json.loads(run("route-test", nobody, "--severity", "stop", "--json").stdout)["asks_to_stop"] is True


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


LOG = [
    *(step("grpo", number, time=NIGHT + 60.0 * number, grad_norm=1.0) for number in range(1, 4)),
    *(step("grpo", number, time=NIGHT + 60.0 * number, grad_norm=20.0) for number in range(4, 7)),
    step("grpo", 7, time=NIGHT + 420.0, grad_norm=1.0, reward_mean=float("nan")),
]
LOG_RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: High, id: high, expr: grad_norm > 10, severity: page, summary: "High"}
  - {alert: Lifted, id: lifted, expr: grad_norm > 15, for: 2 records, severity: warning, summary: "Lifted"}
  - {alert: Seen, id: seen, expr: grad_norm > 11, severity: info, summary: "Seen"}
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "r.yaml").write_text(LOG_RULES)
    (tmp_path / "grpo.jsonl").write_bytes(b"\n".join(LOG) + b"\n")
    return tmp_path / "grpo.jsonl"


def test_the_alerts_of_a_recorded_log(file: Path, log: Path) -> None:
    arguments = ("--log", log, "--no-shipped", "--rules", log.parent / "rules")
    done = run("route-test", file, *arguments, "--label", "team=vision", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["alerts"]
    assert [(entry["step"], entry["alert"], entry["told"]) for entry in found] == [
        (4, "High", ["oncall", "chat"]),
        (4, "Seen", []),
        (5, "Lifted", []),
    ]
    assert [entry["note"] for entry in found] == ["", "severity info is sent to nobody", ""]
    assert [mute["by"] for mute in found[2]["muted"]] == ["quiet hours"], "each alert at its own time, which is at night"
    by_day = run("route-test", file, *arguments, "--at", "2026-12-01T12:00Z", "--label", "team=vision", "--expect", "chat")
    assert by_day.exit_code == 1 and "told now: oncall, chat" in by_day.stderr
    lifted = next(line for line in by_day.stdout.splitlines() if "Lifted" in line)
    assert lifted.split("│")[2].strip() == "warning" and lifted.split("│")[6].strip() == "chat"
    renamed = json.loads(run("route-test", file, *arguments, "--run", "a-1", "--at", "2026-12-01T10:30Z", "--json").stdout)
    assert {mute["by"] for entry in renamed["alerts"] for mute in entry["muted"]} == {"maintenance drain"}


def test_a_recorded_log_says_where_the_job_would_have_been_asked(file: Path, log: Path) -> None:
    rules = log.parent / "rules" / "r.yaml"
    rules.write_text(LOG_RULES.replace("severity: page", "severity: stop"))
    arguments = ("--log", log, "--no-shipped", "--rules", log.parent / "rules")
    found = json.loads(run("route-test", file, *arguments, "--json").stdout)["alerts"]
    assert {entry["alert"]: entry["asks_to_stop"] for entry in found} == {"High": True, "Seen": False, "Lifted": False}
    (high,) = [line for line in run("route-test", file, *arguments).stdout.splitlines() if "High" in line]
    assert "asks the job" in high
    muted = json.loads(run("route-test", file, *arguments, "--run", "a-1", "--at", "2026-12-01T10:30Z", "--json").stdout)
    assert not any(entry["asks_to_stop"] for entry in muted["alerts"])


def test_a_log_without_alerts_and_what_is_no_log(file: Path, log: Path) -> None:
    (log.parent / "good.jsonl").write_bytes(b"\n".join(LOG[:3]) + b"\n")
    rules = ("--no-shipped", "--rules", log.parent / "rules")
    done = run("route-test", file, "--log", log.parent / "good.jsonl", *rules)
    assert (done.exit_code, done.stdout) == (0, "nothing would have fired\n")
    for wrong, why in (("nowhere.jsonl", "no such file"), (".", "2 logs in it; name one"), ("alerts.yaml", "alerts.yaml")):
        done = run("route-test", file, "--log", log.parent / wrong, *rules)
        assert done.exit_code == 2 and why in done.stderr, wrong


def test_who_is_told_later_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"
    file.write_text(
        "receivers: {chat: {kind: console}, boss: {kind: console}}\n"
        "default: chat\ngroup_wait: 2m\nescalate: {after: 15m, to: boss}\n",
        encoding="utf-8",
    )
    later = "later    after 15 min without acknowledgement: boss"
    done = run("route-test", file, "--severity", "warning")
    assert done.stdout.splitlines()[1:] == ["waits    2 min for others of its incident: chat", later, "told now chat"]
    assert run("route-test", file, "--severity", "page").stdout.splitlines()[1:] == [later, "told now chat"]
    found = json.loads(run("route-test", file, "--severity", "warning", "--json").stdout)
    assert (found["waits"], found["escalates"]) == ({"chat": 120.0}, [{"after": 900.0, "to": ["boss"]}])
    assert "later" not in run("route-test", file, "--severity", "info").stdout, "nobody is told first"
    file.write_text(file.read_text(encoding="utf-8").replace("to: boss", "to: [chat, boss]"), encoding="utf-8")
    assert later in run("route-test", file).stdout.splitlines(), "who is told now is not told later"
    file.write_text(file.read_text(encoding="utf-8").replace("to: [chat, boss]", "to: chat"), encoding="utf-8")
    assert "later" not in run("route-test", file).stdout

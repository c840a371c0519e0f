"""`tocsin rules diff` shows exactly the alerts that an edit changes: compared by hand with two full replays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from service import bundles
from service.demo.runs import RUNS, messages
from service.diff_report import MOST_ROWS
from service.recordings import Recording
from service.replay import replay, replay_with
from service.tables import markdown_cell
from tests.kit.rule_runs import call, commit, git, log, replayed, rules

LOW, HIGH = [1.0] * 20, [1.0] * 9 + [20.0] * 4 + [1.0] * 7


def _diff(*arguments: object) -> dict[str, Any]:
    done = call("rules", "diff", *arguments, "--no-shipped", "--format", "json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _changes(document: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    return [(each["run"], each["alert"], each["change"]) for each in document["alerts"]]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    log(tmp_path / "runs" / "calm.jsonl", LOW)
    log(tmp_path / "runs" / "wild.jsonl", HIGH)
    log(tmp_path / "runs" / "drift.jsonl", [float(number) for number in range(1, 21)], loss=6.0)
    return tmp_path / "runs"


def _by_alert(lines: Iterable[tuple[str, str, str, int, str]]) -> dict[tuple[str, str], list[tuple[str, int, str]]]:
    table: dict[tuple[str, str], list[tuple[str, int, str]]] = defaultdict(list)
    for run, alert, state, step, severity in lines:
        table[run, alert].append((state, step, severity))
    return table


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ({}, {"high": 12}),
        ({}, {"high": 30}),
        ({"high": 30}, {}),
        ({}, {"high": 0.5}),
        ({}, {"hold": 3}),
        ({}, {"severity": "warning"}),
        ({}, {}),
    ],
    ids=str,
)
def test_an_edit_shows_exactly_the_alerts_that_change(
    runs: Path, tmp_path: Path, base: dict[str, Any], head: dict[str, Any]
) -> None:
    one, other = rules(tmp_path / "base", **base), rules(tmp_path / "head", **head)
    before, after = _by_alert(replayed(one, runs)), _by_alert(replayed(other, runs))
    expected = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    document = _diff(one, other, "--runs", runs)
    assert sorted((run, alert) for run, alert, _ in _changes(document)) == expected
    for each in document["alerts"]:
        for side, lines in (("before", before), ("after", after)):
            told = each[side]
            events = lines.get((each["run"], each["alert"]), [])
            assert (told is None) == (not events)
            if told is not None:
                assert events[0] == ("firing", told["step"], told["severity"])
                assert [step for state, step, _ in events if state == "resolved"] == (
                    [] if told["end_step"] is None else [told["end_step"]]
                )
    total = document["total"]
    for folder, count in ((one, total["pages_before"]), (other, total["pages_after"])):
        assert sum(state == "firing" and severity == "page" for *_, state, _, severity in replayed(folder, runs)) == count
    assert total["run_days"] == pytest.approx(3 * 19 / 1440, abs=1e-6)


def test_each_kind_of_change_has_its_word(runs: Path, tmp_path: Path) -> None:
    base = rules(tmp_path / "base")
    assert _changes(_diff(base, rules(tmp_path / "a", high=12), "--runs", runs)) == [("drift", "GradHigh", ["later"])]
    assert _changes(_diff(base, rules(tmp_path / "b", high=8), "--runs", runs)) == [("drift", "GradHigh", ["earlier"])]
    assert _changes(_diff(base, rules(tmp_path / "c", severity="stop"), "--runs", runs)) == [
        ("drift", "GradHigh", ["severity"]),
        ("wild", "GradHigh", ["severity"]),
    ]
    assert _changes(_diff(base, rules(tmp_path / "d", high=19.5), "--runs", runs / "wild.jsonl")) == []
    assert _changes(_diff(base, rules(tmp_path / "e", high=25), "--runs", runs / "wild.jsonl")) == [
        ("wild", "GradHigh", ["gone"])
    ]
    keep = rules(tmp_path / "f")
    file = keep / "team.yaml"
    file.write_text(file.read_text().replace("    for: 1 records\n", "    for: 1 records\n    keep: 3 records\n"))
    assert _changes(_diff(base, keep, "--runs", runs / "wild.jsonl")) == [("wild", "GradHigh", ["ends later"])]


def test_an_alert_that_is_explained_now(runs: Path, tmp_path: Path) -> None:
    cause = """  - alert: Cause
    id: cause
    expr: grad_norm > 15
    severity: page
    summary: "The cause"
"""
    effect = tmp_path / "effect.yaml"
    effect.write_text(
        "group: late\nlayer: 5\nquestion: q?\nrules:\n"
        "  - {alert: Effect, id: effect, expr: grad_norm > 15, severity: page, summary: s}\n"
    )
    base, head = rules(tmp_path / "base", high=99), rules(tmp_path / "head", high=99, extra=cause)
    for folder in (base, head):
        (folder / "effect.yaml").write_text(effect.read_text())
    document = _diff(base, head, "--runs", runs / "wild.jsonl")
    assert _changes(document) == [("wild", "Cause", ["new"]), ("wild", "Effect", ["explained"])]
    assert document["alerts"][1]["after"]["explained_by"] == "Cause"
    assert document["rules"] == [{"name": "Cause", "what": "added"}]
    assert (document["total"]["pages_before"], document["total"]["pages_after"]) == (1, 1)


def test_two_episodes_are_compared_each_with_its_own(tmp_path: Path) -> None:
    values = [1.0] * 5 + [12.0] * 2 + [1.0] * 5 + [20.0] * 2 + [1.0] * 5
    path = log(tmp_path / "twice.jsonl", values)
    document = _diff(rules(tmp_path / "base"), rules(tmp_path / "head", high=15), "--runs", path)
    (change,) = document["alerts"]
    assert (change["change"], change["before"]["step"], change["after"]) == (["gone"], 6, None)
    assert document["total"]["unchanged"] == 1


def test_the_demo_runs_under_the_shipped_packs_and_an_edit(tmp_path: Path) -> None:
    for run in RUNS:
        if run.file in ("healthy", "lr_blowup"):
            (tmp_path / "runs").mkdir(exist_ok=True)
            (tmp_path / "runs" / f"{run.file}.jsonl").write_bytes(b"\n".join(message.value for message in messages(run)))
    base = rules(tmp_path / "base", high=1e6, severity="warning")  # a page would explain later layers
    done = call(
        "rules",
        "diff",
        base,
        rules(tmp_path / "head", high=1.5, severity="warning"),
        "--runs",
        tmp_path / "runs",
        "--format",
        "json",
    )
    document = json.loads(done.stdout)
    assert {each["alert"] for each in document["alerts"]} == {"GradHigh"}, "the packs are the same on both sides"
    assert document["total"]["unchanged"] > 0
    assert document["rules"] == [{"name": "$high of team", "what": "1e+06 -> 1.5"}]


# ---- git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    rules(folder / "my-rules", high=30)
    git(folder, "init", "-q")
    commit(folder, "first")
    rules(folder / "my-rules", high=10)
    commit(folder, "second")
    rules(folder / "my-rules", high=5)
    return folder


def test_revisions_of_a_repository(repository: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    working = repository / "my-rules"

    def what(document: dict[str, Any]) -> list[str]:
        return [each["what"] for each in document["rules"]]

    assert what(_diff("HEAD", working, "--runs", runs)) == ["10 -> 5"]
    assert what(_diff("HEAD~1", working, "--runs", runs)) == ["30 -> 5"]
    monkeypatch.chdir(repository)
    assert what(_diff("HEAD~1", "main", "--rules", "my-rules", "--runs", runs)) == ["30 -> 10"]
    document = _diff("HEAD~1:my-rules", "HEAD:my-rules", "--runs", runs)
    assert what(document) == ["30 -> 10"]
    assert _changes(document) == [("drift", "GradHigh", ["new"]), ("wild", "GradHigh", ["new"])]
    monkeypatch.chdir(working)
    assert what(_diff("HEAD~1:./team.yaml", "team.yaml", "--runs", runs)) == ["30 -> 5"]
    assert git(repository, "status", "--porcelain") == "M my-rules/team.yaml", "the working tree is left alone"


def test_a_folder_that_the_base_did_not_have_yet(repository: Path, runs: Path) -> None:
    new = rules(repository / "new-rules")
    done = call("rules", "diff", "main", new, "--runs", runs / "wild.jsonl", "--format", "json")
    assert done.exit_code == 0, done.output
    assert "main has no new-rules" in done.stderr
    assert {"name": "GradHigh", "what": "added"} in json.loads(done.stdout)["rules"]


def test_a_fault_of_a_revision_is_told_at_its_place_there(repository: Path, runs: Path) -> None:
    file = repository / "my-rules" / "team.yaml"
    file.write_text(file.read_text().replace("grad_norm", "grad_nrm"))
    commit(repository, "bad")
    done = call("rules", "diff", "HEAD", rules(repository / "my-rules"), "--no-shipped", "--runs", runs)
    assert done.exit_code == 2
    assert done.stderr.startswith("tocsin: HEAD:my-rules/team.yaml:9:11: unknown metric")
    assert "did you mean" in done.stderr and "Traceback" not in done.output


def test_bad_revisions_are_one_clear_line(
    repository: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = repository / "my-rules"

    def refused(*arguments: object) -> str:
        done = call("rules", "diff", "--runs", runs, *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1 and "Traceback" not in done.output
        return done.stderr

    assert "git knows no such revision" in refused("nonsense", working)
    assert "git knows no such revision" in refused("--", "--output=x", working)
    assert "is no revision" in refused(":my-rules", working)
    monkeypatch.chdir(repository)
    assert "say which paths" in refused("HEAD~1", "HEAD")
    assert "lies outside" in refused(
        "HEAD", rules(tmp_path / "outside"), "--rules", "my-rules", "--rules", tmp_path / "outside"
    )
    monkeypatch.chdir(tmp_path)
    assert "no git repository here" in refused("main", rules(tmp_path / "loose"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in refused("main", working)


# ---- the gate, the formats, the input


def test_the_page_budget(runs: Path, tmp_path: Path) -> None:
    base, head = rules(tmp_path / "base", high=99), rules(tmp_path / "head")
    days = 3 * 19 / 1440
    budget = 2 / days
    for limit, status in ((budget + 0.1, 0), (budget - 0.1, 1), (0, 1)):
        done = call("rules", "diff", base, head, "--no-shipped", "--runs", runs, "--page-budget", limit)
        assert done.exit_code == status, done.output
        assert ("Over the page budget" in done.stdout) == bool(status)
    for limit, status in ((2, 0), (1, 1), (0, 1)):
        assert call("rules", "diff", base, head, "--no-shipped", "--runs", runs, "--new-pages", limit).exit_code == status
    same = call("rules", "diff", head, head, "--no-shipped", "--runs", runs, "--new-pages", 0)
    assert same.exit_code == 0
    assert "No alert changes (3 logs, 60 records; 3 alerts the same)." in same.stdout


def test_a_budget_per_day_needs_times(tmp_path: Path) -> None:
    path = log(tmp_path / "once.jsonl", [20.0])
    folder = rules(tmp_path / "rules")
    done = call("rules", "diff", folder, folder, "--no-shipped", "--runs", path, "--page-budget", 1)
    assert done.exit_code == 2
    assert "none of these logs has times" in done.stderr


def test_markdown_for_the_pull_request(runs: Path, tmp_path: Path) -> None:
    base, head = rules(tmp_path / "base"), rules(tmp_path / "head", high=12, severity="warning")
    done = call("rules", "diff", base, head, "--no-shipped", "--runs", runs)
    lines = done.stdout.splitlines()
    assert "**2 alerts** change on 3 logs, 60 records; 1 the same." in lines
    assert lines[lines.index("| run | alert | change | before | after |") :][:4] == [
        "| run | alert | change | before | after |",
        "| --- | --- | --- | --- | --- |",
        "| drift | GradHigh | later, severity | page from step 11 | warning from step 13 |",
        "| wild | GradHigh | severity | page from step 10 to 14 | warning from step 10 to 14 |",
    ]
    assert "| all | 0.0396 | 2 | 0 | 50.53 | 0.00 |" in lines
    assert "- $high of team: 10 -\\> 12" in lines
    assert done.stdout == call("rules", "diff", base, head, "--no-shipped", "--runs", runs).stdout


def test_text_says_the_same(runs: Path, tmp_path: Path) -> None:
    base, head = rules(tmp_path / "base"), rules(tmp_path / "head", high=12)
    done = call("rules", "diff", base, head, "--no-shipped", "--runs", runs, "--format", "text")
    assert "1 alert changes on 3 logs" in done.stdout
    assert "drift  GradHigh  later   page from step 11  page from step 13" in done.stdout


def test_names_of_strangers_stay_in_their_cell() -> None:
    assert markdown_cell("a|b\n@team <img>") == "a\\|b @\u2060team \\<img\\>"


def test_bad_input_is_said_and_the_rest_is_compared(runs: Path, tmp_path: Path) -> None:
    base, head = rules(tmp_path / "base"), rules(tmp_path / "head", high=12)
    (runs / "notes.txt").write_text("nothing of interest")
    done = call("rules", "diff", base, head, "--no-shipped", "--runs", runs)
    assert done.exit_code == 0
    assert "passed over, no known log format: notes.txt" in done.stderr
    done = call("rules", "diff", base, head, "--no-shipped", "--runs", runs, "--runs", tmp_path / "nowhere")
    assert done.exit_code == 2
    assert "drift" in done.stdout and "Not read:" in done.stdout
    assert "nowhere: there is no such file or folder" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no log lies in this folder" in call("rules", "diff", base, head, "--runs", empty).stderr
    assert "--runs" in call("rules", "diff", base, head).stderr
    (base / "team.yaml").write_text("group: [\n")
    done = call("rules", "diff", base, head, "--runs", runs)
    assert done.exit_code == 2 and "team.yaml:" in done.stderr and "Traceback" not in done.output


def test_a_large_directory(tmp_path: Path) -> None:
    for number in range(300):
        log(tmp_path / "runs" / f"run-{number:03}.jsonl", [1.0, float(number), 1.0])
    document = _diff(rules(tmp_path / "base", high=100), rules(tmp_path / "head", high=90), "--runs", tmp_path / "runs")
    assert _changes(document) == [(f"run-{number:03}", "GradHigh", ["new"]) for number in range(91, 101)]
    assert document["total"]["logs"] == 300


def test_a_comment_of_a_pull_request_stays_within_its_size(tmp_path: Path) -> None:
    for number in range(MOST_ROWS + 50):
        log(tmp_path / "runs" / f"run-{number:03}.jsonl", [1.0, 20.0, 1.0])
    arguments = (rules(tmp_path / "base", high=100), rules(tmp_path / "head"), "--no-shipped", "--runs", tmp_path / "runs")
    done = call("rules", "diff", *arguments)
    assert done.stdout.count("| GradHigh |") == MOST_ROWS
    assert "50 more rows are in the text and JSON formats." in done.stdout
    assert f"| all | 0.347 | 0 | {MOST_ROWS + 50} | 0.00 | 720.00 |" in done.stdout, "the sum is never cut"
    assert len(done.stdout.encode()) < 65_536
    assert call("rules", "diff", *arguments, "--format", "text").stdout.count("GradHigh") == MOST_ROWS + 50


def test_a_rule_in_shadow_pages_nobody(runs: Path, tmp_path: Path) -> None:
    head = rules(tmp_path / "head")
    file = head / "team.yaml"
    file.write_text(file.read_text().replace("    severity: page\n", "    severity: page\n    stage: shadow\n"))
    done = call("rules", "diff", rules(tmp_path / "base"), head, "--no-shipped", "--runs", runs / "wild.jsonl")
    row = "| wild | GradHigh | explained | page from step 10 to 14 | page from step 10 to 14, told to nobody (shadow) |"
    assert row in done.stdout
    assert "| all | 0.0132 | 1 | 0 |" in done.stdout
    assert "- GradHigh: stage: page -\\> shadow" in done.stdout


def test_overrides_are_part_of_what_changed(runs: Path, tmp_path: Path) -> None:
    extra = 'overrides:\n  - match: {model: "moe-*"}\n    vars: {high: 42}\n    severity: {grad-high: warning}\n'
    document = _diff(rules(tmp_path / "base"), rules(tmp_path / "head", extra=extra), "--runs", runs)
    assert document["rules"] == [
        {"name": "override of team where model moe-*: high 42, grad-high warning", "what": "added"},
    ]
    assert _changes(document) == [], "none of these runs has the label"


def test_recorded_baselines_hold_on_both_sides(runs: Path, tmp_path: Path) -> None:
    sides = [rules(tmp_path / name) for name in ("base", "head")]
    for side, times in zip(sides, (3, 15), strict=True):
        file = side / "team.yaml"
        file.write_text(file.read_text().replace("grad_norm > $high", f"grad_norm > {times} * recorded(grad_norm) + 0 * $high"))
    baseline = "labels: {}\nrun: clean\nrecords: 100\nmetrics:\n  grad_norm: {centre: 1.0, scale: 0.1, count: 100}\n"
    (tmp_path / "clean.yaml").write_text(baseline)
    log_ = runs / "drift.jsonl"
    document = _diff(*sides, "--runs", log_, "--baselines", tmp_path / "clean.yaml")
    (change,) = document["alerts"]
    assert (change["change"], change["before"]["step"], change["after"]["step"]) == (["later"], 4, 16)
    assert _changes(_diff(*sides, "--runs", log_)) == [], "without one both compare with 0"
    (tmp_path / "clean.yaml").write_text("labels: [\n")
    done = call("rules", "diff", *sides, "--runs", log_, "--baselines", tmp_path / "clean.yaml")
    assert done.exit_code == 2 and "clean.yaml:" in done.stderr and "Traceback" not in done.output


def test_two_bundles_over_one_reading_are_two_replays(tmp_path: Path) -> None:
    path = tmp_path / "nan.jsonl"
    path.write_bytes(b"\n".join(message.value for run in RUNS if run.file == "nan" for message in messages(run)))
    engines = [bundles.engine([rules(tmp_path / "a", high=0.5)]), bundles.engine([]), bundles.engine([tmp_path / "a"])]
    recording = Recording(path)
    together, alone = replay_with(recording, engines), [replay(recording, engine) for engine in engines]
    assert repr(together) == repr(alone), "as text: a NaN in an event is no other NaN's equal"
    assert len({len(each.events) for each in together}) == 2, "the bundles differ, so that a mix-up would be seen"


@pytest.mark.parametrize("format_", ["json", "markdown", "text"])
def test_the_output_is_the_same_whatever_the_processes(runs: Path, tmp_path: Path, format_: str) -> None:
    """In processes of their own: this one may have threads, and is then not forked."""
    (runs / "broken.jsonl").write_text("no log\n")
    one, other = rules(tmp_path / "base"), rules(tmp_path / "head", high=30)
    command = [sys.executable, "-m", "service.cli", "rules", "diff", str(one), str(other), "--runs", str(runs), "--no-shipped"]
    outputs = []
    for jobs in ("1", "3"):
        done = subprocess.run([*command, "--format", format_, "--jobs", jobs], capture_output=True, text=True, timeout=300)
        outputs.append((done.returncode, done.stdout, done.stderr))
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == 0 and "GradHigh" in outputs[0][1]
    assert "broken.jsonl" in outputs[0][2]

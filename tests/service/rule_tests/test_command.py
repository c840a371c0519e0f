"""`tocsin rules test` as it is called."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from service.cli import tocsin

RULES = """
group: mine
layer: 6
question: Does it explore?
rules:
  - alert: EntropyLow
    id: entropy-low
    expr: policy_entropy < 0.1
    severity: warning
    summary: "low"
"""
FIRES = "{name: low, metrics: {policy_entropy: 1x3 0.05}, expect: [{step: 4, alert: EntropyLow, state: firing RECEIVERS}]}"
QUIET = "{name: level, metrics: {policy_entropy: 0.5x3}, quiet: [EntropyLow]}"
NAN = "{name: not a number, metrics: {policy_entropy: 0.5 nan}, quiet: [EntropyLow]}"
ALERTS = """
receivers:
  chat: {kind: slack_webhook, url: "env:NOBODY_SETS_THIS"}
  pager: {kind: pagerduty, routing_key: "env:NOBODY_SETS_THIS_EITHER"}
default: chat
routes:
  - {match: {severity: [page, stop]}, receiver: pager}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine" / "tests").mkdir(parents=True)
    (tmp_path / "mine" / "mine.yaml").write_text(RULES)
    return tmp_path / "mine"


def tests(folder: Path, *cases: str, receivers: str = "") -> None:
    lines = [f"  - {case.replace(' RECEIVERS', receivers)}" for case in cases]
    (folder / "tests" / "mine.yaml").write_text("watch: [EntropyLow]\ntests:\n" + "\n".join(lines) + "\n")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tocsin, ["rules", "test", *map(str, arguments)])


def test_all_hold(folder: Path) -> None:
    tests(folder, FIRES, QUIET, NAN)
    for done in (run(folder, "--coverage"), run(folder / "mine.yaml", "--coverage", "--no-shipped")):
        assert (done.exit_code, done.stdout) == (0, "3 tests passed\n"), done.output


def test_a_failure_and_a_rule_without_a_case_are_exit_status_1(folder: Path, tmp_path: Path) -> None:
    tests(folder, FIRES.replace("step: 4", "step: 3"), QUIET)
    done = run(folder)
    assert done.exit_code == 1
    assert "EntropyLow at step 3: expected firing, got it at step 4" in done.stdout
    assert done.stderr == "tocsin: 1 test failed\n"
    done = run(folder, "--coverage", "--junit", tmp_path / "junit.xml")
    assert done.stderr == "tocsin: 1 test failed, 1 rule not covered\n"
    assert "mine.yaml:6: EntropyLow: no firing, no NaN case" in done.stdout
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("failures") == "2"


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        ("rules: [{id: logprob-gap-stop, for: 5 records}]", 2),
        ("rules: [{id: logprob-gap-stop, expr: logprob_gap > 0.02}]", 2),
        ("vars: {gap_stop: {value: 0.02}}", 2),
        ("rules:\n  - {record: logprob_gap, expr: 'mean(rollout_logprob_abs_diff_mean[5])'}", 3),
    ],
    ids=["hold", "condition", "number", "record rule"],
)
def test_a_rule_of_the_packs_that_fires_otherwise_from_now_on_needs_cases_of_its_own(
    folder: Path, edit: str, line: int
) -> None:
    tests(folder, FIRES, QUIET, NAN)
    (folder / "gap.yaml").write_text(f"group: probability-consistency\n{edit}\n")
    done = run(folder, "--coverage")
    assert done.exit_code == 1
    assert f"gap.yaml:{line}: LogprobGapStop: no firing, no not-firing, no NaN case" in done.stdout


@pytest.mark.parametrize("edit", ["severity: page", "stage: shadow", "next: [Ask the platform team.]"])
def test_a_rule_of_the_packs_that_only_says_something_else_needs_none(folder: Path, edit: str) -> None:
    tests(folder, FIRES, QUIET, NAN)
    (folder / "gap.yaml").write_text(f"group: probability-consistency\nrules: [{{id: logprob-gap-stop, {edit}}}]\n")
    assert run(folder, "--coverage").stdout == "3 tests passed\n"


@pytest.mark.parametrize("stage", ["shadow", "notify", "page"])
def test_the_same_tests_hold_on_every_stage_of_a_rollout(folder: Path, stage: str) -> None:
    ends = FIRES.replace("0.05}", "0.05 0.5x2}").replace("RECEIVERS}]", "}, {step: 5, alert: EntropyLow, state: resolved}]")
    tests(folder, ends, QUIET, NAN)
    (folder / "mine.yaml").write_text(RULES + f"    stage: {stage}\n")
    done = run(folder, "--coverage")
    assert (done.exit_code, done.stdout) == (0, "3 tests passed\n"), done.output
    tests(folder, ends.replace("state: resolved", "state: firing"))
    assert "EntropyLow at step 5: expected firing, got resolved" in run(folder).stdout, "its end is no firing"


def test_coverage_asks_only_for_the_rules_of_the_paths(folder: Path) -> None:
    tests(folder, FIRES, QUIET)
    done = run(folder, "--coverage", "--format", "json")
    assert done.exit_code == 1 and done.stderr == ""
    assert [gap["alert"] for gap in json.loads(done.stdout)["uncovered"]] == ["EntropyLow"]
    done = run(folder / "tests" / "mine.yaml", "--coverage", "--format", "github")
    assert done.stdout.count("::error") == 1 and "title=not covered::EntropyLow" in done.stdout


def test_receivers_are_looked_up_without_secrets(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(ALERTS)
    tests(folder, FIRES, receivers=", receivers: [chat]")
    done = run(folder)
    assert done.exit_code == 2 and "--alerts alerts.yaml" in done.stderr
    done = run(folder, "--alerts", tmp_path / "alerts.yaml")
    assert done.exit_code == 0, done.output
    tests(folder, FIRES, receivers=", receivers: [pager]")
    done = run(folder, "--alerts", tmp_path / "alerts.yaml")
    assert done.exit_code == 1 and "expected receivers pager, got chat" in done.stdout


def test_what_is_wrong_with_the_files_is_exit_status_2(folder: Path, tmp_path: Path) -> None:
    done = run(folder)
    assert done.exit_code == 2 and "no tests (put them into a folder `tests` beside the rules)" in done.stderr
    assert run(tmp_path / "nowhere").exit_code == 2
    assert run("--no-shipped").exit_code == 2
    tests(folder, FIRES.replace("EntropyLow", "EntropyLo"))
    done = run(folder)
    assert done.exit_code == 2 and "mine.yaml:3:" in done.stderr and "did you mean 'EntropyLow'" in done.stderr
    (folder / "mine.yaml").write_text(RULES.replace("< 0.1", "<"))
    assert run(folder).exit_code == 2
    tests(folder, FIRES)
    (folder / "mine.yaml").write_text(RULES)
    assert run(folder, "--junit", tmp_path / "no" / "folder.xml").exit_code == 2

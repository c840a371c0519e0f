"""A test file from its text to its verdict: what holds, what fails, and what a failure says."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rules.config_errors import ConfigErrors
from rules.engine import Engine
from rules.loader import load_bundle, load_text
from service.bundles import known_metrics
from service.rule_tests import report
from service.rule_tests.comparing import Outcome, run_case
from service.rule_tests.coverage import asked, gaps
from service.rule_tests.files import find_test_files, parse_cases, rule_sources

RULES = """
group: gradient
layer: 2
question: Is it too large?
rules:
  - alert: High
    id: high
    expr: grad_norm > 1
    for: 2 records
    keep: 2 records
    severity: warning
    summary: "norm {{ value | sig(2) }}"
  - alert: Page
    id: page
    expr: kl_reference > 1
    severity: page
    summary: "kl {{ value | sig(2) }}"
  - alert: Later
    id: later
    expr: firing(Page) and policy_loss > 0
    severity: info
    summary: "both"
  - alert: Parts
    id: parts
    expr: reward_component_mean < 0
    severity: info
    summary: "{{ labels.component }}"
  - alert: Zeros
    id: zeros
    expr: zero_variance_z > 3
    severity: info
    summary: "z"
"""


def engine() -> Engine:
    return Engine(load_text(RULES, known_metrics=known_metrics()))


def outcomes(tests: str) -> list[Outcome]:
    made = engine()
    return [run_case(case, made) for case in parse_cases(tests, "tests.yaml", made.bundle)]


def differences(case: str) -> list[str]:
    """Of one case, given without its name."""
    body = "\n".join("    " + line for line in case.splitlines())
    (outcome,) = outcomes(f"tests:\n  - name: it\n{body}\n")
    return [str(difference) for difference in outcome.differences]


def test_a_full_timeline_holds() -> None:
    assert not differences(
        """\
metrics: {grad_norm: 0.5x3 2x3 0.5x5}
expect:
  - {step: 4, alert: High, state: pending}
  - {step: 5, alert: High, state: firing, severity: warning, summary: norm 2, value: 2, limit: 1, verdict: breach}
  - {step: 7, alert: High, state: keeping}
  - {step: 9, alert: High, state: resolved}"""
    )


def test_what_is_not_listed_must_not_happen() -> None:
    assert differences("metrics: {grad_norm: 2x3}") == ["High at step 2: expected nothing, got firing (2 > 1)"]
    (resolved,) = differences("metrics: {grad_norm: 2x2 0x4}\nexpect: [{step: 2, alert: High, state: firing}]")
    assert resolved.startswith("High at step 5: expected nothing, got resolved")


def test_a_missed_or_late_firing_says_where_it_came_instead() -> None:
    assert differences("metrics: {grad_norm: 0.0x3}\nexpect: [{step: 2, alert: High, state: firing}]") == [
        "High at step 2: expected firing, got nothing"
    ]
    late = differences("metrics: {grad_norm: 0.0 2x3}\nexpect: [{step: 2, alert: High, state: firing}]")
    assert late[0] == "High at step 2: expected firing, got it at step 3"


def test_pending_is_compared_only_where_it_is_listed() -> None:
    one = "metrics: {grad_norm: 2 0 2 0}\n"
    assert not differences(one)
    assert differences(one + "expect: [{step: 1, alert: High, state: pending}]") == [
        "High at step 3: expected nothing, got pending"
    ]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("severity: page", "severity 'page', got 'warning'"),
        ("summary: norm 3", "summary 'norm 3', got 'norm 2'"),
        ("value: 2.1", "value 2.1, got 2"),
        ("limit: 2", "limit 2, got 1"),
        ("verdict: non_finite", "verdict 'non_finite', got 'breach'"),
        ("explained_by: Page", "explained_by 'Page', got ''"),
        ("reason: 3 > 1", "reason '3 > 1', got '2 > 1'"),
    ],
)
def test_each_field_of_an_event_is_compared(field: str, said: str) -> None:
    (found,) = differences(f"metrics: {{grad_norm: 2x2}}\nexpect: [{{step: 2, alert: High, state: firing, {field}}}]")
    assert found == f"High at step 2: expected {said}"


def test_places_by_record_and_labels() -> None:
    assert not differences("metrics: {grad_norm: _x3 2x2}\nexpect: [{record: 5, alert: High, state: firing}]")
    case = """\
metrics: {'reward_component_mean{component="a"}': 1 -1, 'reward_component_mean{component="b"}': 1 1}
expect: [{step: 2, alert: Parts, state: firing, labels: {component: LABEL}, summary: a}]"""
    assert not differences(case.replace("LABEL", "a"))
    assert len(differences(case.replace("LABEL", "b"))) == 2


def test_quiet_without_a_verdict_proves_nothing() -> None:
    assert not differences("metrics: {grad_norm: 0.5}\nquiet: [High]")
    (found,) = differences("metrics: {grad_norm: 0.5}\nquiet: [Page]")
    assert found == "Page: expected quiet after being judged, got no verdict: none of its metrics came"


def test_labels_config_names_gaps_silence_and_the_end_reach_the_run() -> None:
    assert not differences(
        "run: {names: verl}\nmetrics: {actor/grad_norm: 2x2}\nexpect: [{step: 2, alert: High, state: firing}]"
    )
    ended = "metrics: {grad_norm: 2x2}\nend: finished\nexpect:\n  - {step: 2, alert: High, state: firing}\n"
    assert not differences(ended + "  - {step: 2, alert: High, state: resolved, reason: run_finished}")


def test_a_signal_can_be_told_by_its_value() -> None:
    assert not differences("signals: {zero_variance_z: 2.9 3.1}\nexpect: [{step: 2, alert: Zeros, state: firing, value: 3.1}]")


def test_explained_is_a_state_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RULES)
    above = "group: above\nlayer: 4\nquestion: And then?\nrules:\n  - {alert: Above, id: above, expr: policy_loss > 1, "
    (tmp_path / "b.yaml").write_text(above + "severity: warning, summary: high}\n")
    made = Engine(load_bundle([tmp_path], known_metrics()))
    text = """
watch: [Above]
tests:
  - name: under the page
    metrics: {kl_reference: 2x2 0.0x2, policy_loss: 2x4}
    expect:
      - {step: 1, alert: Above, state: explained, explained_by: Page}
      - {step: 3, alert: Above, state: firing}
"""
    (case,) = parse_cases(text, "t", made.bundle)
    assert not run_case(case, made).differences
    (case,) = parse_cases(text.replace("explained,", "firing,"), "t", made.bundle)
    assert str(run_case(case, made).differences[0]) == "Above at step 1: expected firing, got explained"


def test_watch_limits_what_must_be_listed() -> None:
    text = "watch: [Page]\ntests:\n  - {name: a, metrics: {grad_norm: 2x3}}\n"
    assert outcomes(text)[0].passed
    text = "watch: [Page]\ntests:\n  - {name: a, metrics: {grad_norm: 2x3}, quiet: [High]}\n"
    assert not outcomes(text)[0].passed


def test_a_failure_by_an_alert_that_no_case_names_says_how_to_leave_it_out() -> None:
    case = "tests:\n- name: of High\n  metrics: {grad_norm: 0.5x2, kl_reference: 2x3}\n  quiet: [High]\n"
    hint = "Is Page no matter of these tests? Name at the head of the file what is: watch: [High]"
    (outcome,) = outcomes(case)
    assert not outcome.passed and hint in report.text(outcome)
    (outcome,) = outcomes("watch: [High]\n" + case)
    assert outcome.passed
    (outcome,) = outcomes("watch: [High, Page]\n" + case)
    assert not outcome.passed and "no matter" not in report.text(outcome), "it was named on purpose"
    (outcome,) = outcomes("tests:\n- {name: b, metrics: {grad_norm: 0.5x2}, expect: [{step: 1, alert: High, state: firing}]}\n")
    assert not outcome.passed and "no matter" not in report.text(outcome), "the case is about this one"


def test_the_failure_shows_inputs_verdict_state_expected_and_got() -> None:
    (outcome,) = outcomes(
        "tests:\n- name: too late\n  metrics: {grad_norm: 0.5x9 2x3}\n  expect: [{step: 10, alert: High, state: firing}]\n"
    )
    shown = report.text(outcome)
    assert shown.startswith("FAILED tests.yaml:2: too late")
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()[:1].isdecimal()}
    assert rows["9"][1:5] == ["grad_norm=0.5", "High", "ok", "inactive"]
    assert rows["10"][1:8] == ["grad_norm=2", "High", "breach", "pending", "2", "1", "firing"]
    assert rows["11"][3:5] == ["breach", "firing"]
    assert "1" not in rows, "steps far from the difference are left out"


# ---- coverage


def test_coverage_wants_three_kinds_of_cases_that_hold() -> None:
    text = """
watch: [High]
tests:
  - {name: fires, metrics: {grad_norm: 2x2}, expect: [{step: 2, alert: High, state: firing}]}
  - {name: quiet, metrics: {grad_norm: 0.5x2}, quiet: [High]}
  - {name: with NaN, metrics: {grad_norm: 0.5 nan}, quiet: [High]}
"""
    rules = asked(engine().bundle, [])
    found = {gap.rule.name: list(gap.missing) for gap in gaps(rules, outcomes(text))}
    assert "High" not in found
    assert found["Page"] == ["firing", "not-firing", "NaN"]
    without = text.replace("  - {name: quiet, metrics: {grad_norm: 0.5x2}, quiet: [High]}\n", "")
    assert {gap.rule.name: list(gap.missing) for gap in gaps(rules, outcomes(without))}["High"] == ["not-firing"]
    failing = text.replace("step: 2", "step: 1")
    assert {gap.rule.name: list(gap.missing) for gap in gaps(rules, outcomes(failing))}["High"] == ["firing"]


# ---- formats


FAILING = "tests:\n  - {name: 'a, b: 100%', metrics: {grad_norm: 2x2}}\n  - {name: holds, metrics: {grad_norm: 0}}\n"


def test_json() -> None:
    found = outcomes(FAILING)
    body = json.loads(report.as_json(found, gaps(asked(engine().bundle, [])[:1], found)))
    assert (body["passed"], body["failed"]) == (1, 1)
    assert body["tests"][0]["differences"] == [
        {"alert": "High", "step": 2, "expected": "nothing", "got": "firing (2 > 1)", "line": 2}
    ]
    assert body["uncovered"] == [{"alert": "High", "id": "high", "missing": ["firing", "not-firing", "NaN"]}]


def test_github_annotations_are_escaped() -> None:
    assert list(report.github(outcomes(FAILING), [])) == [
        "::error file=tests.yaml,line=2,title=a%2C b%3A 100%25::High at step 2: expected nothing, got firing (2 > 1)"
    ]


def test_junit_counts_and_tells() -> None:
    found = outcomes(FAILING)
    root = ElementTree.fromstring(report.junit(found, gaps(asked(engine().bundle, [])[:1], found), coverage=True))
    assert root.attrib == {"tests": "3", "failures": "2"}
    suites = {suite.get("name"): suite for suite in root}
    assert suites["tests.yaml"].attrib == {"name": "tests.yaml", "tests": "2", "failures": "1"}
    failure = suites["tests.yaml"][0].find("failure")
    assert failure is not None and failure.text is not None and "FAILED" in failure.text
    assert suites["coverage"][0].get("name") == "High"


# ---- files


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("tests: []", 1, "at least 1"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1 x}}", 2, "'x' is no value of a series"),
        ("tests:\n- {name: a}", 2, "without a series"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, quiet: [Hihg]}", 2, "did you mean 'High'"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, expect: [{step: 1, alert: Hihg, state: firing}]}", 2, "'High'"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, expect: [{step: 2, alert: High, state: firing}]}", 2, "steps 1 to 1"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, expect: [{alert: High, state: firing}]}", 2, "one place"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, expect: [{step: 1, alert: High, state: fires}]}", 2, "none of"),
        (
            "tests:\n- {name: a, metrics: {grad_norm: 1}, expect: [{step: 1, alert: High, state: pending, value: 1}]}",
            2,
            "it has no value",
        ),
        ("tests:\n- {name: a, metrics: {zero_variance_z: 1}}", 2, "under signals"),
        ("tests:\n- {name: a, signals: {zero_variance_zz: 1}}", 2, "did you mean 'zero_variance_z'"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}}\n- {name: a, metrics: {grad_norm: 1}}", 3, "first in line 2"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, gaps: {x: 3h}}", 2, "no step of the test"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, every: 3}", 2, "expected text"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, silence: long}", 2, "no duration"),
        ("tests:\n- {name: a, metrics: {grad_norm: 1}, metric: 1}", 2, "did you mean 'metrics'"),
        (
            "tests:\n- {name: a, metrics: {grad_norm: 1}, quiet: [High], expect: [{step: 1, alert: High, state: firing}]}",
            2,
            "keep one",
        ),
    ],
)
def test_faults_of_a_test_file_are_said_with_their_place(text: str, line: int, part: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_cases(text, "tests.yaml", engine().bundle)
    assert any(error.line == line and part in error.message for error in caught.value.errors), caught.value


def test_which_files_belong_to_a_path(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    rules, tests = tmp_path / "a.yaml", tmp_path / "tests" / "a.yaml"
    rules.write_text(RULES)
    tests.write_text("tests: []")
    lone = tmp_path / "lone.yaml"
    lone.write_text("tests: []")
    for given in (tmp_path, tmp_path / "tests", rules, tests):
        assert find_test_files([given]) == [tests]
    assert find_test_files([lone]) == [lone]
    assert rule_sources([tests]) == rule_sources([tmp_path / "tests"]) == rule_sources([tmp_path]) == [tmp_path]
    assert rule_sources([rules]) == [rules]
    assert rule_sources([lone]) == []

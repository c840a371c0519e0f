"""Rows that come late, go back or open an attempt, and prompt groups: what the notation means and what it refuses."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.config_errors import ConfigErrors
from rules.engine import Engine
from rules.loader import load_text
from service.bundles import known_metrics
from service.rule_tests import report
from service.rule_tests.comparing import Outcome, run_case
from service.rule_tests.coverage import asked, gaps
from service.rule_tests.files import Case, parse_cases
from tests.kit.story import shipped

RULES = """
group: rows
layer: 2
question: Which row is it?
rules:
  - {alert: High, id: high, expr: grad_norm > 1, severity: info, summary: "norm"}
  - {alert: Three, id: three, expr: "mean(grad_norm[3]) > 1", severity: info, summary: "mean"}
  - {alert: Both, id: both, expr: grad_norm > 1 and policy_loss > 1, severity: info, summary: "both"}
  - {alert: Small, id: small, expr: config(group_size) < 8, severity: info, summary: "small"}
  - {alert: Dense, id: dense, expr: 'grad_norm > 1 and label(kind) == "dense"', severity: info, summary: "dense"}
  - {alert: Back, id: back, expr: resumed > 0, severity: info, summary: "again"}
"""
PAGE = Path(__file__).resolve().parents[3] / "docs" / "rules" / "testing.md"


@cache
def engine() -> Engine:
    return Engine(load_text(RULES, known_metrics=known_metrics()))


def told(body: str, watch: str) -> list[str]:
    """What differs from nothing at all in a case that watches one alert."""
    return [str(difference) for difference in outcome(body, watch).differences]


def outcome(body: str, watch: str) -> Outcome:
    made = engine()
    text = "\n".join("    " + line for line in body.splitlines())
    (case,) = parse_cases(f"watch: [{watch}]\ntests:\n  - name: it\n{text}\n", "tests.yaml", made.bundle)
    return run_case(case, made)


def happened(body: str, watch: str) -> list[tuple[str, int, int]]:
    """State, step and record of every change of an alert."""
    return [(item.state, item.step, item.record) for item in outcome(body, watch).told.happened if item.alert == watch
            and item.event is not None]  # fmt: skip


def test_a_late_row_stands_at_its_own_step() -> None:
    # At step 4 the last three records are steps 2, 3 and 4, wherever in time step 3 came.
    assert happened("metrics: {grad_norm: 0.0 0.0 0.0 9 0.0}\nsteps: 1 2 4 3 5", "Three") == [("firing", 3, 4)]
    assert happened("metrics: {grad_norm: 0.0 0.0 9 0.0 0.0}\nsteps: 1 2 4 3 5", "High")[0] == ("firing", 4, 3)


def test_a_second_row_of_a_step_completes_it() -> None:
    assert happened("metrics: {grad_norm: 0.0 2 _, policy_loss: 0.0 _ 2}\nsteps: 1 2 2", "Both") == [("firing", 2, 2)]


def test_going_back_by_more_than_eight_steps_is_a_resume() -> None:
    assert happened("metrics: {grad_norm: 0.0x12}\nsteps: 1..10x10 1 2", "Back") == [("firing", 1, 11), ("resolved", 2, 12)]
    assert happened("metrics: {grad_norm: 0.0x12}\nsteps: 1..10x10 5 11", "Back") == []


def test_a_declared_attempt_is_a_resume_however_short() -> None:
    body = "metrics: {grad_norm: 0.0x5}\nsteps: 1 2 3 3 4\ndeclare: [{before: 4, attempt: 2}]"
    assert happened(body, "Back") == [("firing", 3, 4), ("resolved", 4, 5)]


def test_labels_and_configuration_change_at_their_row() -> None:
    body = "run: {config: {group_size: 8}}\nmetrics: {grad_norm: 0.0x4}\ndeclare: [{before: 3, config: {group_size: 4}}]"
    assert happened(body, "Small") == [("firing", 3, 3)]
    body = "run: {labels: {kind: moe}}\nmetrics: {grad_norm: 2x4}\ndeclare: [{before: 4, labels: {kind: dense}}]"
    assert happened(body, "Dense") == [("firing", 4, 4)]


def test_what_was_declared_stays_in_a_further_attempt() -> None:
    body = (
        "run: {labels: {kind: dense}, config: {group_size: 4}}\nmetrics: {grad_norm: 2x5}\nsteps: 1 2 3 3 4\n"
        "declare: [{before: 2, config: {learning_rate: 1e-6}}, {before: 4, attempt: 2}]"
    )
    assert happened(body, "Small") == [("firing", 1, 1)], "the group size of the first attempt still holds"
    assert happened(body, "Dense") == [("firing", 1, 1)]


def test_the_end_belongs_to_the_last_attempt() -> None:
    body = "metrics: {grad_norm: 2x4}\nsteps: 1 2 2 3\ndeclare: [{before: 3, attempt: 2}]\nend: finished"
    assert happened(body, "High")[-1] == ("resolved", 3, 4)


def test_the_failure_shows_the_inputs_of_the_row_and_not_of_the_step() -> None:
    shown = report.text(outcome("metrics: {grad_norm: 0.1 0.2 0.4 2}\nsteps: 10 20 40 30", "High"))
    row = next(line.split() for line in shown.splitlines() if line.split()[:1] == ["30"])
    assert row[:3] == ["30", "grad_norm=2", "High"]


def test_groups_are_counted_by_prompt_and_row() -> None:
    (case,) = cases("groups: {size: 8, success: {a: 4 _ 8, b x2: 0.0 1}, reward_std: {a: 0.5 _ nan}}")
    first, second, third = case.groups
    assert first is not None and second is not None and third is not None
    assert (first.size, first.prompt, first.success) == (8, ["a", "b.1", "b.2"], [4, 0, 0])
    assert first.reward_std == [0.5, None, None]
    assert first.reward_mean == [], "nobody told it"
    assert (second.prompt, second.success) == (["b.1", "b.2"], [1, 1])
    assert third.prompt == ["a"]


def cases(body: str) -> list[Case]:
    text = "\n".join("    " + line for line in body.splitlines())
    return parse_cases(f"tests:\n  - name: it\n{text}\n", "tests.yaml", engine().bundle)


def test_a_row_without_any_prompt_has_no_groups() -> None:
    (case,) = cases("metrics: {grad_norm: 0.5x3}\ngroups: {size: 8, success: {a: 4 _}}")
    assert [groups is None for groups in case.groups] == [False, True, True]


def test_a_nan_in_a_reward_of_the_groups_is_a_nan_case() -> None:
    body = "tests:\n- {name: it, metrics: {grad_norm: 0.5x2}, groups: {size: 8, reward_std: {a: 0.5 VALUE}}, quiet: [High]}\n"
    made = engine()
    found = {}
    for value in ("nan", "0.5"):
        (case,) = parse_cases(body.replace("VALUE", value), "t", made.bundle)
        found[value] = next(
            gap.missing for gap in gaps(asked(made.bundle, []), [run_case(case, made)]) if gap.rule.name == "High"
        )
    assert found == {"nan": ["firing", "not-firing"], "0.5": ["firing", "NaN"]}


@pytest.mark.parametrize(
    ("body", "line", "part"),
    [
        ("metrics: {grad_norm: 1x3}\nsteps: 1 2", 2, "2 steps for 3 rows"),
        ("metrics: {grad_norm: 1x3}\nsteps: 1..2x3", 2, "1.5 is no step"),
        ("metrics: {grad_norm: 1x2}\nsteps: 1 _", 2, "_ is no step"),
        ("metrics: {grad_norm: 1x2}\nsteps: 1 nan", 2, "nan is no step"),
        ("metrics: {grad_norm: 1x2}\nsteps: -1 2", 2, "-1 is no step"),
        ("metrics: {grad_norm: 1x2}\nsteps: 1 two", 2, "'two' is no value of a series"),
        ("metrics: {grad_norm: 1x2}\nsteps: 10 20\nexpect: [{step: 2, alert: High, state: firing}]", 3, "steps 10 to 20"),
        ("groups: {size: 8}", 1, "groups without a prompt"),
        ("groups: {size: 0, success: {a: 0.0}}", 1, "write size: 8"),
        ("groups: {success: {a: 0.0}}", 1, "size"),
        ("groups: {size: 8, success: {a: 9}}", 1, "9 of 8 responses correct for 'a'"),
        ("groups: {size: 8, success: {a: 0.5}}", 1, "whole number from 0 to 8"),
        ("groups: {size: 8, success: {a: 1 nan}}", 1, "nan of 8 responses"),
        ("groups: {size: 8, success: {a x2: 1, a.1: 1}}", 1, "the prompt 'a.1' is there twice"),
        ("groups: {size: 8, success: {a x0: 1}}", 1, "means 0 prompts"),
        ("groups: {size: 8, success: {a x99999: 1}}", 1, "means 99999 prompts"),
        ("groups: {size: 8, success: {a x4000: 1, b x200: 1}}", 1, "4200 prompts"),
        ("groups: {size: 8, succes: {a: 1}}", 1, "did you mean 'success'"),
        ("metrics: {grad_norm: 1x2}\ndeclare: [{before: 3, attempt: 2}]", 2, "rows 1 to 2"),
        ("metrics: {grad_norm: 1x2}\ndeclare: [{before: 2}]", 2, "declares nothing"),
        ("metrics: {grad_norm: 1x2}\ndeclare: [{before: 2, attempt: 0}]", 2, "attempts only grow"),
        (
            "metrics: {grad_norm: 1x3}\ndeclare: [{before: 3, attempt: 2}, {before: 2, attempt: 3}]",
            2,
            "row 2 after row 3",
        ),
    ],
)
def test_faults_are_said_with_their_place(body: str, line: int, part: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        cases(body)
    assert any(error.line == line + 2 and error.column > 4 and part in error.message for error in caught.value.errors), (
        caught.value
    )


_WORDS = st.lists(st.sampled_from(["1", "2", "_", "nan", "1..3x3", "0.5", "-1", "9x2", "x", "(1 2)x2"]), max_size=5).map(
    " ".join
)
_NAMES = st.sampled_from(["a", "a x2", "a.1", "b x0", "' '", "x2", "a x2 x3"])


@given(_WORDS, st.dictionaries(_NAMES, _WORDS, max_size=3), st.integers(-1, 9), st.integers(-1, 4), st.integers(-1, 4))
def test_any_notation_is_a_case_or_errors_with_places(
    steps: str, prompts: dict[str, str], size: int, before: int, attempt: int
) -> None:
    table = ", ".join(f'{name}: "{series}"' for name, series in prompts.items())
    body = (
        f'metrics: {{grad_norm: 0.5x2}}\nsteps: "{steps}"\ngroups: {{size: {size}, success: {{{table}}}}}\n'
        f"declare: [{{before: {before}, attempt: {attempt}}}]"
    )
    try:
        (case,) = cases(body)
    except ConfigErrors as caught:
        assert all(error.line >= 3 for error in caught.errors)
    else:
        assert len(case.steps) == len(case.times) == len(case.groups)
        assert {item.step for item in run_case(case, engine()).told.happened} <= set(case.steps)


def test_the_examples_of_the_page_hold_on_the_shipped_rules() -> None:
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S) if block.startswith("  - name:")]
    assert len(blocks) == 2
    text = "watch: [ZeroVarianceAboveExpected, SeenPromptsAllWrong, RunResumed]\ntests:\n" + "".join(blocks)
    for case in parse_cases(text, "testing.md", shipped().bundle):
        assert not run_case(case, shipped()).differences, case.name

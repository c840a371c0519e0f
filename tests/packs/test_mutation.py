"""The mutation run itself: what is mutated, and that a weak test lets mutants live and a strong one does not."""

from __future__ import annotations

import pytest

from rules.loader import load_text, shipped_packs
from service.bundles import known_metrics
from service.rule_tests.files import find_test_files, load_cases, parse_cases
from tests.kit.story import shipped
from tests.mutation.mutants import mutants
from tests.mutation.running import Result, run

RULES = """
group: mine
layer: 2
question: Is it too large?
vars:
  line: {value: 2, unit: "1", doc: "the line"}
rules:
  - record: level
    expr: mean(grad_norm[4])
  - alert: High
    id: high
    expr: level > $line and grad_norm > 1
    for: 2 records
    leave: level < 0.5 * $line
    severity: warning
    summary: "high"
  - alert: Both
    id: both
    expr: fired_within(High, 3) and kl_reference > 1
    severity: page
    summary: "both"
"""


def test_every_place_is_mutated() -> None:
    found = [str(mutant) for mutant in mutants(load_text(RULES, known_metrics=known_metrics()))]
    assert len(found) == len(set(found))
    assert set(found) == {
        *(f"mine $line: x {factor}" for factor in ("0.5", "2", "0.9", "1.1")),
        "level: mean: grad_norm window 4 -> 2",
        "level: mean: grad_norm window 4 -> 8",
        "High expr: and -> other",
        "High expr: > -> < (level)",
        "High expr: > -> < (grad_norm)",
        *(f"High expr: 1 x {factor}" for factor in ("0.5", "2", "0.9", "1.1")),
        "High leave: < -> > (level)",
        *(f"High leave: 0.5 x {factor}" for factor in ("0.5", "2", "0.9", "1.1")),
        "High for: 2 records -> 1 record",
        "High for: 2 records -> 3 records",
        "High severity: warning -> info",
        "High severity: warning -> page",
        "Both expr: and -> other",
        "Both expr: fired_within: 3 -> 2",
        "Both expr: fired_within: 3 -> 4",
        "Both expr: > -> < (kl_reference)",
        *(f"Both expr: 1 x {factor}" for factor in ("0.5", "2", "0.9", "1.1")),
        "Both for: 1 record -> 2 records",
        "Both severity: page -> warning",
        "Both severity: page -> stop",
    }


def test_a_change_reaches_those_who_read_it() -> None:
    reached = {mutant.place: mutant.touched for mutant in mutants(load_text(RULES, known_metrics=known_metrics()))}
    assert reached["level"] == reached["mine $line"] == reached["High for"] == {"High", "Both"}
    assert reached["Both expr"] == {"Both"}


def test_weak_tests_let_mutants_live_and_strong_ones_do_not() -> None:
    bundle = load_text(RULES, known_metrics=known_metrics())
    weak = "watch: [High]\ntests:\n  - {name: a, metrics: {grad_norm: 0.1x9}, quiet: [High]}\n"
    strong = """
watch: [High]
tests:
  - name: a level just above the line, and its end just below the other
    metrics: {grad_norm: 2.05x6 1.02x4 0.97x4}
    expect:
      - {step: 5, alert: High, state: firing, severity: warning}
      - {step: 12, alert: High, state: resolved}
  - {name: just below the line, metrics: {grad_norm: 1.95x9}, quiet: [High]}
  - {name: one high record, metrics: {grad_norm: 1x3 5.1 1x5}, quiet: [High]}
  - name: the level is high, this record is not
    metrics: {grad_norm: 4x3 0.97 4x2 0.97 4x2 0.97 4}
    expect:
      - {step: 6, alert: High, state: firing}
"""
    every = [mutant for mutant in mutants(bundle) if mutant.touched == {"High", "Both"}]
    before = run(every, bundle, parse_cases(weak, "weak", bundle))
    after = run(every, bundle, parse_cases(strong, "strong", bundle))
    assert before.total == after.total == len(every)
    assert before.share < 0.4 < 0.8 < after.share


# ---- the shipped packs

GOAL = 0.95
SAMPLED = 60
"""Mutants of the short form, spread over all rules: a few seconds."""


def _shipped_result(most: int | None = None) -> Result:
    bundle = shipped().bundle
    cases = load_cases(find_test_files([shipped_packs()]), bundle)
    # A rule without any test is found by the coverage gate; here it is asked what the tests that there are see.
    tested = {alert for case in cases for alert in case.alerts}
    every = [mutant for mutant in mutants(bundle) if mutant.touched & tested]
    return run(every if most is None else every[:: max(1, len(every) // most)], bundle, cases)


def test_a_sample_of_the_mutants_of_the_shipped_packs_is_caught() -> None:
    result = _shipped_result(SAMPLED)
    survivors = "\n".join(map(str, result.survivors))
    assert result.share >= GOAL, f"{result.caught} of {result.total} caught; these live:\n{survivors}"


@pytest.mark.soak
def test_the_mutants_of_the_shipped_packs_are_caught() -> None:
    result = _shipped_result()
    survivors = "\n".join(map(str, result.survivors))
    assert result.share >= GOAL, f"{result.caught} of {result.total} caught; these live:\n{survivors}"

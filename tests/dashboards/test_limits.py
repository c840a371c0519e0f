"""Where lines are drawn, and what happens when a rule no longer has the number."""

from __future__ import annotations

from pathlib import Path

import pytest

from grafana_dashboards.generate import META_RULES
from grafana_dashboards.limits import LimitError, compared, meta, variable
from grafana_dashboards.model import Line
from grafana_dashboards.palette import ORANGE, VERMILION
from rules.loader import load_text

BUNDLE = load_text(
    """
group: g
layer: 1
question: Is it so?
vars:
  top: {value: 0.25, unit: "1", doc: "a line", range: [0, 1]}
  other: {value: 2, unit: "1", doc: "a line", range: [0, 9]}
rules:
  - alert: High
    id: high
    expr: grad_norm > max($top, 3 * recorded(grad_norm))
    severity: page
    summary: "x"
    next: ["y"]
    runbook: z
  - alert: Low
    id: low
    expr: ess_ratio < 0.95 and policy_entropy >= 1.5e-3 and reward_mean > 2 * baseline(reward_mean)
    for: 2 records
    severity: warning
    summary: "x"
    next: ["y"]
    runbook: z
"""
)


def test_a_variable_is_drawn_in_the_colour_of_its_alert() -> None:
    assert variable(BUNDLE, "High", "top") == Line(0.25, VERMILION)


def test_a_number_that_is_compared() -> None:
    assert compared(BUNDLE, "Low", "ess_ratio") == Line(0.95, ORANGE)
    assert compared(BUNDLE, "Low", "policy_entropy") == Line(0.0015, ORANGE)


@pytest.mark.parametrize(
    ("rule", "name"), [("High", "other"), ("Low", "top"), ("Gone", "top")], ids=["not used", "of another rule", "no such rule"]
)
def test_a_line_that_no_rule_has_is_an_error(rule: str, name: str) -> None:
    with pytest.raises(LimitError, match=rule):
        variable(BUNDLE, rule, name)


@pytest.mark.parametrize("metric", ["reward_mean", "grad_norm", "entropy"])
def test_a_comparison_with_anything_but_a_number_is_an_error(metric: str) -> None:
    with pytest.raises(LimitError, match="does not compare"):
        compared(BUNDLE, "Low", metric)


def rules_file(folder: Path, expr: str) -> Path:
    file = folder / "rules.yaml"
    file.write_text(
        f"groups: [{{name: g, rules: [{{record: r, expr: up}}, {{alert: A, expr: '{expr}', labels: {{severity: page}}}}]}}]",
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize(("right", "value"), [("60", 60.0), ("2 * 3600 + 600", 7800.0), ("0.5", 0.5), ("3e-2*2", 0.06)])
def test_the_line_of_a_meta_rule(tmp_path: Path, right: str, value: float) -> None:
    line = meta(rules_file(tmp_path, f"max(x) > {right}"), "A")
    assert line.value == pytest.approx(value) and line.colour == VERMILION


def test_meta_rules_that_have_no_line(tmp_path: Path) -> None:
    file = rules_file(tmp_path, "x > y")
    for alert, why in (("A", "no plain number"), ("B", "no alert B")):
        with pytest.raises(LimitError, match=why):
            meta(file, alert)
    with pytest.raises(LimitError, match="cannot be read"):
        meta(tmp_path / "absent", "A")


def test_the_lines_of_the_service_dashboard_are_those_of_the_meta_rules() -> None:
    text = META_RULES.read_text(encoding="utf-8")
    for alert in ("TocsinBehind", "TocsinDeliveryLate", "TocsinCanaryOverdue"):
        assert alert in text and meta(META_RULES, alert).value > 0

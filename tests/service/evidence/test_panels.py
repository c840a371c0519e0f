"""Which curves the chart of an incident shows."""

from __future__ import annotations

import math

from msgspec.structs import replace

from service.evidence.bundle import Line
from service.evidence.history import Said
from service.evidence.panels import MAX_PANELS, panels
from tests.kit.bundles import BUNDLE, bundle

RULE = BUNDLE.rules[0]


def line(key: str, *values: float) -> Line:
    return Line(key=key, steps=tuple(range(1, len(values) + 1)), values=values)


def test_a_metric_against_its_limit_is_one_panel_with_all_that_is_known() -> None:
    (panel,) = panels(BUNDLE)
    assert (panel.title, panel.normal, panel.onset, panel.fired) == ("grad_norm", (1.2, 0.15), 120, 121)
    assert panel.moved == "moved at step 120"
    assert panel.limits[-1] == 10.0 and panel.odd == [126]
    assert panel.newest is not None and math.isfinite(panel.newest)


def test_a_comparison_of_something_else_has_a_panel_of_its_own_words() -> None:
    said = tuple(Said(step, "ok", float(step) * 2, 7.0) for step in range(1, 4))
    rule = replace(RULE, expr="grad_norm / reward_mean > 7", said=said)
    first, second = panels(bundle(rules=(rule,), lines=(line("grad_norm", 1.0, 2.0, 3.0),)))
    assert (first.title, list(first.values), list(first.limits)) == (rule.expr, [2.0, 4.0, 6.0], [7.0] * 3)
    assert (second.title, second.limits) == ("grad_norm", ())


def test_a_rule_that_compares_no_numbers_shows_its_metric() -> None:
    rule = replace(RULE, said=tuple(Said(step, "breach") for step in range(1, 4)))
    (panel,) = panels(bundle(rules=(rule,), lines=(line("grad_norm", 1.0, 2.0, 3.0),)))
    assert (panel.title, panel.limits, panel.fired) == ("grad_norm", (), 121)


def test_rules_first_then_what_moved_first_then_the_rest() -> None:
    lines = tuple(line(key, 1.0, 2.0) for key in ("a", "b", "c", "d", "grad_norm"))
    rule = replace(RULE, metrics=("a", "b", "c", "d"), said=tuple(Said(step, "ok", step * 1.0, 3.0) for step in (1, 2)))
    assert [panel.title for panel in panels(bundle(rules=(rule,), lines=lines))] == ["a", "grad_norm", "b", "c"]
    assert len(panels(bundle(rules=(rule,), lines=lines))) == MAX_PANELS


def test_nothing_to_show() -> None:
    assert panels(bundle()) == []

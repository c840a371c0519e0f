"""What the checks claim of numbers and conditions, held against the evaluation itself on runs at random."""

from __future__ import annotations

import math
from math import inf

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from collector.model import Baseline
from rules.checks.bounds import Bounds, Range, met, settled
from rules.checks.intervals import BOTH, Interval, Intervals
from rules.checks.vocabulary import Known
from rules.compile import Compiler
from rules.frame import FALSE, TRUE, Frame
from rules.language import parse
from rules.operands import Scope
from rules.syntax import Compare, Logic, Node, render
from tests.kit.expressions import conditions, expressions
from tests.kit.view import FakeRun

KNOWN = {"a": Known("ratio", 0.0, 1.0), "b": Known("count", 0.0), "c": Known("1", -5.0, 5.0)}
INTERVALS = Intervals(KNOWN, {})
SLOW = [HealthCheck.too_slow]  # a busy machine, not a strategy that cannot find anything


class NoAlerts:
    def fires(self, rule_id: str) -> bool:
        return False

    def last_fired(self, rule_id: str) -> int:
        return 0


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """A run of up to ten records whose metrics keep to their ranges; some records lack some of them."""
    run = FakeRun()
    quarters = {"a": st.integers(0, 4), "b": st.integers(0, 40), "c": st.integers(-20, 20)}
    for step in range(1, draw(st.integers(1, 10)) + 1):
        row = {name: draw(values) / 4 for name, values in quarters.items() if draw(st.integers(0, 9))}
        run.row(step, row)
    run.baselines["b"] = Baseline(centre=draw(st.integers(0, 8)) / 4, scale=1.0, count=20)
    run.recorded["a"] = draw(st.integers(0, 4)) / 4
    return Frame(run, NoAlerts())


def expression(text: str) -> Node:
    """A number as it stands in a comparison."""
    node = parse(f"{text} > 0")
    assert isinstance(node, Compare)
    return node.left


@given(expressions(), frames())
@settings(max_examples=300, suppress_health_check=SLOW)
def test_a_value_lies_in_its_interval(node: Node, frame: Frame) -> None:
    quantity = Compiler(Scope()).quantity(node)
    assume(quantity is not None)
    assert quantity is not None
    value = quantity(frame)
    if value is not None and math.isfinite(value):
        low, high = INTERVALS.of(node, {})
        room = 1e-9 * max(1.0, abs(value))
        assert low - room <= value <= high + room, render(node)


@given(conditions(), frames())
@settings(max_examples=300, suppress_health_check=SLOW)
def test_a_decided_condition_is_never_the_other(node: Node, frame: Frame) -> None:
    condition = Compiler(Scope()).condition(node)
    assume(condition is not None)
    assert condition is not None
    truth = INTERVALS.truth(node, {})
    if truth != BOTH:
        assert condition(frame) != (FALSE if truth == {True} else TRUE), render(node)


def comparisons() -> st.SearchStrategy[Compare]:
    """Comparisons of one of a few quantities, so that two of them often are about the same."""
    sides = ["a", "c", "2 * c", "-c", "mean(c[3])", "a - c", "c / 2 + 1", "b"]
    limits = ["-2", "0", "0.5", "1", "c", "2 * b", "0.5 * b", "baseline(b)"]
    text = st.tuples(st.sampled_from(sides), st.sampled_from(["<", "<=", ">", ">="]), st.sampled_from(limits))
    nodes = text.map(lambda parts: parse(" ".join(parts)))
    return nodes.filter(lambda node: isinstance(node, Compare))  # type: ignore[return-value] # filtered to comparisons


@given(st.lists(comparisons(), min_size=2, max_size=4), frames())
@settings(max_examples=400, suppress_health_check=SLOW)
def test_what_is_impossible_together_is_never_true_together(nodes: list[Compare], frame: Frame) -> None:
    whole: Node = nodes[0]
    for node in nodes[1:]:
        whole = Logic("and", whole, node)
    condition = Compiler(Scope()).condition(whole)
    assert condition is not None
    (bounds,) = Bounds(INTERVALS).alternatives(whole, "and")
    if any(span.empty for span in met(bounds).values()):
        assert condition(frame) != TRUE, render(whole)


@given(comparisons(), frames())
@settings(max_examples=300, suppress_health_check=SLOW)
def test_a_bound_and_its_negation_cover_everything_once(node: Compare, frame: Frame) -> None:
    bounds = Bounds(INTERVALS)
    one, other = bounds.bound(node), bounds.bound(node, negated=True)
    if one is None or other is None:
        return
    assert one.quantity == other.quantity
    assert one.range.meet(other.range).empty
    assert (one.range.low, one.range.high) in ((-inf, other.range.low), (other.range.high, inf))


# ---- by hand


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a", 0, 1),
        ("1 - a", 0, 1),
        ("a - a", -1, 1),
        ("-b", -inf, 0),
        ("c * c", -25, 25),
        ("a / 2", 0, 0.5),
        ("1 / c", -inf, inf),
        ("a / b", 0, inf),
        ("abs(c)", 0, 5),
        ("exp(-b)", 0, 1),
        ("sqrt(a)", 0, 1),
        ("log(a)", -inf, 0),
        ("clamp(c, 0, 2)", 0, 2),
        ("max(a, 0.5)", 0.5, 1),
        ("min(b, 3)", 0, 3),
        ("mean(a[20])", 0, 1),
        ("sum(a[4])", 0, 4),
        ("std(a[5])", 0, 0.5),
        ("delta(c[2])", -10, 10),
        ("drop(b[5])", 0, 1),
        ("drop(c[5])", 0, inf),
        ("count(c[5])", 5, 5),
        ("count(c[2..5])", 2, 5),
        ("count(c[5 steps])", 1, 5),
        ("changes(a[5])", 0, 4),
        ("nonfinite(c[5])", 0, 5),
        ("baseline(a)", 0, 1),
        ("recorded(c)", -5, 5),
        ("age(a)", 0, inf),
        ("zscore(a[20])", -inf, inf),
        ("unheard_of", -inf, inf),
        ("`a`", -inf, inf),
    ],
)
def test_intervals(text: str, low: float, high: float) -> None:
    assert INTERVALS.of(expression(text), {}) == Interval(low, high)


def test_record_rules_and_variables_are_followed() -> None:
    intervals = Intervals(KNOWN, {"level": (expression("mean(a[3]) + $shift"), {"shift": 2.0})})
    assert intervals.of(expression("level"), {}) == Interval(2, 3)
    assert intervals.of(settled(expression("$limit * 2"), {"limit": 4.0}), {}) == Interval(8, 8)


def test_ranges() -> None:
    above, below = Range(low=3, low_open=False), Range(high=3, high_open=True)
    assert above.meet(below).empty
    assert not above.meet(Range(high=3, high_open=False)).empty
    assert Range(low=5).inside(above) and not above.inside(Range(low=5))

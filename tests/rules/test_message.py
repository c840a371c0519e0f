"""Message templates: what they may do, what fails at load, and that nothing fails at night."""

from __future__ import annotations

import math

import pytest

from rules.engine import Engine
from rules.loader import load_text
from rules.message import MAX_CHARS, TemplateFault, duration, fixed, listed, pct, render, sig, try_out
from rules.run_states import RunStates
from tests.kit.view import FakeRun, judge


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (sig(0.0123456), "0.0123"),
        (sig(0.0123456, 2), "0.012"),
        (sig(1234567.0, 3), "1.23e+06"),
        (sig(math.nan), "nan"),
        (sig(-math.inf), "-inf"),
        (sig(None), "n/a"),
        (sig("x"), "x"),
        (pct(0.125), "12.5 %"),
        (pct(0.5, 0), "50 %"),
        (pct(None), "n/a"),
        (pct(math.nan), "nan"),
        (fixed(1.2345), "1.23"),
        (fixed(None), "n/a"),
        (duration(0), "0s"),
        (duration(95), "1m 35s"),
        (duration(7260), "2h 1m"),
        (duration(200_000), "2d 7h"),
        (duration(-5), "-5s"),
        (duration(None), "n/a"),
        (duration(math.inf), "inf"),
    ],
)
def test_filters(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ value | sig(2) }} of {{ limit | pct }} at step {{ step }}",
        "{{ labels.component }} {{ run_labels['model'] }} {{ config.group_size }} {{ vars.stop }}",
        "{% if value is none %}no value{% else %}{{ value | fixed(1) }}{% endif %}",
        "{{ names or 'some' }} {{ 'is' if value == 1 else 'are' }} gone",
        "plain",
    ],
)
def test_good_templates(text: str) -> None:
    try_out(text, "Alert", "page", {"stop": 0.01})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ value", "the template is wrong"),
        ("{{ valu }}", "undefined"),
        ("{{ vars.stopp }}", "no attribute 'stopp'"),
        ("{{ value | sgi(2) }}", "No filter named 'sgi'"),
        ("{{ value * 100 }}", "use a filter that knows missing values"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ run.__class__ }}", "unsafe"),
        ("{% if value is none %}{% else %}x{% endif %}", "the message is empty"),
        ("{% include 'x' %}", "no loader"),
        ("{{ range(9) }}", "undefined"),
        ("{{ names }}", "the message is empty with value and limit missing"),
    ],
)
def test_bad_templates(text: str, says: str) -> None:
    with pytest.raises(TemplateFault, match=says):
        try_out(text, "Alert", "page", {"stop": 0.01})


def test_a_message_is_one_line_and_not_endless() -> None:
    assert render("a\n\n  b\tc", {}) == "a b c"
    assert len(render("x" * 5_000, {})) == MAX_CHARS


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (tuple("abcde"), "a, b, c, d, e"),
        (tuple("abcdef"), "a, b, c, d, e and 1 more"),
        (tuple("abcdefgh"), "a, b, c, d, e and 3 more"),
    ],
)
def test_names_are_listed_up_to_five(names: tuple[str, ...], text: str) -> None:
    assert listed(names) == text


COUNTING = """
group: g
layer: 3
question: q
rules:
  - {record: worst, expr: "max(vanished_metric_count[1])"}
  - {alert: Bad, id: bad, expr: "nonfinite_metric_count > 0", severity: page, summary: "Bad: {{ names or 'no names' }}"}
  - {alert: Gone, id: gone, expr: "worst > 0", severity: info, summary: "Gone: {{ names or 'no names' }}"}
  - {alert: Both, id: both, expr: "worst > 0 and nonfinite_metric_count > 0", severity: info, summary: "{{ names or 'none' }}"}
  - {alert: Other, id: other, expr: "x > 0", severity: info, summary: "Other: {{ names or 'no names' }}"}
"""


def test_a_message_names_the_metrics_that_its_rules_inputs_have_counted() -> None:
    subject, run, states = Engine(load_text(COUNTING)), FakeRun(), RunStates()
    run.reasons = {"nonfinite_metric_count": ("grad_norm", "kl"), "vanished_metric_count": ("loss", "kl")}
    run.row(1, nonfinite_metric_count=2.0, vanished_metric_count=2.0, x=1.0)
    told = {event.alert: event.summary for event in judge(subject, run, states).events}
    assert told == {
        "Bad": "Bad: grad_norm, kl",
        "Gone": "Gone: loss, kl",
        "Both": "loss, kl, grad_norm",
        "Other": "Other: no names",
    }


def test_a_count_without_names_is_still_told() -> None:
    subject, run, states = Engine(load_text(COUNTING)), FakeRun(), RunStates()
    run.row(1, nonfinite_metric_count=2.0)
    (event,) = judge(subject, run, states).events
    assert event.summary == "Bad: no names"

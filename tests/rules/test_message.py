"""Message templates: what they may do, what fails at load, and that nothing fails at night."""

from __future__ import annotations

import math

import pytest

from rules.message import MAX_CHARS, TemplateFault, duration, fixed, pct, render, sig, try_out


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
    ],
)
def test_bad_templates(text: str, says: str) -> None:
    with pytest.raises(TemplateFault, match=says):
        try_out(text, "Alert", "page", {"stop": 0.01})


def test_a_message_is_one_line_and_not_endless() -> None:
    assert render("a\n\n  b\tc", {}) == "a b c"
    assert len(render("x" * 5_000, {})) == MAX_CHARS

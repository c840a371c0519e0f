"""Templates of messages: what they may say, what they may not do, what they cost, and that a failure costs nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from alerts.templates import (
    MAX_BODY,
    MAX_LINES,
    MAX_SECONDS,
    MAX_TEMPLATE,
    MAX_TITLE,
    NOTHING,
    SAMPLE,
    Fields,
    TemplateFault,
    Templates,
    compile_template,
    rendered,
    try_out,
)


def made(text: str, fields: Fields = SAMPLE, part: str = "body") -> str:
    return rendered(compile_template(text), fields, part)


def test_what_it_says() -> None:
    assert made("{{ word }} {{ run }}: {{ alert }}") == "PAGE grpo-7b-042: LogprobGapStop"
    assert made("{{ value | sig(2) }} of {{ limit | pct }}") == "0.012 of 1.0 %"
    assert made("{% for line in facts %}{{ line }}\n{% endfor %}team {{ run_labels.team }}, {{ run_labels.owner }}") == (
        "Value: 0.0123, limit 0.01\nteam reasoning,"
    )
    assert made("{% if resolved %}over{% else %}{{ next | join('; ') | upper }}{% endif %}") == "DO NOT TUNE."
    assert made("{{ value | sig }}|{{ layer + 1 }}", NOTHING) == "n/a|1"


def test_the_sample_has_every_field_and_nothing_has_none() -> None:
    full, bare = SAMPLE.asdict(), NOTHING.asdict()
    assert {name for name, value in full.items() if value in ("", None, ())} == {"explained_by"}
    assert not any(value for value in bare.values())
    assert UNSET not in full.values()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ summry }}", "fails with a sample: 'summry' is undefined (did you mean 'summary'?)"),
        ("{{ rum }}", "'rum' is undefined (known: word, "),
        ("{{ run ", "line 1: "),
        ("a\n{% for x in next %}", "line 2: "),
        ("{{ run | shout }}", "line 1: No filter named 'shout' (known: "),
        ("{{ value | duraton }}", "did you mean 'duration'"),
        ("{{ value * 2 }}", "fails with every field missing: SecurityError: * is for numbers (use a filter"),
        ("{{ run.upper() }}", "line 1: a call cannot be used here"),
        ("{{ loop.cycle('a') }}", "a call"),
        ("{% macro m() %}{% endmacro %}", "macro cannot be used"),
        ("{% set a = 1 %}", "`set` cannot be used"),
        ("{% set a %}x{% endset %}", "`set` cannot be used"),
        ("{{ run ~ run }}", "`~` cannot be used"),
        ("{{ 2 ** 2 }}", "`**` cannot be used"),
        ("{% include 'x' %}", "include cannot be used"),
        ("{% extends 'x' %}", "extends cannot be used"),
        ("{{ run.__class__ }}", "fails with a sample"),
        ("{{ 'x' * 1000000000 }}", "SecurityError"),
        ("{{ '%1000000000d' % 1 }}", "SecurityError"),
        ("{{ run + run }}", "SecurityError"),
        ("{{ " + "(" * 1_500 + "1" + ")" * 1_500 + " }}", "it nests too deeply"),
        ("x" * (MAX_TEMPLATE + 1), "at most 4000 characters"),
        (
            "{% for a in run %}{% for b in run %}{% for c in run %}{% endfor %}{% endfor %}{% endfor %}",
            "loops nest 3 times, at most 2",
        ),
    ],
)
def test_what_is_refused_at_load(text: str, why: str) -> None:
    with pytest.raises(TemplateFault) as caught:
        try_out(text, "body")
    assert why in str(caught.value)


def test_a_title_is_never_empty() -> None:
    with pytest.raises(TemplateFault, match="the title is empty with every field missing"):
        try_out("{{ run }}", "title")
    with pytest.raises(TemplateFault, match="the title is empty with an end"):
        try_out("{% if not resolved %}x{% endif %}", "title")
    try_out("{{ word or 'ALERT' }} {{ run }}", "title")
    try_out("{{ summary }}", "summary")


def test_limits() -> None:
    many = Fields(facts=tuple(f"line {number} \x1b[2J" for number in range(200)), run="r\n\u202e" * 900)
    body = made("{% for line in facts %}{{ line }}\n\n{% endfor %}", many).split("\n")
    assert len(body) == MAX_LINES + 1 and body[-1].startswith("and ") and "\x1b" not in body[0]
    title = made("{{ run }}", many, "title")
    assert len(title) == MAX_TITLE and title.endswith("…") and "\n" not in title and "\u202e" not in title
    assert made("{{ 1 | fixed(1000000000) }}|{{ 1 | sig(1000000000) }}", part="title") == "1." + "0" * 20 + "|1"


def test_joins_of_joins_do_not_grow() -> None:
    many = Fields(facts=("x" * 1_000,) * 30)
    text = "facts | join"
    for _ in range(20):
        text = f"facts | join({text})"
    assert len(made("{{ " + text + " }}", many)) <= MAX_BODY


def test_it_ends_in_time() -> None:
    clock = iter(range(0, 100_000, 1))
    template = compile_template("{% for a in facts %}{{ a }}{% endfor %}")
    with pytest.raises(TemplateFault, match="longer than"):
        rendered(template, Fields(facts=("x",) * 20), "body", clock=lambda: next(clock) * MAX_SECONDS)


def test_two_loops_over_the_longest_text_are_not_much() -> None:
    """No bound on speed is meant here: without the bound on loops this would not come back at all."""
    long = Fields(run="x" * 1_000)
    began = time.monotonic()
    made("{% for a in run %}{% for b in run %}{% endfor %}{% endfor %}", long)
    assert time.monotonic() - began < 60.0


def test_a_failure_is_told_and_leaves_the_others() -> None:
    told: list[str] = []
    parts = {"title": compile_template("{{ 1 // layer }}"), "summary": compile_template("{{ alert }}")}
    found, failed = Templates(parts, told.append).apply(
        NOTHING,
    )
    assert (found, failed) == ({"summary": ""}, ["title"])
    assert told == ["the template of the title failed on incident : ZeroDivisionError: integer division or modulo by zero"]
    empty = Templates({"title": compile_template("{{ run }}")}, told.append)
    assert empty.apply(NOTHING) == ({}, ["title"])


WORDS = st.sampled_from(
    [
        "{{",
        "}}",
        "{%",
        "%}",
        "for",
        "in",
        "if",
        "endif",
        "endfor",
        "run",
        "facts",
        "|",
        "join",
        "sig",
        "*",
        "~",
        "(",
        ")",
        "1",
        ".",
        "x",
        " ",
        "set",
        "=",
    ]
)


@given(st.lists(WORDS, max_size=25).map(" ".join))
@settings(max_examples=300)
def test_whatever_is_written_is_a_template_or_a_fault(text: str) -> None:
    try:
        template = try_out(text, "body")
    except TemplateFault:
        return
    assert len(rendered(template, SAMPLE, "body")) <= MAX_BODY

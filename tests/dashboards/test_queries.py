"""Interpolation as Grafana does it, and what of it can be said for any value."""

from __future__ import annotations

import re

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grafana_dashboards.queries import (
    LabelValues,
    UndefinedVariable,
    interpolated,
    label_values,
    several,
    single,
    variables,
)

# What a run may be called: anything printable. Line feeds are refused by nobody, and no picker shows them.
NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=30)


@pytest.mark.parametrize("text", ["$run", "${run}", "${run:regex}", "[[run]]", "[[run:regex]]", "${run.text:raw}"])
def test_every_way_to_write_a_variable(text: str) -> None:
    assert interpolated(f"a {text} b", {"run": "x"}) == "a x b"
    assert variables(text) == {"run"}


def test_what_is_no_variable_stays() -> None:
    assert interpolated('label_replace(x, "a", "$1", "b", "(.*)$")', {}) == 'label_replace(x, "a", "$1", "b", "(.*)$")'


def test_an_undefined_variable_is_an_error_also_inside_of_a_matcher() -> None:
    with pytest.raises(UndefinedVariable, match=r"\$nope"):
        interpolated('x{run=~"$nope"}', {"run": "x"})


def test_values_are_replaced_once() -> None:
    assert interpolated("$a", {"a": "$b", "b": "no"}) == "$b"


def _matched(text: str) -> tuple[str, str]:
    selector = promql_parser.parse(text)
    assert isinstance(selector, promql_parser.VectorSelector)
    (matcher,) = selector.matchers.matchers
    return str(matcher.op), matcher.value


@given(NAMES)
def test_a_single_value_arrives_as_it_is(name: str) -> None:
    assert _matched(f'x{{run="{single(name)}"}}')[1] == name


@given(st.lists(NAMES, min_size=1, max_size=3), NAMES)
def test_several_values_match_themselves_and_nothing_else(names: list[str], other: str) -> None:
    pattern = _matched(f'x{{run=~"{several(names)}"}}')[1]
    for name in names:
        assert re.fullmatch(pattern, name)
    assert bool(re.fullmatch(pattern, other)) == (other in names)


def test_what_a_variable_asks_for() -> None:
    assert label_values('label_values(a{b="c, d"}, run)') == LabelValues('a{b="c, d"}', "run")
    assert label_values("label_values(run)") is None and label_values("up") is None

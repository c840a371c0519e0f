"""The compact notation of a series."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.rule_tests.notation import MAX_STEPS, NotationError, format_value, parse_series


def test_the_example_of_the_page() -> None:
    values = parse_series("0.0005x20 0.012x3 _ nan inf -inf")
    assert values[:23] == [0.0005] * 20 + [0.012] * 3
    assert values[23] is None
    assert values[24] is not None and math.isnan(values[24])
    assert values[25:] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", [1.0]),
        ("1e-3x2", [0.001, 0.001]),
        ("_x2 1", [None, None, 1.0]),
        ("1..2x3", [1.0, 1.5, 2.0]),
        ("2..1x2", [2.0, 1.0]),
        ("-1..1x3", [-1.0, 0.0, 1.0]),
        ("(1 _)x2 3", [1.0, None, 1.0, None, 3.0]),
        ("((1 2)x2 3)x2", [1.0, 2.0, 1.0, 2.0, 3.0] * 2),
        ("(1 2)", [1.0, 2.0]),
        ("  1\n 2 ", [1.0, 2.0]),
    ],
)
def test_forms(text: str, values: list[float | None]) -> None:
    assert parse_series(text) == values


@pytest.mark.parametrize(
    ("text", "offset", "part"),
    [
        ("", 0, "empty series"),
        ("1 2 tree", 4, "'tree' is no value"),
        ("1 2x", 2, "'2x' is no value"),
        ("1..2", 0, "'1..2' is no value"),
        ("1..2x1", 0, "two ends"),
        ("inf..2x3", 0, "finite ends"),
        ("1x0", 0, "zero times"),
        ("1 (2", 2, "not closed"),
        ("1 2)x3", 3, "never opened"),
        ("1 ()x3", 3, "empty pair"),
        (f"1x{MAX_STEPS + 1}", 0, "more than"),
        ("(1x5000 1x5000)x2", 14, "more than"),
        (".5", 0, "'.5' is no value"),
        ("(" * 30, 20, "nested deeper"),
    ],
)
def test_what_is_no_series_says_where_and_why(text: str, offset: int, part: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_series(text)
    assert part in str(caught.value)
    assert caught.value.offset == offset


_VALUES = st.one_of(st.none(), st.integers(-999, 999).map(float), st.sampled_from([math.inf, -math.inf, 0.5, 1e-9]))


@given(st.lists(_VALUES, min_size=1, max_size=30))
def test_values_that_are_written_are_read_again(values: list[float | None]) -> None:
    assert parse_series(" ".join(map(format_value, values))) == values


@given(st.text(alphabet="01.x_()ein f-+a", max_size=30))
def test_any_text_is_a_series_or_a_notation_error(text: str) -> None:
    try:
        assert parse_series(text)
    except NotationError as error:
        assert 0 <= error.offset <= len(text)

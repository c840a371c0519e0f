"""Dicts that were printed, read without evaluating them, against Python's own reader."""

from __future__ import annotations

import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.formats.dict_literal import Status, read

KEYS = st.text(max_size=12)
NUMBERS = st.one_of(st.floats(), st.integers(-(10**12), 10**12), st.none(), st.booleans())
PLAIN = st.dictionaries(KEYS, st.one_of(NUMBERS, st.floats().map(lambda value: f"{value:.4g}")), min_size=1, max_size=6)
NESTED = st.dictionaries(
    KEYS, st.one_of(NUMBERS, st.text(max_size=8), st.lists(st.text(max_size=4), max_size=3), PLAIN), min_size=1, max_size=6
)


def same(got: float | str | None, want: object) -> bool:
    if isinstance(want, str):
        try:
            want = float(want)
        except ValueError:
            return got == want or isinstance(got, str)  # escapes stay as they were printed
    if want is None or got is None:
        return got is want
    assert isinstance(want, float | int)
    return isinstance(got, float) and (got == want or (math.isnan(got) and math.isnan(want)))


def _key(printed: str) -> str:
    """A key as it stands in the text, without its quotes."""
    return repr(printed)[1:-1]


@given(NESTED, st.text(max_size=5), st.text(max_size=5))
def test_what_python_prints_is_read_back(value: dict[str, object], before: str, after: str) -> None:
    text = before + repr(value) + after
    literal = read(text, len(before))
    assert literal.status is Status.COMPLETE
    assert literal.end == len(before) + len(repr(value))
    kept = {_key(key): item for key, item in value.items() if not isinstance(item, list | dict)}
    assert set(literal.values) == set(kept)
    assert all(same(literal.values[key], kept[key]) for key in kept)


@given(PLAIN, st.data())
def test_a_text_that_ends_inside_is_open(value: dict[str, object], data: st.DataObject) -> None:
    text = repr(value)
    cut = data.draw(st.integers(1, len(text) - 1))
    assert read(text[:cut], 0).status is Status.OPEN


@given(st.text(alphabet="{}[]()'\":, \\abc01.eE+-npNone", max_size=40))
def test_whatever_the_text(text: str) -> None:
    literal = read("{" + text, 0)
    if literal.status is Status.COMPLETE:
        try:
            value = ast.literal_eval("{" + text[: literal.end - 1])
        except (ValueError, SyntaxError, TypeError):
            return  # nan, inf, np.float64(1): names to Python
        assert isinstance(value, dict)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{'a': np.float64(0.5), 'b': numpy.int64(3), 'c': np.float32(nan)}", {"a": 0.5, "b": 3.0, "c": math.nan}),
        ("{ 'a' :1,'b':  2.,\t'c':.5e-3 , }", {"a": 1.0, "b": 2.0, "c": 0.0005}),
        ('{"a": "0.25", \'b\': "x"}', {"a": 0.25, "b": "x"}),
        ("{'a': [1, '}', {'x': ')'}], 'b': 1}", {"b": 1.0}),
        ("{'profiling/Time taken: X.f': 0.5, 'a, b': 1}", {"profiling/Time taken: X.f": 0.5, "a, b": 1.0}),
        ("{'a': -inf, 'b': True, 'c': None}", {"a": -math.inf, "b": 1.0, "c": None}),
    ],
)
def test_forms(text: str, values: dict[str, float | str | None]) -> None:
    literal = read(text, 0)
    assert (literal.status, literal.end) == (Status.COMPLETE, len(text))
    assert repr(literal.values) == repr(values)


@pytest.mark.parametrize(
    "text", ["{'a': b}", "{'a' 1}", "{a: 1}", "{'a': 1; 'b': 2}", "{'a': tensor(1)}", "{1: 2}", "{'a': [1] 2}"]
)
def test_other_things_are_broken(text: str) -> None:
    assert read(text, 0).status is Status.BROKEN


def test_a_list_that_never_ends_does_not_cost_the_whole_text() -> None:
    assert read("{'a': [" + "1, " * 100_000, 0).status is Status.BROKEN

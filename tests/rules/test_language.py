"""The grammar: what parses, what does not and where, and text -> tree -> text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.language import LanguageError, parse, seconds
from rules.syntax import (
    Binary,
    Call,
    Compare,
    Duration,
    Logic,
    Metric,
    Negate,
    Node,
    Not,
    Number,
    Text,
    Variable,
    Window,
    render,
)
from tests.kit.expressions import conditions, expressions


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 * 3 - 4", Binary("-", Binary("+", Number(1), Binary("*", Number(2), Number(3))), Number(4))),
        ("a - b - c", Binary("-", Binary("-", Metric("a"), Metric("b")), Metric("c"))),
        ("-a * b", Binary("*", Negate(Metric("a")), Metric("b"))),
        ("-1.5", Number(-1.5)),
        ("a or b and not c", Logic("or", Metric("a"), Logic("and", Metric("b"), Not(Metric("c"))))),
        ("not a > 1 and b", Logic("and", Not(Compare(">", Metric("a"), Number(1))), Metric("b"))),
        ("order > band", Compare(">", Metric("order"), Metric("band"))),
        ("x[20]", Window(Metric("x"), "records", 20)),
        ("x[5..20 offset 1]", Window(Metric("x"), "records", 20, 1, 5)),
        ("x[20 offset 1]", Window(Metric("x"), "records", 20, 1)),
        ("x[20 steps offset 2]", Window(Metric("x"), "steps", 20, 2)),
        ("x[20steps]", Window(Metric("x"), "steps", 20)),
        ("x[10m offset 30s]", Window(Metric("x"), "time", 600, 30)),
        ("offset[3]", Window(Metric("offset"), "records", 3)),
        ("steps[3 steps]", Window(Metric("steps"), "steps", 3)),
        ('r{component="a\\"b\\\\"}[3]', Window(Metric("r", "component", 'a"b\\'), "records", 3)),
        ("`actor/pg loss@1`", Metric("actor/pg loss@1", raw=True)),
        ("$limit", Variable("limit")),
        ("1.5h", Duration(5400)),
        ("250ms", Duration(0.25)),
        ("1e-3", Number(0.001)),
        ("1.e5", Number(100000.0)),
        ('f(x, 3, "t")', Call("f", (Metric("x"), Number(3), Text("t")))),
        ("f()", Call("f", ())),
        ("a # comment\n > 1 # another", Compare(">", Metric("a"), Number(1))),
    ],
)
def test_what_parses(text: str, tree: Node) -> None:
    assert parse(text) == tree
    assert parse(render(tree)) == tree


@pytest.mark.parametrize(
    ("text", "offset", "says"),
    [
        ("", 0, "ends too early"),
        ("a >", 3, "ends too early"),
        ("a > 1 and", 9, "ends too early"),
        ("a < b < c", 6, "write `a < b and b < c`"),
        ("1 2", 2, "'2' is not expected"),
        ("x[0]", 2, "more than 0"),
        ("x[20..5]", 2, "1 <= m <= n"),
        ("x[99999]", 2, "at most 10,000 records"),
        ("x[1.5]", 2, "not expected"),
        ("x[3 records]", 4, "not expected"),
        ("x[40d]", 2, "at most"),
        ("'text'", 0, "double quotes"),
        ('"text', 0, "a text without its end"),
        ("`raw", 0, "a raw key without its end"),
        ("a && b", 2, "write `and`"),
        ("a || b", 2, "write `or`"),
        ("!a", 0, "write `not`"),
        ("a ^ 2", 2, "x * x"),
        ("5 % 2", 2, "a ratio"),
        ("(a", 2, "ends too early"),
        ("a)", 1, "not expected"),
        ("1e999", 0, "infinite"),
        ("x{a=1}", 4, "not expected"),
        ("x{}", 2, "not expected"),
        ("$1", 1, "not expected"),
        ("a ~ b", 2, "'~' is not expected"),
        ("not " * 100 + "a", 244, "nested deeper"),
        ("a" * 5000, 0, "the limit is"),
    ],
)
def test_what_does_not(text: str, offset: int, says: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse(text)
    assert says in caught.value.message
    assert caught.value.offset == offset


@pytest.mark.parametrize("text", ["10", "m", "10x", "", "ten m", "-5m", "10 m"])
def test_a_duration_has_a_number_and_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds(text)


@given(expressions())
@settings(max_examples=150)
def test_text_and_tree_are_the_same(node: Node) -> None:
    assert parse(render(node)) == node


@given(conditions())
@settings(max_examples=100)
def test_conditions_too(node: Node) -> None:
    text = render(node)
    assert parse(text) == node
    assert render(parse(text)) == text


@given(st.text(alphabet='abx019.[]()<>=!+-*/ "`$,{}#\nandorste', max_size=40))
@settings(max_examples=200)
def test_any_text_parses_or_says_where_it_is_wrong(text: str) -> None:
    try:
        parse(text)
    except LanguageError as error:
        assert 0 <= error.offset <= len(text)
        assert error.message

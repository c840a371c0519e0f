"""The strict reader: what PyYAML guesses is an error here, each with its place and what to write instead."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.config_errors import ConfigErrors
from rules.strict_yaml import MAX_DEPTH, parse
from rules.yaml_tree import Items, Scalar, Table, find


def fault(text: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        parse(text, "f.yaml")
    return str(caught.value)


def value(text: str) -> object:
    node = parse(f"key: {text}\n", "f.yaml")
    scalar = find(node, "key")
    assert isinstance(scalar, Scalar)
    return scalar.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("1E-3", 0.001),
        ("-1e-3", -0.001),
        ("1e3", 1000.0),
        ("1e+3", 1000.0),
        ("3e-4", 0.0003),
        ("1.0e-3", 0.001),
        ("1.5e+3", 1500.0),
        ("1.0e3", 1000.0),
        ("1.5e3", 1500.0),
        ("1.e5", 100000.0),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("0.5", 0.5),
        ("1.10", 1.1),
        ("true", True),
        ("false", False),
        ('"1.10"', "1.10"),
        ("'010'", "010"),
        ('"yes"', "yes"),
        ("a#b", "a#b"),
        ("3 records", "3 records"),
        ("10m", "10m"),
        ("v1.10", "v1.10"),
        ("qwen3-8b", "qwen3-8b"),
        ("a - b", "a - b"),
        ("y", "y"),
        ("info", "info"),
        ("nano", "nano"),
        ("Nan Jing", "Nan Jing"),
    ],
)
def test_what_a_scalar_is(text: str, expected: object) -> None:
    read = value(text)
    assert read == expected
    assert type(read) is type(expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("+.5", "a digit before the point"),
        (".5", "a digit before the point"),
        ("inf", "not finite"),
        ("nan", "not finite"),
        ("NaN", "not finite"),
        (".inf", "not finite"),
        ("-.inf", "not finite"),
        (".nan", "not finite"),
        ("1.0e+400", "infinite"),
        ("1e999", "infinite"),
        ("010", "octal"),
        ("08", "octal"),
        ("0o10", "octal"),
        ("0x1F", "octal"),
        ("00.5", "octal"),
        ("1:30", "base-60"),
        ("190:20:30", "base-60"),
        ("1:00", "base-60"),
        ("1_000", "write 1000"),
        ("0.1_0", "write 0.10"),
        ("no", "truth value"),
        ("NO", "truth value"),
        ("off", "truth value"),
        ("yes", "truth value"),
        ("on", "truth value"),
        ("True", "truth value"),
        ("2026-01-01", "a date"),
        ("2026-01-01T10:00:00Z", "a date"),
        ("~", "empty value"),
        ("", "empty value"),
        ("null", "empty value"),
        ("=", "meaning of its own"),
        ("!!str 3", "tag"),
        ("&a 3", "anchor &a"),
        ("12345678901234567890", "keeps exactly"),
    ],
)
def test_what_has_two_readings(text: str, says: str) -> None:
    message = fault(f"first: 1\nkey: {text}\n")
    assert message.startswith("f.yaml:2:")
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: 1\na: 2\n", "2:1", "'a' is there twice, first in line 1"),
        ("on: 1\n", "1:1", "key 'on' is no text"),
        ("no: 1\noff: 2\n", "2:1", "key 'off' is no text"),
        ("1: a\n", "1:1", "key '1' is no text"),
        ("1.0: a\n", "1:1", "key '1.0' is no text"),
        ("true: a\n", "1:1", "key 'true' is no text"),
        ("~: a\n", "1:1", "is no text"),
        ('"": a\n', "1:1", "an empty key"),
        ("? [a]\n: 1\n", "1:3", "a list or mapping as key"),
        ("<<: {a: 1}\n<<: {b: 1}\n", "1:1", "merge key"),
        ("a: &x 1\nb: *x\n", "2:4", "alias *x"),
        ("*x : 1\n", "1:1", "alias *x"),
        ("a: 1\n---\nb: 2\n", "2:1", "a second document"),
        ("%YAML 1.2\n---\na: 1\n", "1:1", "directive"),
        ("a:\n\tb: 1\n", "2:1", "tab in the indentation"),
        ("a: [1\n", "2:1", "not valid YAML"),
        ("a: b: c\n", "1:5", "quote text that contains ': '"),
        ("a: @x\n", "1:4", "quote text that begins"),
        ("", "1:1", "the file is empty"),
        ("# only a comment\n", "1:1", "the file is empty"),
        ("a: b\x07\n", "1:5", "U+0007"),
        ("a: \ud800\n", "1:4", "surrogate"),
        ("a: see issue #12\n", "1:14", "' #' ends unquoted text"),
        ("a: two words # lost\n", "1:14", "' #' ends unquoted text"),
        ("a: {b: two words # lost\n  }\n", "1:18", "' #' ends unquoted text"),
    ],
)
def test_what_a_file_may_not_have(text: str, place: str, says: str) -> None:
    message = fault(text)
    assert any(line.startswith(f"f.yaml:{place}:") and says in line for line in message.splitlines()), message


def test_a_comment_that_is_one_stays() -> None:
    node = parse("a: 3 records   # two spaces before it\nb: 1 # beside a number\nc: word # beside a word\n", "f.yaml")
    assert isinstance(node, Table)
    assert [find(node, key).text for key in "abc"] == ["3 records", "1", "word"]  # type: ignore[union-attr]


def test_all_faults_at_once() -> None:
    message = fault("a: yes\nb: 010\na: 1\nc: [1:30, *x]\n")
    assert [line.split(" ")[0] for line in message.splitlines()] == [
        "f.yaml:1:4:",
        "f.yaml:2:4:",
        "f.yaml:3:1:",
        "f.yaml:4:5:",
        "f.yaml:4:11:",
    ]


def test_nesting_is_bounded() -> None:
    assert "nested deeper" in fault("a: " + "[" * 200 + "]" * 200)
    assert isinstance(parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, "f"), Items)


def test_an_alias_bomb_is_only_a_list_of_errors() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 30)]
    assert "alias *a0" in fault("\n".join(lines))


def test_positions_inside_of_text() -> None:
    node = parse("a: one two\nb: 'x y'\nc: |\n  first\n  second\nd: >-\n  folded here\n  and there\n", "f")

    def place(key: str, word: str) -> tuple[int, int]:
        scalar = find(node, key)
        assert isinstance(scalar, Scalar)
        mark = scalar.at(scalar.text.index(word))
        return mark.line, mark.column

    assert place("a", "two") == (1, 8)
    assert place("b", "y") == (2, 7)
    assert place("c", "second") == (5, 3)
    assert place("d", "there") == (8, 7)


yaml_like = st.text(
    alphabet=st.sampled_from(list("abno019 \n\t:-#[]{}&*!|>'\"%@`~=<.,?_\\e\ufeff\x85\u2028")), max_size=60
) | st.text(max_size=40)


@given(yaml_like)
@settings(max_examples=200)
def test_any_text_loads_or_says_why(text: str) -> None:
    try:
        node = parse(text, "f.yaml")
    except ConfigErrors as errors:
        assert errors.errors
        for error in errors.errors:
            assert error.line >= 1
            assert error.column >= 1
            assert error.message
    else:
        assert isinstance(node, Scalar | Items | Table)

"""What all checks return, and how numbers look in a table."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.checks.report import WIDTH, Hint, Number, Report, Table, counted, listed, percent, shown

FULL = Report(
    check="example",
    numbers={"a": 1, "b": math.nan, "c": -math.inf, "d": None},
    failures=("one reason",),
    warnings=("a note",),
    hints=(Hint("cause", "because of this"),),
    names={"differing": ("x", "y")},
    tables=(Table("numbers", ("name", "value"), (("a", "1"), ("longer", "20")), frozenset({"name"})),),
)


def test_the_text_of_a_report() -> None:
    assert str(FULL) == FULL.table()
    assert FULL.table() == (
        "example: FAILED\n"
        "  fails: one reason\n"
        "  note: a note\n"
        "  probable cause: because of this\n"
        "\n"
        "numbers\n"
        "  name    value\n"
        "  a           1\n"
        "  longer     20"
    )


def test_the_text_of_a_report_without_anything() -> None:
    assert str(Report("example", {})) == "example: passed"
    assert list(Table("nothing", ("a", "b"), ()).lines()) == ["nothing", "  a  b"]


@given(st.text(st.characters(codec="ascii", exclude_characters="\n"), min_size=1, max_size=400))
def test_long_sentences_are_wrapped_and_keep_their_words(text: str) -> None:
    found = str(Report("example", {}, failures=(text,))).splitlines()[1:]
    words = " ".join(found).split()
    assert words == f"fails: {text}".split()
    assert all(len(line) <= WIDTH or len(line.split()) == 1 for line in found)


def test_the_report_as_json() -> None:
    plain = json.loads(json.dumps(FULL.plain(), allow_nan=False))
    assert plain == {
        "check": "example",
        "passed": False,
        "failures": ["one reason"],
        "warnings": ["a note"],
        "hints": [{"cause": "cause", "text": "because of this"}],
        "numbers": {"a": 1, "b": "nan", "c": "-inf", "d": None},
        "names": {"differing": ["x", "y"]},
    }


def test_a_report_goes_from_rank_to_rank() -> None:
    for other in (pickle.loads(pickle.dumps(FULL)), copy.deepcopy(FULL), copy.copy(FULL)):
        for field in fields(Report):
            assert repr(getattr(other, field.name)) == repr(getattr(FULL, field.name))
        assert isinstance(other, Report)
        with pytest.raises(TypeError):
            other.numbers["a"] = 2  # type: ignore[index]  # that is the test


def test_a_report_keeps_its_numbers_when_the_callers_dict_changes() -> None:
    numbers: dict[str, Number] = {"a": 1}
    report = Report("example", numbers)
    numbers["a"] = 2
    assert report.numbers["a"] == 1


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"), (0, "0"), (1234567, "1,234,567"), (0.0, "0"), (0.5, "0.5"), (0.00012345, "0.0001234"),
        (0.000012345, "1.234e-05"), (-123456.0, "-1.235e+05"), (12345.6, "1.235e+04"), (math.nan, "nan"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_numbers(number: Number, text: str) -> None:
    assert shown(number) == text


def test_words() -> None:
    assert [percent(share) for share in (0, 0.001, 0.16824, 1)] == ["0 %", "0.1 %", "16.8 %", "100 %"]
    assert [counted(number, "tensor") for number in (0, 1, 2000)] == ["0 tensors", "1 tensor", "2,000 tensors"]
    assert listed("abcde") == "a, b, c, d, e"
    assert listed("abcdefg") == "a, b, c, d, e and 2 more"
    assert listed("abc", 1) == "a and 2 more"

"""Cleaning and cutting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.slack import escape
from alerts.text import clean, clean_line, cut_bytes, cut_characters, defused, fit, fit_list
from tests.kit.vectors import alerting

ANY_TEXT = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("<>&…🔔é\n\ud800")), max_size=80)


def test_n09_characters() -> None:
    for case in alerting()["N09"]["runes"]:
        cut = cut_characters(case["in"], case["n"])
        assert (cut.text, cut.removed > 0) == (case["out"], case["truncated"]), case


def test_n09_bytes() -> None:
    for case in alerting()["N09"]["bytes"]:
        cut = cut_bytes(case["in"], case["n"])
        assert (cut.text, cut.removed > 0) == (case["out"], case["truncated"]), case


@given(ANY_TEXT, st.integers(0, 90))
def test_cuts_fit_and_count(text: str, limit: int) -> None:
    by_characters = cut_characters(text, limit)
    assert len(by_characters.text) <= limit
    kept = by_characters.text if limit <= 3 or not by_characters.removed else by_characters.text[:-1]
    assert text.startswith(kept) and len(kept) + by_characters.removed == len(text)
    by_bytes = cut_bytes(text, limit)
    assert len(by_bytes.text.encode("utf-8", "replace")) <= limit
    assert (by_bytes.removed == 0) == (by_bytes.text == text)


@given(ANY_TEXT, st.integers(30, 90))
def test_what_is_fitted_is_never_cut_within_an_entity(text: str, limit: int) -> None:
    fitted = fit(text, limit, escape)
    assert len(fitted) <= limit
    if fitted != escape(text):
        shown, _, count = fitted.rpartition("… (+")
        kept = len(text) - int(count.removesuffix(" characters)"))
        assert shown == escape(text[:kept])


def test_fit_says_how_much_is_missing() -> None:
    assert fit("a" * 100, 40) == "a" * 21 + "… (+79 characters)"
    assert fit("abc", 3) == "abc"
    assert fit("a" * 100, 3) == "", "no room even for the count"


def test_lists_count_what_they_leave_out() -> None:
    items = [f"step {n}" for n in range(100)]
    assert fit_list(items[:2], 40) == "- step 0\n- step 1"
    assert fit_list(items, 40) == "- step 0\n- step 1\n- and 98 more"
    assert fit_list([], 40) == ""


@given(st.lists(ANY_TEXT, max_size=8), st.integers(60, 200))
def test_lists_fit(items: list[str], limit: int) -> None:
    fitted = fit_list(items, limit, escape)
    assert len(fitted) <= limit
    whole = "\n".join("- " + escape(item) for item in items)
    assert (len(whole) <= limit) == (fitted == whole)


@given(ANY_TEXT)
def test_clean_text_steers_nothing(text: str) -> None:
    for cleaned in (clean(text), clean_line(text)):
        cleaned.encode()
        assert not any(ord(c) < 32 and c not in "\n\t" for c in cleaned)
    assert len(clean_line(text).splitlines()) <= 1


def test_what_clean_takes_out() -> None:
    assert clean("a\x1b[31mred\u202egpj.exe\r\nb\tc") == "a\ufffd[31mredgpj.exe\nb\tc"
    assert clean_line("  a\r\n\r\nb\u2028c\td  ") == "a b c d"
    assert clean_line("\ud800x") == "\ufffdx"


@pytest.mark.parametrize(
    "text", ["<!channel>", "<@U123>", "<#C1|x>", "@everyone", "hello @Here!", "@channel", "@room", "https://h/x"]
)
def test_no_mention_is_left(text: str) -> None:
    assert defused(text) != text
    assert defused(text).replace("\u2060", "") == text


@pytest.mark.parametrize("text", ["a < b", "ada@exp-1", "x@hereby", "@1e-3", "<html>"])
def test_what_mentions_nobody_is_left_alone(text: str) -> None:
    assert defused(text) == text

"""Repeated runs of four words, against counting them one by one."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.batch.ngrams import MAX_CHARS, repeated_share
from tocsin.batch.scripts import code_points, is_spaceless


def oracle(text: str) -> float | None:
    words: list[str] = []
    for char in text:
        if "\u3041" <= char <= "\u30ff" or "\u4e00" <= char <= "\u9fff":
            words += ["", char, ""]
        elif char.isspace():
            words.append("")
        elif words:
            words[-1] += char
        else:
            words.append(char)
    words = [word for word in words if word]
    grams = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    seen: Counter[tuple[str, ...]] = Counter()
    repeats = 0
    for gram in grams:
        repeats += seen[gram] > 0
        seen[gram] += 1
    return repeats / len(grams) if grams else None


@settings(max_examples=200)
@given(st.text(st.sampled_from("aab  \n\u4e00\u3042\u00e9\u3000\x1c\ud83d"), max_size=60))
def test_against_counting(text: str) -> None:
    expected = oracle(text)
    assert repeated_share(text) == (expected if expected is None else pytest.approx(expected))


@settings(max_examples=100)
@given(st.text(st.characters()))
def test_words_are_those_of_split_where_there_are_spaces(text: str) -> None:
    words = text.split()
    if is_spaceless(code_points(text)).any():
        words = "".join(f" {char} " if is_spaceless(code_points(char)).any() else char for char in text).split()
    grams = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    assert repeated_share(text) == (pytest.approx(1 - len(set(grams)) / len(grams)) if grams else None)


@pytest.mark.parametrize("alphabet", ["ab ", "\u4e00\u4e01\u4e02", "a\u4e00 \u4e01b"])
def test_of_long_texts(alphabet: str) -> None:
    text = "".join(random.Random(0).choices(alphabet, k=MAX_CHARS))
    expected = oracle(text)
    assert expected is not None
    assert repeated_share(text) == pytest.approx(expected)
    assert 0.05 < expected < 1.0


def test_as_many_different_words_as_there_can_be() -> None:
    every = "".join(chr(0x20000 + index) for index in range(MAX_CHARS))
    assert repeated_share(every) == 0.0
    assert repeated_share(every[:30_000] + every[:30_000]) == pytest.approx(1 - 30_000 / 59_997)


def test_a_text_that_is_too_long_for_exact_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        repeated_share("x" * (MAX_CHARS + 1))


def test_few_words() -> None:
    assert {repeated_share(text) for text in ("", " \n ", "a b c", "\u4e00\u4e01\u4e02", "a \u4e00 b")} == {None}
    assert {repeated_share(text) for text in ("a b c d", "\u4e00\u4e01\u4e02\u4e03", "a\u4e00b\u4e01")} == {0.0}

"""Loops, garbage and templates in the texts of the responses."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.token_batches import measured, number
from tocsin.batch import Settings
from tocsin.batch.text import CUT, OPENING_CHARS, SAME_RUN, TEXT_CHARS

REPETITION, COMPRESSION = "response_repetition_ratio", "response_compression_ratio"
GARBLED, OPENING = "response_garbled_ratio", "response_opening_share"
ANY_TEXT = st.text(st.characters(), max_size=60)


def texts(*responses: str, prompt: str | None = None, seed: int = 0) -> Mapping[str, Any]:
    prompts = None if prompt is None else [prompt] * len(responses)
    return measured(Settings(seed=seed), responses=list(responses), prompt_texts=prompts).metrics


def test_repetition_by_hand() -> None:
    assert texts("a b c d e f")[REPETITION] == 0.0
    assert texts("go " * 100)[REPETITION] == pytest.approx(96 / 97)
    assert texts("a b c d a b c d")[REPETITION] == pytest.approx(1 / 5)
    assert texts("one two three", "")[REPETITION] is None
    assert texts("a b c d e f", "go " * 100, "short")[REPETITION] == pytest.approx(48 / 97), "each response counts the same"
    assert texts("\u6211\u4e0d\u77e5\u9053" * 5)[REPETITION] == pytest.approx(1 - 4 / 17), (
        "characters where there are no spaces"
    )


def test_compression_by_hand() -> None:
    prose = "The cat sat on the mat, and the dog lay by the door; neither of them moved until the rain had stopped outside."
    noise = "".join(random.Random(0).choices("0123456789abcdef", k=4000))
    loop = "wait, let me check. " * 200
    ratios = [texts(text)[COMPRESSION] for text in (loop, prose, noise)]
    assert ratios[0] < 0.05 < 0.5 < ratios[2] < 0.6
    packed = sum(len(zlib.compress(text.encode(), 6)) for text in (loop, noise))
    assert texts(loop, noise)[COMPRESSION] == pytest.approx(packed / (len(loop) + len(noise)))
    assert texts("", "")[COMPRESSION] is None
    assert texts("")[COMPRESSION] is None


def test_bytes_are_those_of_utf_8() -> None:
    text = "\u4e16\u754c\U0001f600\u00e9" * 50
    assert texts(text)[COMPRESSION] == pytest.approx(len(zlib.compress(text.encode(), 6)) / len(text.encode()))


GOOD = (
    "",
    "A plain answer.",
    "tab\tand\r\nlines\n",
    "caf\u00e9 \u2014 \u201cquoted\u201d \u221e \u2264 \U0001f600",
    "\u03b1 + \u03b2 = \u03c0, \u03a3x",
    "-" * (SAME_RUN - 1),
    "=" * 80,
    "Schr\u00f6dinger's na\u00efve \u0141\u00f3d\u017a",
    "| a | b |\n|---|---|\n" * 30,
    "100000000000000000000000000000",
)


@pytest.mark.parametrize("text", GOOD)
@pytest.mark.parametrize("prompt", [None, "What is it?", "\u4ec0\u4e48?"])
def test_text_that_is_fine(text: str, prompt: str | None) -> None:
    assert texts(text, prompt=prompt)[GARBLED] == 0.0


BAD = (
    "cut emoji \ufffd",
    "half \ud83d pair",
    "NUL \0",
    "bell \x07",
    "\x1b[31mred",
    "delete \x7f",
    "mojibake \x9d",
    "!" * SAME_RUN,
    "Fine, then " + "a" * 500,
    "\n" * 1000,
    "answer" + " " * SAME_RUN,
)


@pytest.mark.parametrize("text", BAD)
def test_text_that_is_garbled(text: str) -> None:
    assert texts(text)[GARBLED] == 1.0
    assert texts(text, "fine", "fine", "fine")[GARBLED] == 0.25
    assert texts("x" * 50 + " y" * 3 * CUT + text)[GARBLED] == 1.0, "at the end of a long response too"


def test_scripts_that_the_prompt_does_not_use() -> None:
    russian, chinese, japanese = (
        "\u043f\u0440\u0438\u0432\u0435\u0442",
        "\u4f60\u597d\u4e16\u754c",
        "\u3053\u3093\u306b\u3061\u306f",
    )
    english = "Solve x + 1 = 2."
    for foreign in (
        russian,
        chinese,
        japanese,
        "\uc548\ub155\ud558\uc138\uc694",
        "\u0645\u0631\u062d\u0628\u0627",
        "\u0e2a\u0e27\u0e31\u0e2a",
    ):
        assert texts(f"So x is 1 {foreign}", prompt=english)[GARBLED] == 1.0
        assert texts(f"So x is 1 {foreign}", prompt=f"{english} {foreign[:1]}")[GARBLED] == 0.0
        assert texts(f"So x is 1 {foreign[:2]}", prompt=english)[GARBLED] == 0.0, "a name or a symbol"
        assert texts(f"So x is 1 {foreign}")[GARBLED] == 0.0, "nobody knows the prompt"
    assert texts(f"{chinese} and {russian}", prompt=chinese)[GARBLED] == 1.0
    assert texts("So x is 1.", prompt=chinese)[GARBLED] == 0.0
    assert "prompt_texts" in measured(responses=["a"]).skipped[GARBLED]
    assert GARBLED not in measured(responses=["a"], prompt_texts=["b"]).skipped


def test_each_response_has_its_own_prompt() -> None:
    chinese = "\u4f60\u597d\u4e16\u754c"
    summary = measured(responses=[chinese, chinese], prompt_texts=[chinese, "hello"])
    assert number(summary, GARBLED) == 0.5


def test_openings() -> None:
    same = "Okay, so I need to find out what x is. "
    assert len(same) > OPENING_CHARS
    assert texts(*(same + str(index) for index in range(3)), "The answer is 2.")[OPENING] == 0.75
    assert texts("a", "b", "c", "a")[OPENING] == 0.5
    assert texts("  \n a\n\n b", "a b")[OPENING] == 1.0, "white space is none of it"
    assert texts("", "", "x")[OPENING] == pytest.approx(2 / 3)
    assert texts(*("x" * index + "y" * 50 for index in range(10)))[OPENING] == 0.1


def test_no_response() -> None:
    assert {name: texts()[name] for name in (REPETITION, COMPRESSION, GARBLED, OPENING)} == {
        REPETITION: None, COMPRESSION: None, GARBLED: None, OPENING: None,
    }  # fmt: skip
    assert {"repetition", "compression", "garbled", "opening"} <= measured(rewards=[1.0]).skipped.keys()


def test_the_end_of_a_long_response_is_looked_at() -> None:
    """A loop begins where the model had something to say."""
    beginning = " ".join(str(index) for index in range(CUT))
    calm, loop = beginning, beginning + " no" * CUT
    assert texts(calm)[REPETITION] == 0.0
    assert texts(loop)[REPETITION] > 0.4
    assert texts(loop)[COMPRESSION] < 0.75 * texts(calm)[COMPRESSION]


def test_a_step_that_is_too_large_is_sampled() -> None:
    """Half of the responses are loops: so is about half of those that are looked at, and the same ones each time."""
    good = " ".join(str(index) for index in range(CUT))[:CUT]
    responses = [good if index % 2 else "loop " * (CUT // 5) for index in range(8 * TEXT_CHARS // CUT)]
    found = [texts(*responses, seed=seed)[REPETITION] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert all(0.35 < value < 0.65 for value in found)
    garbled = [f"\0{text}" if index % 2 else text for index, text in enumerate(responses)]
    assert 0.35 < texts(*garbled, prompt="p")[GARBLED] < 0.65


@settings(max_examples=200)
@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT, st.integers(0, 2)), max_size=6))
def test_any_text_is_measured(responses: list[tuple[str, str, int]]) -> None:
    summary = measured(
        responses=[text for text, _, _ in responses],
        prompt_texts=[prompt for _, prompt, _ in responses],
        prompts=[group for _, _, group in responses],
    )
    for name in (REPETITION, GARBLED, OPENING, "unique_response_ratio", "response_edit_distance_median"):
        value = summary.metrics[name]
        assert value is None or (isinstance(value, float) and 0.0 <= value <= 1.0)
    value = summary.metrics[COMPRESSION]
    assert value is None or (isinstance(value, float) and math.isfinite(value) and value > 0.0)

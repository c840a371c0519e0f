"""Scripts by ranges of code points, against the names that Unicode gives its characters."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
import pytest

from tocsin.batch.scripts import NAMES, code_points, letters_by_script

UNICODE_NAMES = {
    "CYRILLIC": "Cyrillic", "ARMENIAN": "Armenian", "HEBREW": "Hebrew", "ARABIC": "Arabic", "DEVANAGARI": "Devanagari",
    "BENGALI": "Bengali", "GURMUKHI": "Gurmukhi", "GUJARATI": "Gujarati", "ORIYA": "Odia", "TAMIL": "Tamil", "TELUGU": "Telugu",
    "KANNADA": "Kannada", "MALAYALAM": "Malayalam", "SINHALA": "Sinhala", "THAI": "Thai", "LAO": "Lao", "TIBETAN": "Tibetan",
    "MYANMAR": "Myanmar", "GEORGIAN": "Georgian", "HANGUL": "Hangul", "ETHIOPIC": "Ethiopic", "KHMER": "Khmer",
    "MONGOLIAN": "Mongolian", "HIRAGANA": "Kana", "KATAKANA": "Kana", "BOPOMOFO": "Bopomofo", "CJK": "Han",
}  # fmt: skip


def script_of(char: str) -> str | None:
    counts = letters_by_script(code_points(char))
    return NAMES[int(counts.argmax())] if counts.any() else None


def test_letters_have_the_script_of_their_name() -> None:
    """Of every letter of the basic plane that we call one of a script, and of every main-block letter that Unicode does."""
    wrong = []
    for point in range(0x80, 0x10000):
        char = chr(point)
        if unicodedata.category(char) not in ("Lo", "Lu", "Ll"):
            continue
        named = UNICODE_NAMES.get(unicodedata.name(char, "").split()[0])
        found = script_of(char)
        if found is not None and named is not None and found != named:
            wrong.append((hex(point), found, named))
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("\u043f\u0440\u0438\u0432\u0435\u0442", "Cyrillic"),
        ("\u05e9\u05dc\u05d5\u05dd", "Hebrew"),
        ("\u0645\u0631\u062d\u0628\u0627", "Arabic"),
        ("\u0928\u092e\u0938\u094d\u0924\u0947", "Devanagari"),
        ("\u0bb5\u0ba3", "Tamil"),
        ("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "Thai"),
        ("\uc548\ub155", "Hangul"),
        ("\u3053\u3093\u306b", "Kana"),
        ("\u4f60\u597d\U00020000\U00030001", "Han"),
        ("\u10d2\u10d0", "Georgian"),
        ("\u1230\u120b\u121d", "Ethiopic"),
        ("\u1019\u1004\u103a", "Myanmar"),
        ("\u179f\u17bd", "Khmer"),
    ],
)
def test_words_of_every_script(text: str, script: str) -> None:
    counts = letters_by_script(code_points(text))
    assert counts[NAMES.index(script)] == counts.sum() == len(text)


def test_signs_of_every_text_have_no_script() -> None:
    letters = "abc \u00e9\u00df\u0142 \u03b1\u03b2\u03a3 0-9 .,;:!? \u201c\u201d\u2014\u2026"
    signs = "\u221e\u2264\u2211\u221a \u3002\u3001\uff08\uff09\u300c\u300d \U0001f600 \u2192 \u2588"
    text = letters + signs + "\ufffd \x00 \u200b\u200d\ufeff"
    assert letters_by_script(code_points(text)).sum() == 0


def test_code_points_of_anything() -> None:
    assert code_points("a\U0001f600\ud83d\0").tolist() == [97, 0x1F600, 0xD83D, 0]
    assert code_points("").tolist() == []
    assert letters_by_script(np.zeros(0, dtype=np.uint32)).tolist() == [0] * len(NAMES)
    assert letters_by_script(np.arange(sys.maxunicode + 1, dtype=np.uint32)).all()

"""How much of a text repeats itself, in runs of four words."""

from __future__ import annotations

import re
from itertools import count
from typing import Final

import numpy as np

from tocsin.batch.checked import Vector
from tocsin.batch.scripts import code_points, is_spaceless

MAX_CHARS: Final = 0xFFFF
"""Four numbers of words must fit into 64 bits."""
_WORD: Final = re.compile(r"\S+")
_CODES: Final = 0x110000


def repeated_share(text: str) -> float | None:
    """Share of the 4-grams that occurred before: 1 - distinct / all. None for a text of less than four words.

    A word is what stands between white space, or one character of a script that is written without (Han, kana, Thai ...).
    Raises ValueError for a text of more than MAX_CHARS characters.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"{len(text)} characters, the limit is {MAX_CHARS}")
    points = None if text.isascii() else code_points(text)
    single = None if points is None else is_spaceless(points)
    if points is None or single is None or not single.any():
        return _of_words(text.split())
    return _of_numbers(_numbered(points, single))


def _of_words(words: list[str]) -> float | None:
    grams = len(words) - 3
    return 1.0 - len(set(zip(words, words[1:], words[2:], words[3:], strict=False))) / grams if grams > 0 else None


def _numbered(points: Vector, single: Vector) -> Vector:
    """The words in order, each as a number; equal words have equal numbers."""
    others = np.where(single, np.uint32(ord(" ")), points).tobytes().decode("utf-32-le", "surrogatepass")
    matches = list(_WORD.finditer(others))
    known: dict[str, int] = {}
    numbers = np.fromiter((known.setdefault(match.group(), at) for match, at in zip(matches, count())), np.int64, len(matches))
    starts = np.fromiter((match.start() for match in matches), np.int64, len(matches))
    found = np.concatenate((points[single].astype(np.int64), _CODES + numbers))
    return found[np.argsort(np.concatenate((np.flatnonzero(single), starts)))]


def _of_numbers(words: Vector) -> float | None:
    """As `_of_words`: each four numbers become one of 64 bits, which sort a hundred times as fast as Python's tuples hash."""
    if len(words) < 4:
        return None
    small = np.unique(words, return_inverse=True)[1].astype(np.uint64)
    grams = np.zeros(len(small) - 3, dtype=np.uint64)
    for shift in range(4):
        grams = (grams << np.uint64(16)) | small[shift : shift + len(grams)]
    return 1.0 - len(np.unique(grams)) / len(grams)

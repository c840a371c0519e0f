"""Which writing systems a text uses, told by ranges of Unicode's blocks (the standard library knows no scripts).

Latin and Greek are none here: names, code and formulas use them in texts of every language.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tocsin.batch.checked import Vector

_RANGES: Final = (
    (0x0400, 0x0530, "Cyrillic"),
    (0x0531, 0x0590, "Armenian"),
    (0x05D0, 0x0600, "Hebrew"),
    (0x0620, 0x0700, "Arabic"),
    (0x0750, 0x0780, "Arabic"),
    (0x0900, 0x0980, "Devanagari"),
    (0x0980, 0x0A00, "Bengali"),
    (0x0A00, 0x0A80, "Gurmukhi"),
    (0x0A80, 0x0B00, "Gujarati"),
    (0x0B00, 0x0B80, "Odia"),
    (0x0B80, 0x0C00, "Tamil"),
    (0x0C00, 0x0C80, "Telugu"),
    (0x0C80, 0x0D00, "Kannada"),
    (0x0D00, 0x0D80, "Malayalam"),
    (0x0D80, 0x0E00, "Sinhala"),
    (0x0E00, 0x0E80, "Thai"),
    (0x0E80, 0x0F00, "Lao"),
    (0x0F00, 0x1000, "Tibetan"),
    (0x1000, 0x10A0, "Myanmar"),
    (0x10A0, 0x1100, "Georgian"),
    (0x1100, 0x1200, "Hangul"),
    (0x1200, 0x13A0, "Ethiopic"),
    (0x1780, 0x1800, "Khmer"),
    (0x1800, 0x18B0, "Mongolian"),
    (0x3041, 0x3100, "Kana"),
    (0x3105, 0x3130, "Bopomofo"),
    (0x3131, 0x3190, "Hangul"),
    (0x3400, 0x4DC0, "Han"),
    (0x4E00, 0xA000, "Han"),
    (0xAC00, 0xD7A4, "Hangul"),
    (0xF900, 0xFB00, "Han"),
    (0xFB50, 0xFE00, "Arabic"),
    (0xFE70, 0xFEFF, "Arabic"),
    (0x20000, 0x32000, "Han"),
)
"""(first, one after the last, name), in order."""
NAMES: Final = tuple(dict.fromkeys(name for _, _, name in _RANGES))
_NO_SPACES: Final = np.array([name in ("Kana", "Han", "Thai", "Lao", "Tibetan", "Myanmar", "Khmer") for _, _, name in _RANGES])
_STARTS: Final = np.array([start for start, _, _ in _RANGES])
_ENDS: Final = np.array([end for _, end, _ in _RANGES])
_INDEX: Final = np.array([NAMES.index(name) for _, _, name in _RANGES])


def code_points(text: str) -> Vector:
    """[len(text)], whole numbers; half surrogates included."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def letters_by_script(points: Vector) -> Vector:
    """[len(NAMES)]: how many of these code points belong to each script."""
    beyond = points[points >= _STARTS[0]]
    at, inside = _ranges(beyond)
    return np.bincount(_INDEX[at[inside]], minlength=len(NAMES))


def is_spaceless(points: Vector) -> Vector:
    """[len(points)], bool: characters of scripts that put no spaces between words."""
    at, inside = _ranges(points)
    spaceless: Vector = inside & _NO_SPACES[at]
    return spaceless


def _ranges(points: Vector) -> tuple[Vector, Vector]:
    """For each code point the last range that begins before it, and whether it is in it."""
    at = np.searchsorted(_STARTS, points, side="right") - 1
    return at, (at >= 0) & (points < _ENDS[at])

"""Durations as people write them in alerts.yaml: `90s`, `15m`, `4h`, `1d`."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

Duration = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?(s|m|h|d)$")]
"""A number with its unit."""

_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_FORM: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def seconds(text: str) -> float:
    """The seconds of a duration. Raises ValueError for text that is none."""
    if (found := _FORM.fullmatch(text)) is None:
        raise ValueError("a duration is a number with its unit: 90s, 15m, 4h, 1d")
    return float(found[1]) * _SECONDS[found[2]]

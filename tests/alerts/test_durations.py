"""Durations with their unit."""

from __future__ import annotations

import pytest

from alerts.durations import seconds


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90.0), ("15m", 900.0), ("1.5h", 5_400.0), ("1d", 86_400.0), ("0s", 0.0)]
)
def test_a_duration(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "s", "1 h", "1w", "-1s", "1h30m", "1e3s", "١s", "1s\n"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="90s, 15m, 4h, 1d"):
        seconds(text)

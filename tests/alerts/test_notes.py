"""What the planner says to people in one line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from alerts.notes import acknowledged, listed, moment, reminder


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("2026-12-01T04:10:59", "04:10 UTC"),
        ("2026-12-01T23:59:59", "23:59 UTC"),
        ("2026-12-02T00:00:00", "2026-12-02 00:00 UTC"),
        ("2026-11-30T23:59:00", "2026-11-30 23:59 UTC"),
    ],
)
def test_another_day_is_named(then: str, said: str) -> None:
    now = at("2026-12-01T00:00:00")
    assert moment(at(then), now) == said
    assert acknowledged("ada", at(then), now) == f"acknowledged by ada until {said}"


def test_several_notes_are_one_and_many_are_counted() -> None:
    assert listed(["a"]) == "a"
    assert listed(list("abcde")) == "a; b; c; d; e"
    assert listed(list("abcdefg")) == "a; b; c; d; e; and 2 more"


@pytest.mark.parametrize(("seconds", "said"), [(59.9, "59 s"), (60.0, "1 min"), (7_199.0, "1 h"), (172_800.0, "2 d")])
def test_a_reminder_says_how_long_in_the_largest_unit(seconds: float, said: str) -> None:
    assert reminder(seconds) == f"reminder: open for {said}"

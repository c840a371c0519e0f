"""The numbers pack beyond NonFinite."""

from __future__ import annotations

from math import nan

from rules.model import Severity
from tests.packs.tales import Values, first, severity, span


def offset(mean: float, longest: float, count: int = 12) -> dict[str, Values]:
    """A mean advantage, with responses of 100 tokens in the mean."""
    return {
        "advantage_mean": [mean] * count,
        "response_length_max": [longest] * count,
        "response_length_mean": [100.0] * count,
    }


def test_fires_advantage_mean_offset_at_the_fifth_record_in_both_directions() -> None:
    assert first("AdvantageMeanOffset", offset(0.21, 120.0)) == 5
    assert first("AdvantageMeanOffset", offset(-0.21, 120.0)) == 5
    assert severity("AdvantageMeanOffset") is Severity.WARNING


def test_fires_advantage_mean_offset_until_the_mean_is_near_zero() -> None:
    story = offset(0.3, 120.0, 30)
    story["advantage_mean"][10:] = [0.15] * 10 + [0.0] * 10
    assert span("AdvantageMeanOffset", story) == ([5], [24])


def test_holds_advantage_mean_offset_as_far_as_lengths_explain_it() -> None:
    assert first("AdvantageMeanOffset", offset(0.19, 120.0)) is None
    assert first("AdvantageMeanOffset", offset(-0.6, 300.0, 40)) is None
    assert first("AdvantageMeanOffset", {"advantage_mean": [0.5] * 40}) is None, "no lengths, no verdict"


def test_nan_advantage_mean_offset_holds() -> None:
    assert first("AdvantageMeanOffset", offset(nan, 120.0)) is None

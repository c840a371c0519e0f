"""The diversity pack."""

from __future__ import annotations

from math import nan

from rules.model import Severity
from tests.packs.tales import Values, first, noisy, severity, span

H = "policy_entropy"


def entropy(after: float, count: int = 30) -> dict[str, Values]:
    """Thirty records at an entropy of 1 nat, then others at another level."""
    return {H: noisy(1.0, 0.02, 30) + [after] * count}


def test_fires_entropy_fall_under_a_share_of_the_clean_level() -> None:
    assert first("EntropyFall", entropy(0.14)) == 42
    assert first("EntropyFall", {H: [0.02] * 30 + [0.0028] * 20}) == 42, "a share, whatever the model's own level is"
    assert severity("EntropyFall") is Severity.WARNING


def test_fires_entropy_fall_until_twice_as_much_and_twenty_records_more() -> None:
    began, ended = span("EntropyFall", {H: entropy(0.1)[H] + [0.2] * 20 + [0.33] * 40})
    assert began == [42]
    assert ended and 107 <= ended[0] <= 110, "eight or nine of ten records at 0.33 make a mean over 0.3 of the clean level"


def test_holds_entropy_fall_on_honest_sharpening_and_on_a_dip() -> None:
    assert first("EntropyFall", {H: [max(0.2, 0.985**step) for step in range(300)]}) is None
    assert first("EntropyFall", entropy(0.16)) is None
    assert first("EntropyFall", {H: [*noisy(1.0, 0.02, 30), 0.001, 0.001, *noisy(1.0, 0.02, 30)]}) is None


def test_nan_entropy_fall_holds() -> None:
    assert first("EntropyFall", entropy(nan)) is None

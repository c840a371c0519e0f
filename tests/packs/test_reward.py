"""The reward pack beyond RewardCrash."""

from __future__ import annotations

from math import nan

from rules.model import Severity
from tests.packs.tales import Values, first, severity, span, told


def dead(before: int, count: int) -> dict[str, Values]:
    """Records that teach, then others without spread and gradient."""
    return {
        "grad_norm": told((0.4, before), (0.0, count)),
        "reward_std": told((0.5, before), (0.0, count)),
        "reward_group_std_mean": told((0.3, before), (0.0, count)),
        "reward_mean": told((0.5, before), (0.0, count)),
    }


def test_fires_no_learning_signal_at_the_fifth_record_also_from_the_start() -> None:
    assert first("NoLearningSignal", dead(0, 5)) == 5
    assert first("NoLearningSignal", dead(20, 8)) == 25
    assert severity("NoLearningSignal") is Severity.WARNING


def test_fires_no_learning_signal_and_resolves_at_the_next_gradient() -> None:
    story = dead(0, 6)
    for values, value in zip(story.values(), (0.4, 0.5, 0.3, 0.1), strict=True):
        values.append(value)
    assert span("NoLearningSignal", story) == ([5], [7])


def test_holds_no_learning_signal_for_four_records_and_for_a_gradient_that_is_a_bug() -> None:
    assert first("NoLearningSignal", dead(20, 4)) is None
    story = dead(20, 8)
    story["reward_std"] = [0.5] * 28
    story["reward_group_std_mean"] = [0.3] * 28
    assert first("NoLearningSignal", story) is None


def test_nan_no_learning_signal_is_no_zero() -> None:
    story = dead(20, 8)
    story["grad_norm"] = [nan] * 28
    assert first("NoLearningSignal", story) is None

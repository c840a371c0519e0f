"""The gradient-and-mask pack beyond GradNormTenfold."""

from __future__ import annotations

from math import inf, nan

import pytest

from rules.model import Severity
from tests.packs.tales import Values, first, noisy, severity, span, told

MASK = "loss_mask_mismatch_tokens"


def test_fires_loss_mask_mismatch_on_the_second_record_without_any_warm_up() -> None:
    assert first("LossMaskMismatch", {MASK: [1.0, 1.0]}) == 2
    assert span("LossMaskMismatch", {MASK: [0.0] * 9 + [77.0, 89.0, 90.0, 0.0]}) == ([11], [13])
    assert severity("LossMaskMismatch") is Severity.PAGE


def test_holds_loss_mask_mismatch_at_zero_and_for_one_record() -> None:
    assert first("LossMaskMismatch", {MASK: [0.0] * 50}) is None
    assert first("LossMaskMismatch", {MASK: [0.0, 5.0] * 20}) is None


@pytest.mark.parametrize("bad", [nan, inf])
def test_nan_loss_mask_mismatch_breaches_as_a_page(bad: float) -> None:
    assert first("LossMaskMismatch", {MASK: [0.0] * 5 + [bad] * 3}) == 7


def level(after: float, count: int = 20) -> dict[str, Values]:
    """Thirty records of a gradient norm of 1, then others at another level."""
    return {"grad_norm": told((1.0, 30), (after, count))}


def test_fires_grad_norm_shift_when_the_level_moves_for_good() -> None:
    assert span("GradNormShift", level(4.1, 40)) == ([35], [58]), "with three of the twenty before at the new level it is known"
    assert first("GradNormShift", level(8.0)) == 35
    assert first("GradNormShift", {"grad_norm": noisy(0.4, 0.1, 40) + noisy(3.2, 0.8, 10)}) == 45
    assert severity("GradNormShift") is Severity.WARNING


def test_fires_grad_norm_shift_with_ten_records() -> None:
    assert first("GradNormShift", {"grad_norm": [1.0] * 5 + [5.0] * 5}) == 10


def test_holds_grad_norm_shift_below_four_on_spikes_and_on_a_vanished_gradient() -> None:
    assert first("GradNormShift", level(4.0)) is None
    assert first("GradNormShift", {"grad_norm": [1.0] * 30 + [9.0, 1.0] * 15}) is None
    assert first("GradNormShift", {"grad_norm": [1.0] * 30 + [9.0, 9.0, 9.0, 9.0, 1.5, 9.0, 9.0, 9.0, 9.0, 1.5]}) is None
    assert first("GradNormShift", {"grad_norm": [1.0] * 30 + [9.0, 9.0, 9.0, 9.0, 1.6]}) == 35
    assert first("GradNormShift", {"grad_norm": [0.0] * 30 + [1.0] * 10}) is None


def test_nan_grad_norm_shift_is_left_to_the_numbers_layer() -> None:
    assert first("GradNormShift", level(nan)) is None

"""The critic: explained variance and clipped value updates."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch

from tests.kit.token_batches import LIBRARIES, as_given, close, cut_blocks, flat, measured, number, random_tokens, tokens_of
from tocsin.batch import Settings

CLIP = Settings(value_clip=0.2)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", [1, 30, 1 << 16])
def test_every_number_against_the_oracle(monkeypatch: pytest.MonkeyPatch, library: str, block: int) -> None:
    cut_blocks(monkeypatch, block, library)
    arrays = random_tokens(
        2,
        values=lambda random, shape: random.normal(size=shape) + 5,
        old_values=lambda random, shape: random.normal(size=shape) + 5,
        returns=lambda random, shape: random.normal(size=shape) * 2 + 5,
    )
    given, rounded = as_given(arrays, library)
    tokens = flat(tokens_of(rounded, "values", "old_values", "returns"))
    targets = [target for *_, target in tokens]
    explained = 1 - statistics.pvariance([target - value for value, _, target in tokens]) / statistics.pvariance(targets)
    clipped = [
        (max(old - 0.2, min(old + 0.2, value)) - target) ** 2 > (value - target) ** 2 * (1 + 1e-6)
        for value, old, target in tokens
    ]
    summary = measured(CLIP, **given)
    assert close(number(summary, "value_explained_variance"), explained)
    assert number(summary, "value_clip_ratio") == pytest.approx(sum(clipped) / len(clipped))


def test_explained_variance_by_hand() -> None:
    returns = np.array([[1.0, 2.0, 3.0, 4.0]])
    assert number(measured(values=returns, returns=returns), "value_explained_variance") == 1.0
    assert number(measured(values=returns + 7, returns=returns), "value_explained_variance") == 1.0  # an offset is no variance
    assert number(measured(values=returns * 0 + 2.5, returns=returns), "value_explained_variance") == 0.0
    assert number(measured(values=-returns, returns=returns), "value_explained_variance") == -3.0
    assert number(measured(old_values=returns, returns=returns), "value_explained_variance") == 1.0
    assert measured(returns=returns).skipped["value_fit"] == "needs values or old_values"


def test_a_constant_far_from_zero_has_no_variance_to_explain() -> None:
    for value in (0.1, 1 / 3, 1e6):
        for count in (3, 7, 1000):
            summary = measured(values=np.random.default_rng(0).random((1, count)), returns=np.full((1, count), value))
            assert summary.metrics["value_explained_variance"] is None
            assert summary.skipped["value_explained_variance"] == "the returns are all the same"


def test_a_small_spread_far_from_zero_is_not_lost() -> None:
    returns = 1e4 + np.arange(100.0)[None] * 1e-3
    values = returns + np.where(np.arange(100) % 2, 1e-3, -1e-3)
    expected = 1 - statistics.pvariance((returns - values)[0].tolist()) / statistics.pvariance(returns[0].tolist())
    assert number(measured(values=values, returns=returns), "value_explained_variance") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("value", "old", "target", "clipped"),
    [
        (1.1, 1.0, 2.0, 0),  # within eps
        (1.5, 1.0, 2.0, 1),  # moved far towards its return: the clipped loss is larger, and has no gradient
        (0.5, 1.0, 0.0, 1),
        (1.5, 1.0, 0.0, 0),  # moved away from its return: must be able to come back
        (0.5, 1.0, 2.0, 0),
        (1.5, 1.0, 1.3, 0),  # overshot: the clipped value is nearer
        (1.0, 1.0, 9.0, 0),
    ],
)
def test_clipped_by_hand(value: float, old: float, target: float, clipped: int) -> None:
    summary = measured(CLIP, values=np.array([[value]]), old_values=np.array([[old]]), returns=np.array([[target]]))
    assert number(summary, "value_clip_ratio") == clipped


def test_clipped_is_what_has_no_gradient() -> None:
    random = torch.Generator().manual_seed(0)
    value = torch.randn((8, 50), generator=random, dtype=torch.float64).requires_grad_()
    old, target = (torch.randn((8, 50), generator=random, dtype=torch.float64) for _ in range(2))
    nearest = old + torch.clamp(value - old, -0.2, 0.2)
    torch.maximum((value - target) ** 2, (nearest - target) ** 2).sum().backward()
    assert value.grad is not None
    summary = measured(CLIP, values=value, old_values=old, returns=target)
    assert number(summary, "value_clip_ratio") == pytest.approx(float((value.grad == 0).double().mean()), abs=1e-12)


def test_rounding_clips_nothing() -> None:
    random = np.random.default_rng(0)
    value, old, target = (random.normal(size=(20, 100)).astype(np.float32) * np.float32(0.05) for _ in range(3))
    assert np.abs(value - old).max() < 0.3
    summary = measured(Settings(value_clip=0.3), values=value, old_values=old, returns=target)
    assert number(summary, "value_clip_ratio") == 0.0


def test_returns_whose_squares_vanish() -> None:
    tiny = np.array([[0.0, 1e-200]])
    assert measured(values=tiny, returns=tiny).metrics["value_explained_variance"] is None


def test_without_a_setting_nothing_is_clipped_or_known() -> None:
    fields = {name: np.ones((1, 2)) for name in ("values", "old_values", "returns")}
    assert measured(**fields).skipped["value_clip_ratio"] == "the settings name no value_clip"
    for off in (0.0, -0.2, math.nan):
        summary = measured(Settings(value_clip=off), **fields)
        assert summary.skipped["value_clip_ratio"] == "value_clip must be above 0"
        assert "value_clip_ratio" not in summary.metrics


def test_nan_and_infinities() -> None:
    returns = np.array([[1.0, 2.0, math.nan]])
    assert math.isnan(number(measured(values=returns * 0, returns=returns), "value_explained_variance"))
    infinite = measured(values=np.zeros((1, 2)), returns=np.array([[1.0, math.inf]]))
    assert math.isnan(number(infinite, "value_explained_variance"))
    masked = measured(values=returns, returns=returns, mask=np.array([[1, 1, 0]]))
    assert number(masked, "value_explained_variance") == 1.0
    clip = measured(CLIP, values=np.array([[math.nan, 1.5]]), old_values=np.ones((1, 2)), returns=np.full((1, 2), 2.0))
    assert number(clip, "value_clip_ratio") == 0.5


def test_no_token_gives_none() -> None:
    fields = {name: np.ones((2, 3)) for name in ("values", "old_values", "returns")}
    summary = measured(CLIP, **fields, mask=np.zeros((2, 3)))
    assert summary.metrics["value_explained_variance"] is None
    assert summary.metrics["value_clip_ratio"] is None

"""The two sides of the clip, by sign: by hand, against plain loops, and against the gradients of the surrogate itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.kit.token_batches import LIBRARIES, as_given, close, cut_blocks, flat, measured, number, random_tokens, tokens_of
from tocsin.batch import Settings, Summary

SETTINGS = Settings(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
SHARES = ("ppo_clip_high_ratio", "ppo_clip_low_ratio", "ppo_dual_clip_ratio", "unclipped_update_ratio")
CASES = {
    # (advantage, ratio): high, low, dual, updated
    (+1.0, 0.5): (0, 0, 0, 1),
    (+1.0, 1.0): (0, 0, 0, 1),
    (+1.0, 1.5): (1, 0, 0, 0),
    (+1.0, 4.0): (1, 0, 0, 0),
    (-1.0, 0.5): (0, 1, 0, 0),
    (-1.0, 1.0): (0, 0, 0, 1),
    (-1.0, 1.5): (0, 0, 0, 1),
    (-1.0, 4.0): (0, 0, 1, 0),
    (0.0, 0.5): (0, 0, 0, 0),
    (0.0, 1.0): (0, 0, 0, 0),
    (0.0, 1.5): (0, 0, 0, 0),
    (0.0, 4.0): (0, 0, 0, 0),
}


def at_ratio(ratios: list[float], advantages: list[float], settings: Settings = SETTINGS) -> Summary:
    """One response with a token of each ratio."""
    old = np.full((1, len(ratios)), -2.0)
    return measured(settings, new_logprobs=old + np.log([ratios]), old_logprobs=old, advantages=np.array([advantages]))


@pytest.mark.parametrize(("advantage", "ratio"), CASES)
def test_each_case_alone(advantage: float, ratio: float) -> None:
    summary = at_ratio([ratio], [advantage])
    assert tuple(number(summary, name) for name in SHARES) == CASES[advantage, ratio]
    assert number(summary, "ppo_clip_ratio") == sum(CASES[advantage, ratio][:2])


def surrogate(new: Any, old: Any, advantages: Any, settings: Settings) -> Any:
    """The clipped loss of every token, as the papers have it."""
    ratio = torch.exp(new - old)
    clipped = torch.clamp(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    if settings.dual_clip is not None:
        objective = torch.where(advantages < 0, torch.maximum(objective, settings.dual_clip * advantages), objective)
    return -objective


@pytest.mark.parametrize(
    "settings", [SETTINGS, Settings(), Settings(clip_low=0.2, clip_high=0.25)], ids=["dual", "symmetric", "geometric"]
)
def test_clipped_is_what_has_no_gradient(settings: Settings) -> None:
    random = torch.Generator().manual_seed(0)
    old = -torch.rand((20, 50), generator=random, dtype=torch.float64)
    new = (old + 0.8 * torch.randn((20, 50), generator=random, dtype=torch.float64)).requires_grad_()
    advantages = torch.randn((20, 50), generator=random, dtype=torch.float64)
    advantages[torch.rand((20, 50), generator=random) < 0.2] = 0.0
    surrogate(new, old, advantages, settings).sum().backward()
    gradient = new.grad
    assert gradient is not None
    summary = measured(settings, new_logprobs=new, old_logprobs=old, advantages=advantages)
    moved = int((gradient != 0).sum()) / gradient.numel()
    assert number(summary, "unclipped_update_ratio") == pytest.approx(moved, abs=1e-12)
    idle = number(summary, "zero_advantage_token_ratio")
    dual = number(summary, "ppo_dual_clip_ratio") if settings.dual_clip else 0.0
    assert number(summary, "ppo_clip_ratio") + dual + idle == pytest.approx(1 - moved, abs=1e-12)


def oracle(tokens: list[tuple[float, ...]]) -> dict[str, float]:
    high = low = dual = updated = positive = negative = 0
    for new, old, advantage in tokens:
        ratio = math.exp(max(-20.0, min(20.0, new - old)))
        if advantage > 0:
            positive += 1
            if ratio > 1.28:
                high += 1
            else:
                updated += 1
        elif advantage < 0:
            negative += 1
            if ratio < 0.8:
                low += 1
            elif ratio > 3.0:
                dual += 1
            else:
                updated += 1
    count = len(tokens)
    return {
        "ppo_clip_high_ratio": high / count,
        "ppo_clip_low_ratio": low / count,
        "ppo_clip_ratio": (high + low) / count,
        "ppo_dual_clip_ratio": dual / count,
        "ppo_clip_high_given_positive_ratio": high / positive,
        "ppo_clip_low_given_negative_ratio": low / negative,
        "unclipped_update_ratio": updated / count,
        "positive_advantage_token_ratio": positive / count,
        "zero_advantage_token_ratio": (count - positive - negative) / count,
    }


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", [1, 30, 1 << 16])
@pytest.mark.parametrize("per_token", [True, False])
def test_every_share_against_the_oracle(monkeypatch: pytest.MonkeyPatch, library: str, block: int, per_token: bool) -> None:
    cut_blocks(monkeypatch, block, library)
    arrays = random_tokens(
        3,
        21,
        old_logprobs=lambda random, shape: -random.random(shape),
        new_logprobs=lambda random, shape: -1.5 * random.random(shape),
        advantages=lambda random, shape: random.integers(-2, 3, shape if per_token else shape[0]) * 0.7,
    )
    given, rounded = as_given(arrays, library)
    summary = measured(SETTINGS, **given)
    for name, expected in oracle(flat(tokens_of(rounded, "new_logprobs", "old_logprobs", "advantages"))).items():
        assert close(number(summary, name), expected), name


def test_many_low_hits_may_only_mean_many_negatives() -> None:
    summary = at_ratio([0.5, 1.0, 1.0, 1.0, 1.5], [-1, -1, -1, -1, +1])
    assert number(summary, "ppo_clip_low_ratio") == number(summary, "ppo_clip_high_ratio") == 0.2
    assert number(summary, "ppo_clip_low_given_negative_ratio") == 0.25
    assert number(summary, "ppo_clip_high_given_positive_ratio") == 1.0


def test_the_bounds_themselves_are_inside() -> None:
    none = Settings(clip_low=0.0, clip_high=0.0)  # both bounds are 1, which a ratio can be exactly
    summary = at_ratio([1.0, 1.0], [1.0, -1.0], none)
    assert number(summary, "ppo_clip_ratio") == 0.0
    assert number(at_ratio([1.0001, 0.9999], [1.0, -1.0], none), "ppo_clip_ratio") == 1.0
    half = np.array([[0.5]])
    dual = measured(Settings(dual_clip=float(np.exp(0.5))), new_logprobs=half, old_logprobs=half * 0, advantages=-half)
    assert number(dual, "ppo_dual_clip_ratio") == 0.0


def test_the_epsilons_of_two_sides_are_their_own() -> None:
    # DAPO's range is [0.8, 1.28].
    for ratio, advantage, clipped in ((1.279, 1, 0), (1.281, 1, 1), (0.801, -1, 0), (0.799, -1, 1), (0.73, 1, 0), (1.4, -1, 0)):
        assert number(at_ratio([ratio], [advantage], Settings(clip_low=0.2, clip_high=0.28)), "ppo_clip_ratio") == clipped


def test_dual_clip_needs_a_setting_that_means_something() -> None:
    assert at_ratio([4.0], [-1.0], Settings()).skipped["ppo_dual_clip_ratio"] == "the settings name no dual_clip"
    assert number(at_ratio([1.51, 1.49], [-1.0, -1.0], Settings(dual_clip=1.5)), "ppo_dual_clip_ratio") == 0.5
    assert "ppo_dual_clip_ratio" not in at_ratio([4.0], [-1.0], Settings(dual_clip=1.0)).metrics
    wrong = at_ratio([4.0], [-1.0], Settings(dual_clip=0.9))
    assert wrong.skipped["ppo_dual_clip_ratio"] == "dual_clip must be above 1"
    assert "ppo_dual_clip_ratio" not in wrong.metrics
    assert number(wrong, "unclipped_update_ratio") == 1.0


def test_a_sign_without_tokens_has_no_share() -> None:
    summary = at_ratio([0.5, 1.5], [1.0, 1.0])
    assert summary.metrics["ppo_clip_low_given_negative_ratio"] is None
    assert number(summary, "ppo_clip_high_given_positive_ratio") == 0.5
    assert number(summary, "ppo_clip_low_ratio") == 0.0


def test_nan_is_on_no_side_and_its_gradient_is_not_zero() -> None:
    summary = at_ratio([math.nan, 1.5, 0.5, 1.5], [1.0, math.nan, math.nan, 1.0])
    assert number(summary, "ppo_clip_high_ratio") == 0.25
    assert number(summary, "ppo_clip_low_ratio") == 0.0
    assert number(summary, "unclipped_update_ratio") == 0.75


def test_an_infinite_ratio_is_above() -> None:
    summary = at_ratio([math.inf, 1.0], [1.0, 1.0])
    assert number(summary, "ppo_clip_high_ratio") == 0.5


def test_no_token_gives_none() -> None:
    shape = (2, 3)
    summary = measured(
        SETTINGS, new_logprobs=np.zeros(shape), old_logprobs=np.zeros(shape), advantages=np.ones(2), mask=np.zeros(shape)
    )
    for name in (*SHARES, "ppo_clip_ratio", "ppo_clip_high_given_positive_ratio", "ppo_clip_low_given_negative_ratio"):
        assert summary.metrics[name] is None

"""Advantages over response tokens, before and after batch normalisation."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from tests.kit.token_batches import LIBRARIES, as_given, close, cut_blocks, flat, measured, number, random_tokens, tokens_of
from tocsin.batch import Settings

OTHER = Settings(advantage="gae")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", [1, 30, 1 << 16])
@pytest.mark.parametrize("per_token", [True, False])
@pytest.mark.parametrize("field", ["advantages", "raw_advantages"])
def test_every_number_against_the_oracle(
    monkeypatch: pytest.MonkeyPatch, library: str, block: int, per_token: bool, field: str
) -> None:
    cut_blocks(monkeypatch, block, library)
    arrays = random_tokens(5, **{field: lambda random, shape: random.normal(size=shape if per_token else shape[0])})
    given, rounded = as_given(arrays, library)
    summary = measured(OTHER, **given)
    values = [value for (value,) in flat(tokens_of(rounded, field))]
    name = {"advantages": "advantage", "raw_advantages": "raw_advantage"}[field]
    assert close(number(summary, f"{name}_mean"), statistics.fmean(values))
    assert close(number(summary, f"{name}_std"), statistics.pstdev(values))
    assert (number(summary, f"{name}_max"), number(summary, f"{name}_min")) == (max(values), min(values))


def test_a_response_counts_once_for_each_of_its_tokens() -> None:
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    summary = measured(mask=mask, advantages=np.array([1.0, -3.0]))
    assert number(summary, "advantage_mean") == 0.0
    assert number(summary, "positive_advantage_token_ratio") == 0.75


def test_zero_means_exactly_zero() -> None:
    summary = measured(advantages=np.array([[0.0, -0.0, 1e-30, -1e-30, 2.0]], dtype=np.float32))
    assert number(summary, "zero_advantage_token_ratio") == 0.4
    assert number(summary, "positive_advantage_token_ratio") == 0.4


def test_packed_batches() -> None:
    summary = measured(lengths=np.array([3, 0, 1]), old_logprobs=np.zeros(4), advantages=np.array([1.0, 50.0, -3.0]))
    assert number(summary, "advantage_mean") == 0.0
    assert number(summary, "advantage_max") == 1.0  # the response without a token has no say


def test_nan_under_the_mask_and_outside_it() -> None:
    inside = measured(advantages=np.array([[1.0, math.nan]]))
    for name in ("mean", "std", "max", "min"):
        assert math.isnan(number(inside, f"advantage_{name}"))
    assert number(inside, "zero_advantage_token_ratio") == 0.0
    assert number(inside, "positive_advantage_token_ratio") == 0.5
    outside = measured(advantages=np.array([[1.0, math.nan, -math.inf]]), mask=np.array([[1, 0, 0]]))
    assert number(outside, "advantage_min") == 1.0
    infinite = measured(advantages=np.array([[1.0, math.inf]]))
    assert number(infinite, "advantage_mean") == math.inf


def test_no_token_gives_none() -> None:
    summary = measured(mask=np.zeros((2, 3)), advantages=np.ones(2), raw_advantages=np.ones((2, 3)))
    names = [f"{kind}_{name}" for kind in ("advantage", "raw_advantage") for name in ("mean", "std", "max", "min")]
    for name in (*names, "zero_advantage_token_ratio", "positive_advantage_token_ratio"):
        assert summary.metrics[name] is None, name

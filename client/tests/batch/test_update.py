"""Policy ratio and the distance from the old policy, against plain loops."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest

from tests.kit.token_batches import (
    LIBRARIES,
    as_given,
    close,
    cut_blocks,
    flat,
    measured,
    number,
    quantile,
    random_tokens,
    tokens_of,
)
from tocsin.batch import Batch, Summary
from tocsin.batch.checked import check

NAMES = (
    *("policy_ratio_mean", "policy_ratio_std", "policy_ratio_max", "policy_ratio_min"),
    *("policy_ratio_p50", "policy_ratio_p95", "policy_ratio_p99", "log_ratio_clamp_ratio", "kl_old_policy"),
)


def batch(seed: int = 0, size: float = 0.3) -> Any:
    return random_tokens(
        seed,
        old_logprobs=lambda random, shape: -random.exponential(1.0, shape),
        new_logprobs=lambda random, shape: -random.exponential(1.0, shape) * size - 0.5,
    )


def oracle(tokens: list[tuple[float, ...]]) -> dict[str, float]:
    logs = [new - old for new, old in tokens]
    ratios = [math.exp(max(-20.0, min(20.0, log))) for log in logs]
    return {
        "policy_ratio_mean": statistics.fmean(ratios),
        "policy_ratio_std": statistics.pstdev(ratios),
        "policy_ratio_max": max(ratios),
        "policy_ratio_min": min(ratios),
        "policy_ratio_p50": quantile(ratios, 0.5),
        "policy_ratio_p95": quantile(ratios, 0.95),
        "policy_ratio_p99": quantile(ratios, 0.99),
        "log_ratio_clamp_ratio": sum(abs(log) > 20 for log in logs) / len(logs),
        "kl_old_policy": -statistics.fmean(logs),
    }


def one(new: list[float], old: list[float], mask: list[int] | None = None) -> Summary:
    arrays = {"new_logprobs": np.array([new], dtype=np.float32), "old_logprobs": np.array([old], dtype=np.float32)}
    return measured(**arrays, mask=None if mask is None else np.array([mask]))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", [1, 5, 40, 1 << 16])
def test_every_number_against_the_oracle(monkeypatch: pytest.MonkeyPatch, library: str, block: int) -> None:
    cut_blocks(monkeypatch, block, library)
    given, rounded = as_given(batch(), library)
    checked = check(Batch(**given))
    assert len(list(checked.tokens.blocks())) == {1: 9, 5: 9, 40: 3}.get(block, 1)
    kinds = {"numpy": "NumpyOps", "torch": "TorchCpuOps", "accelerator": "_AcceleratorOps"}
    assert type(checked.ops).__name__ == kinds[library.split()[0]]
    summary = measured(**given)
    for name, expected in oracle(flat(tokens_of(rounded, "new_logprobs", "old_logprobs"))).items():
        assert close(number(summary, name), expected), name


def test_by_hand() -> None:
    summary = one([math.log(0.5), math.log(1.0), math.log(2.0)], [0.0, 0.0, 0.0])
    assert number(summary, "policy_ratio_mean") == pytest.approx(3.5 / 3, rel=1e-6)
    assert number(summary, "policy_ratio_p50") == pytest.approx(1.0)
    assert number(summary, "policy_ratio_p95") == pytest.approx(1.9, rel=1e-6)
    assert number(summary, "kl_old_policy") == pytest.approx(0.0, abs=1e-7)
    # k1 is mean(old - new): the sign of verl's ppo_kl, not of approx_kl.
    assert number(one([-1.0], [-0.25]), "kl_old_policy") == 0.75


def test_weights_that_have_not_moved_give_exactly_one() -> None:
    same = [-0.1, -1.7, -1e-9, -30.0]
    summary = one(same, same)
    for name in NAMES[:7]:
        assert number(summary, name) == (0.0 if name == "policy_ratio_std" else 1.0), name
    assert number(summary, "kl_old_policy") == 0.0


@pytest.mark.parametrize(
    ("log_ratio", "share"), [(20.0, 0.0), (-20.0, 0.0), (20.5, 0.5), (-25.0, 0.5), (math.inf, 0.5), (-math.inf, 0.5)]
)
def test_the_fuse(log_ratio: float, share: float) -> None:
    summary = one([log_ratio, 0.0], [0.0, 0.0])
    assert number(summary, "log_ratio_clamp_ratio") == share
    assert number(summary, "policy_ratio_max") == pytest.approx(
        math.exp(min(log_ratio, 20.0)) if log_ratio > 0 else 1.0, rel=1e-6
    )
    assert number(summary, "policy_ratio_min") == pytest.approx(1.0 if log_ratio > 0 else math.exp(-20.0), rel=1e-6)
    assert math.isinf(number(summary, "kl_old_policy")) == math.isinf(log_ratio)


def test_nan_under_the_mask_is_an_answer_and_outside_it_is_nothing() -> None:
    inside = one([0.0, math.nan], [0.0, 0.0])
    for name in NAMES:
        value = number(inside, name)
        assert value == 0.0 if name == "log_ratio_clamp_ratio" else math.isnan(value), name
    outside = one([0.0, math.nan, -math.inf], [0.0, 0.0, -math.inf], [1, 0, 0])
    assert all(math.isfinite(number(outside, name)) for name in NAMES)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_no_token_gives_none(shape: tuple[int, int]) -> None:
    summary = measured(new_logprobs=np.full(shape, np.nan), old_logprobs=np.zeros(shape), mask=np.zeros(shape))
    assert {name: summary.metrics[name] for name in NAMES} == dict.fromkeys(NAMES)


def test_what_is_missing_is_told() -> None:
    summary = measured(old_logprobs=np.zeros((1, 1)))
    assert summary.skipped["policy_ratio"] == "needs new_logprobs"
    assert not set(NAMES) & set(summary.metrics)

"""The three estimators of the distance from the reference."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from tests.kit.token_batches import LIBRARIES, as_given, close, cut_blocks, flat, measured, number, random_tokens, tokens_of

NAMES = ("kl_reference_k1", "kl_reference_k2", "kl_reference_k3", "kl_reference")


def oracle(tokens: list[tuple[float, ...]]) -> dict[str, float]:
    apart = [policy - reference for policy, reference in tokens]
    cut = [max(-20.0, d) for d in apart]
    k3 = statistics.fmean(math.expm1(-d) + d for d in cut)
    return {
        "kl_reference_k1": statistics.fmean(apart),
        "kl_reference_k2": statistics.fmean(d * d / 2 for d in apart),
        "kl_reference_k3": k3,
        "kl_reference": k3,
    }


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", [1, 30, 1 << 16])
def test_every_estimator_against_the_oracle(monkeypatch: pytest.MonkeyPatch, library: str, block: int) -> None:
    cut_blocks(monkeypatch, block, library)
    arrays = random_tokens(
        1,
        new_logprobs=lambda random, shape: -random.exponential(1.0, shape),
        ref_logprobs=lambda random, shape: -random.exponential(1.0, shape),
    )
    given, rounded = as_given(arrays, library)
    summary = measured(**given)
    for name, expected in oracle(flat(tokens_of(rounded, "new_logprobs", "ref_logprobs"))).items():
        assert close(number(summary, name), expected), name


@pytest.mark.parametrize("spread", [1e-1, 1e-2, 1e-3, 1e-4])
def test_small_distances_are_not_drowned_in_rounding(spread: float) -> None:
    random = np.random.default_rng(0)
    policy = -random.random((50, 200)).astype(np.float32)
    reference = policy + (random.normal(size=policy.shape) * spread).astype(np.float32)
    summary = measured(new_logprobs=policy, ref_logprobs=reference)
    expected = oracle(list(zip(policy.ravel().tolist(), reference.ravel().tolist(), strict=True)))["kl_reference_k3"]
    assert number(summary, "kl_reference_k3") == pytest.approx(expected, rel=1e-3)
    assert number(summary, "kl_reference_k3") == pytest.approx(number(summary, "kl_reference_k2"), rel=0.2)


def test_signs_and_sides() -> None:
    surer = measured(new_logprobs=np.array([[-0.5]]), ref_logprobs=np.array([[-1.5]]))
    assert number(surer, "kl_reference_k1") == 1.0
    assert number(surer, "kl_reference_k2") == 0.5
    assert number(surer, "kl_reference_k3") == pytest.approx(math.exp(-1))
    less = measured(new_logprobs=np.array([[-1.5]]), ref_logprobs=np.array([[-0.5]]))
    assert number(less, "kl_reference_k1") == -1.0
    assert number(less, "kl_reference_k3") == pytest.approx(math.e - 2)


def test_the_policy_is_the_new_one_else_the_old_one() -> None:
    reference = np.array([[-1.0]])
    assert number(measured(old_logprobs=np.array([[-0.5]]), ref_logprobs=reference), "kl_reference_k1") == 0.5
    both = measured(old_logprobs=np.array([[-0.5]]), new_logprobs=np.array([[-0.25]]), ref_logprobs=reference)
    assert number(both, "kl_reference_k1") == 0.75
    neither = measured(ref_logprobs=reference)
    assert neither.skipped["reference_kl"] == "needs new_logprobs or old_logprobs"
    assert not set(NAMES) & set(neither.metrics)


def test_one_far_token_does_not_overflow_k3() -> None:
    far = measured(
        new_logprobs=np.array([[-500.0, -1.0]], dtype=np.float32), ref_logprobs=np.array([[-1.0, -1.0]], dtype=np.float32)
    )
    assert number(far, "kl_reference_k3") == pytest.approx((math.expm1(20.0) - 20.0) / 2, rel=1e-6)
    assert number(far, "kl_reference_k1") == -499 / 2
    surer = measured(new_logprobs=np.array([[-1.0]]), ref_logprobs=np.array([[-500.0]]))
    assert number(surer, "kl_reference_k3") == 498.0  # exp(-499) - 1 + 499


@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-7])
def test_k3_of_no_token_is_below_zero(scale: float) -> None:
    random = np.random.default_rng(0)
    policy = -random.random(300).astype(np.float32)
    reference = policy + (random.normal(size=300) * scale).astype(np.float32)
    for one, other in zip(policy.reshape(-1, 1, 1), reference.reshape(-1, 1, 1), strict=True):
        assert number(measured(new_logprobs=one, ref_logprobs=other), "kl_reference_k3") >= 0.0


def test_what_is_not_finite_shows() -> None:
    reference = np.array([[-1.0, -1.0]])
    nan = measured(new_logprobs=np.array([[math.nan, -1.0]]), ref_logprobs=reference)
    assert all(math.isnan(number(nan, name)) for name in NAMES)
    never = measured(new_logprobs=np.array([[-math.inf, -1.0]]), ref_logprobs=reference)
    assert number(never, "kl_reference_k1") == -math.inf
    assert number(never, "kl_reference_k2") == math.inf
    assert number(never, "kl_reference_k3") == pytest.approx((math.expm1(20.0) - 20.0) / 2, rel=1e-6)
    new_to_it = measured(new_logprobs=reference, ref_logprobs=np.array([[-math.inf, -1.0]]))
    assert number(new_to_it, "kl_reference_k1") == number(new_to_it, "kl_reference_k3") == math.inf


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_no_token_gives_none(shape: tuple[int, int]) -> None:
    summary = measured(new_logprobs=np.zeros(shape), ref_logprobs=np.zeros(shape), mask=np.zeros(shape))
    assert {name: summary.metrics[name] for name in NAMES} == dict.fromkeys(NAMES)

"""A1, importance weights: against plain Python, and the corrections one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import mismatch_oracle
from tests.kit.batches import LIBRARIES, Drawn, assert_close, drawn_batches
from tocsin.batch import Batch, Bounds, Settings, summarize
from tocsin.batch.importance import importance_weights

BOUNDS: tuple[Bounds, ...] = ((None, 2.0), (0.5, 5.0), (0.9, 1.1), (0.5, None), (None, None))


@settings(max_examples=150)
@given(drawn_batches(least_tokens=1), st.sampled_from(sorted(LIBRARIES)), st.sampled_from(BOUNDS), st.booleans())
def test_as_plain_python_has_it(drawn: Drawn, library: str, bounds: Bounds, packed: bool) -> None:
    batch = drawn.packed(library) if packed else drawn.batch(library)
    found = summarize(batch, Settings(is_bounds=bounds))
    assert_close(found.metrics, mismatch_oracle.importance(drawn.tokens("old_logprobs", "rollout_logprobs"), bounds), 1e-8)


@settings(max_examples=50)
@given(drawn_batches(), st.sampled_from(sorted(LIBRARIES)), st.sampled_from(("token", "sequence")), st.sampled_from(BOUNDS))
def test_weights_of_each_token(drawn: Drawn, library: str, level: Any, bounds: Bounds) -> None:
    batch = drawn.batch(library)
    weights = importance_weights(batch.old_logprobs, batch.rollout_logprobs, batch.mask, level=level, bounds=bounds)
    assert type(weights.raw) is type(batch.old_logprobs)
    raw, corrected = np.asarray(weights.raw), np.asarray(weights.corrected)
    assert raw.shape == corrected.shape == drawn.mask.shape
    assert not raw[~drawn.mask].any()
    assert not corrected[~drawn.mask].any()
    for row, response in enumerate(drawn.tokens("old_logprobs", "rollout_logprobs")):
        gaps = [old - rollout for old, rollout in response]
        logs = gaps if level == "token" else [math.fsum(gaps)] * len(gaps)
        expected = [mismatch_oracle.fuse(log) for log in logs]
        assert raw[row][drawn.mask[row]].tolist() == pytest.approx(expected, rel=1e-9)
        cut = [mismatch_oracle.corrected(weight, bounds) for weight in expected]
        assert corrected[row][drawn.mask[row]].tolist() == pytest.approx(cut, rel=1e-9)


def test_packed_weights_are_packed() -> None:
    old, rollout = np.log(np.array([[0.5, 0.4, 0.2, 0.6], [0.25, 0.8, 0.2, 0.2]]))
    weights = importance_weights(old, rollout, np.array([1, 1, 0, 1]), lengths=[3, 1], level="sequence", bounds=(None, 2.5))
    assert weights.raw.tolist() == pytest.approx([1.0, 1.0, 0.0, 3.0])
    assert weights.corrected.tolist() == pytest.approx([1.0, 1.0, 0.0, 2.5])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_tokens_no_weights(library: str, shape: tuple[int, int]) -> None:
    empty = LIBRARIES[library](np.zeros(shape, dtype=np.float32))
    assert importance_weights(empty, empty).raw.shape == shape


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mask": np.ones((2, 2))}, r"old_logprobs: shape \[2, 3\], expected \[B, T\] = \[2, 2\] by the mask"),
        ({"rollout_logprobs": "abc"}, "rollout_logprobs is no array of numbers"),
        ({"level": "batch"}, "expected 'token' or 'sequence'"),
        ({"lengths": [5, 1]}, r"old_logprobs: shape \[2, 3\], expected \[N\] = \[6\] by lengths"),
    ],
)
def test_arrays_that_do_not_fit_are_named(change: dict[str, Any], told: str) -> None:
    arguments = {"old_logprobs": np.zeros((2, 3)), "rollout_logprobs": np.zeros((2, 3))} | change
    with pytest.raises(ValueError, match=told):
        importance_weights(**arguments)


@pytest.mark.parametrize(
    "bounds", [None, 2.0, (2.0,), ("a", "b"), (3.0, 2.0), (None, 0.0), (None, -1.0), (math.nan, 2.0), (0.5, math.nan)]
)
def test_bounds_without_sense_cost_the_weights_alone(bounds: Any) -> None:
    arrays: dict[str, Any] = {"old_logprobs": np.zeros((1, 2)), "rollout_logprobs": np.zeros((1, 2))}
    with pytest.raises(ValueError, match="bounds are"):
        importance_weights(**arrays, bounds=bounds)
    found = summarize(Batch(**arrays), Settings(is_bounds=bounds))
    assert "bounds are" in found.skipped["importance_weights"]
    assert found.metrics["rollout_kl_k3"] == 0.0


@pytest.mark.parametrize("library", LIBRARIES)
def test_one_response_that_holds_all_the_weight(library: str) -> None:
    """ESS falls to 1 / n at the response level, while most tokens weigh 1 and the level of tokens hardly sees it."""
    rows = 8
    old = np.full((rows, 100), -1.0)
    rollout = old.copy()
    rollout[0] -= 0.1  # e^10 over its 100 tokens
    make = LIBRARIES[library]
    found = summarize(Batch(old_logprobs=make(old), rollout_logprobs=make(rollout))).metrics
    assert found["ess_ratio"] == pytest.approx(1 / rows, rel=1e-3)
    assert found["ess_ratio_token"] == pytest.approx(1.0, abs=2e-3)
    assert found["is_weight_product_max"] == pytest.approx(math.exp(10.0))
    assert found["is_weight_product_truncated_max"] == 2.0


@pytest.mark.parametrize("library", LIBRARIES)
def test_even_weights_count_fully(library: str) -> None:
    same = LIBRARIES[library](np.full((5, 3), -0.7, dtype=np.float32))
    found = summarize(Batch(old_logprobs=same, rollout_logprobs=same)).metrics
    assert [found[name] for name in ("ess_ratio", "ess_ratio_token", "ess_ratio_token_truncated")] == [1.0] * 3
    assert [found[name] for name in ("chi2_token", "chi2_seq", "is_weight_std", "is_weight_seq_std")] == [0.0] * 4


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_band_that_masks_all_has_no_effective_sample(library: str) -> None:
    make = LIBRARIES[library]
    batch = Batch(old_logprobs=make(np.zeros((2, 2))), rollout_logprobs=make(np.full((2, 2), -3.0)))
    found = summarize(batch, Settings(is_bounds=(0.5, 2.0)))
    assert found.metrics["is_weight_out_of_band_ratio"] == 1.0
    assert found.metrics["ess_ratio_token_truncated"] is None
    assert found.skipped["ess_ratio_token_truncated"] == "all weights are 0"


def test_without_a_band_no_share_outside_it() -> None:
    batch = Batch(old_logprobs=np.zeros((1, 2)), rollout_logprobs=np.zeros((1, 2)))
    found = summarize(batch, Settings(is_bounds=(None, 2.0)))
    assert "is_weight_out_of_band_ratio" not in found.metrics
    assert "no band" in found.skipped["is_weight_out_of_band_ratio"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_one_response_has_no_deviation_over_responses(library: str) -> None:
    make = LIBRARIES[library]
    found = summarize(Batch(old_logprobs=make(np.zeros((1, 3))), rollout_logprobs=make(np.zeros((1, 3))))).metrics
    assert found["is_weight_seq_std"] is None
    assert found["is_weight_product_std"] is None
    assert found["is_weight_std"] == 0.0

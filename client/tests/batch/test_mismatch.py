"""A1, token and response gaps: against plain Python, and what single cases must give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import mismatch_oracle
from tests.kit.batches import LIBRARIES, Drawn, assert_close, drawn_batches
from tocsin.batch import Batch, Settings, summarize


@settings(max_examples=100)
@given(drawn_batches(least_tokens=1), st.sampled_from(sorted(LIBRARIES)), st.sampled_from((0.6, 1.0)), st.booleans())
def test_as_plain_python_has_it(drawn: Drawn, library: str, temperature: float, packed: bool) -> None:
    batch = drawn.packed(library) if packed else drawn.batch(library)
    responses = drawn.tokens("old_logprobs", "rollout_logprobs")
    found = summarize(batch, Settings(temperature=temperature))
    assert_close(found.metrics, mismatch_oracle.mismatch(responses, temperature), relative=1e-8)
    assert_close(found.metrics, mismatch_oracle.perplexity(responses))


@settings(max_examples=50)
@given(drawn_batches(np.float32, least_tokens=1), st.sampled_from(sorted(LIBRARIES)))
def test_float32_is_as_good_as_its_digits(drawn: Drawn, library: str) -> None:
    responses = drawn.tokens("old_logprobs", "rollout_logprobs")
    found = summarize(drawn.batch(library)).metrics
    expected = mismatch_oracle.mismatch(responses, 1.0)
    loose = {name: expected.pop(name) for name in ("rollout_kl_k1_k3_ratio", "rollout_prob_pearson_correlation")}
    assert_close(found, expected, relative=2e-5, absolute=3e-6)
    assert_close(found, loose, relative=1e-2, absolute=1e-3)  # quotients of small differences
    assert_close(found, mismatch_oracle.perplexity(responses), relative=1e-5, absolute=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_engines_that_agree_to_the_last_bit(library: str) -> None:
    old = np.log(np.array([[0.5, 0.9, 0.2]], dtype=np.float32))
    found = summarize(Batch(old_logprobs=LIBRARIES[library](old), rollout_logprobs=LIBRARIES[library](old.copy())))
    zeros = ("abs_diff_mean", "abs_diff_std", "abs_diff_max", "abs_diff_p99", "abs_diff_p999")
    assert [found.metrics[f"rollout_logprob_{name}"] for name in zeros] == [0.0] * 5
    assert found.metrics["rollout_kl_k3"] == 0.0
    assert found.metrics["mismatch_logit_std"] == 0.0
    assert found.metrics["rollout_prob_pearson_correlation"] == pytest.approx(1.0, abs=1e-12)
    assert found.metrics["rollout_kl_k1_k3_ratio"] is None
    assert "rollout_kl_k3 is 0" in found.skipped["rollout_kl_k1_k3_ratio"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("constant", ["old_logprobs", "rollout_logprobs"])
def test_no_correlation_with_a_constant(library: str, constant: str) -> None:
    arrays = {name: np.log(np.linspace(0.1, 0.9, 7, dtype=np.float32)) for name in ("old_logprobs", "rollout_logprobs")}
    arrays[constant] = np.full(7, -0.1, dtype=np.float32)
    found = summarize(Batch(**{name: LIBRARIES[library](array.reshape(1, 7)) for name, array in arrays.items()}))
    assert found.metrics["rollout_prob_pearson_correlation"] is None
    assert "all the same" in found.skipped["rollout_prob_pearson_correlation"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_small_true_mismatch_has_k1_near_k3(library: str) -> None:
    """With tokens drawn from the rollout engine k1 and k3 estimate one KL; a bias of one engine sets them apart."""
    random = np.random.default_rng(7)
    vocabulary = 50
    rollout_logits = random.normal(0.0, 2.0, vocabulary)
    train_logits = rollout_logits + random.normal(0.0, 0.1, vocabulary)
    rollout, train = (logits - np.log(np.exp(logits).sum()) for logits in (rollout_logits, train_logits))
    tokens = random.choice(vocabulary, (16, 4096), p=np.exp(rollout))
    make = LIBRARIES[library]
    honest = summarize(Batch(old_logprobs=make(train[tokens]), rollout_logprobs=make(rollout[tokens]))).metrics
    kl = float((np.exp(rollout) * (rollout - train)).sum())
    assert honest["rollout_kl_k3"] == pytest.approx(kl, rel=0.05)
    assert honest["rollout_kl_k1_k3_ratio"] == pytest.approx(1.0, abs=0.2)
    biased = summarize(Batch(old_logprobs=make(train[tokens] - 0.05), rollout_logprobs=make(rollout[tokens]))).metrics
    assert biased["rollout_kl_k1_k3_ratio"] > 3  # type: ignore[operator]  # a number: there are tokens


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_logprob_that_is_no_number_shows(library: str, value: float) -> None:
    old = np.full((2, 3), -1.0, dtype=np.float32)
    old[1, 1] = value
    make = LIBRARIES[library]
    found = summarize(Batch(old_logprobs=make(old), rollout_logprobs=make(np.full((2, 3), -1.1, dtype=np.float32)))).metrics
    expected = math.nan if math.isnan(value) else math.inf
    for name in (
        "rollout_logprob_abs_diff_mean",
        "rollout_logprob_abs_diff_max",
        "rollout_logprob_abs_diff_p999",
        "rollout_kl_k2",
    ):
        assert found[name] == pytest.approx(expected, nan_ok=True), name
    assert found["extreme_token_ratio"] == (1 / 6 if value == -math.inf else 0.0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_fuse_keeps_k3_positive(library: str) -> None:
    make = LIBRARIES[library]
    old = make(np.array([[-1.0, -1.0, 1e12]], dtype=np.float32))
    rollout = make(np.array([[-1.0, -1e12, -1.0]], dtype=np.float32))
    found = summarize(Batch(old_logprobs=old, rollout_logprobs=rollout)).metrics
    assert found["rollout_kl_k3_max"] == pytest.approx(math.exp(20.0) - 21.0, rel=1e-6)
    assert found["rollout_kl_k3"] == pytest.approx(2 * (math.exp(20.0) - 21.0) / 3, rel=1e-6)

"""A1, the first minibatch: any ratio but 1 is a wrong probability."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import mismatch_oracle
from tests.kit.batches import LIBRARIES, Drawn, assert_close, drawn_batches
from tocsin.batch import Batch, Settings, summarize


@settings(max_examples=60)
@given(drawn_batches(), st.sampled_from(sorted(LIBRARIES)), st.sampled_from(((0.2, 0.2), (0.1, 0.28))))
def test_as_plain_python_has_it(drawn: Drawn, library: str, clip: tuple[float, float]) -> None:
    responses = drawn.tokens("new_logprobs", "old_logprobs")
    chosen = [response for response, first in zip(responses, drawn.per_row["first_minibatch"], strict=True) if first]
    ratios = [mismatch_oracle.fuse(new - old) for response in chosen for new, old in response]
    clipped = [float(ratio < 1 - clip[0] or ratio > 1 + clip[1]) for ratio in ratios]
    expected = {
        "first_minibatch_clip_ratio": mismatch_oracle.mean(clipped) if ratios else None,
        "first_minibatch_ratio_p99": mismatch_oracle.quantile(ratios, 0.99) if ratios else None,
    }
    found = summarize(drawn.batch(library), Settings(clip_low=clip[0], clip_high=clip[1]))
    assert_close(found.metrics, expected)


@pytest.mark.parametrize("library", LIBRARIES)
def test_both_sides_count_and_nan_too(library: str) -> None:
    make = LIBRARIES[library]
    new = make(np.array([[0.5, -0.5, 0.0, math.nan], [9.0, 9.0, 9.0, 9.0]], dtype=np.float32))
    old = make(np.zeros((2, 4), dtype=np.float32))
    batch = Batch(new_logprobs=new, old_logprobs=old, first_minibatch=make(np.array([True, False])))
    found = summarize(batch).metrics
    assert found["first_minibatch_clip_ratio"] == 0.75
    assert math.isnan(found["first_minibatch_ratio_p99"])  # type: ignore[arg-type]  # a number: there are tokens


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_same_weights_give_one(library: str) -> None:
    same = LIBRARIES[library](np.full((2, 4), -0.3, dtype=np.float32))
    found = summarize(Batch(new_logprobs=same, old_logprobs=same, first_minibatch=[1, 1])).metrics
    assert found["first_minibatch_clip_ratio"] == 0.0
    assert found["first_minibatch_ratio_p99"] == 1.0

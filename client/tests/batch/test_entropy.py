"""Mean entropy, and that of the fifth of the tokens where it is highest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.kit.token_batches import LIBRARIES, as_given, close, cut_blocks, flat, measured, number, random_tokens, tokens_of

MEAN, TOP = "policy_entropy", "policy_entropy_top20"


def oracle(values: list[float]) -> dict[str, float]:
    """By sorting all of them."""
    size = math.ceil(len(values) / 5)
    highest = sorted(values, reverse=True)[:size]
    return {MEAN: math.fsum(values) / len(values), TOP: math.fsum(highest) / size}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", [1, 30, 1 << 16])
def test_against_the_oracle(monkeypatch: pytest.MonkeyPatch, library: str, block: int) -> None:
    cut_blocks(monkeypatch, block)
    arrays = random_tokens(3, entropy=lambda random, shape: random.exponential(0.5, shape))
    given, rounded = as_given(arrays, library)
    summary = measured(**given)
    for name, expected in oracle([value for (value,) in flat(tokens_of(rounded, "entropy"))]).items():
        assert close(number(summary, name), expected), name


@pytest.mark.parametrize("count", range(1, 27))
def test_the_set_is_a_fifth_rounded_up_and_never_empty(count: int) -> None:
    values = [float(index) for index in range(count)]
    summary = measured(entropy=[values], mask=[[1] * count])
    size = {1: 1, 5: 1, 6: 2, 10: 2, 11: 3, 15: 3, 16: 4, 20: 4, 21: 5, 25: 5, 26: 6}.get(count)
    if size is not None:
        assert number(summary, TOP) == pytest.approx(sum(values[-size:]) / size)
    assert number(summary, TOP) == pytest.approx(oracle(values)[TOP])


def test_zeros_do_not_shrink_it() -> None:
    """20 tokens, one fork left: the top is four tokens, of which three have no entropy."""
    summary = measured(entropy=[[2.0] + [0.0] * 19], mask=[[1] * 20])
    assert (number(summary, TOP), number(summary, MEAN)) == (0.5, 0.1)


def test_ties_at_the_edge_count_as_many_times_as_fit() -> None:
    summary = measured(entropy=[[1.0] * 9 + [3.0]], mask=[[1] * 10])
    assert number(summary, TOP) == 2.0


def test_nothing_under_the_mask() -> None:
    hidden = {"entropy": np.full((2, 3), np.nan), "mask": np.zeros((2, 3))}
    for fields in (hidden, {"entropy": np.zeros((0, 5))}, {"entropy": np.zeros((3, 0))}):
        summary = measured(**fields)
        assert (summary.metrics[MEAN], summary.metrics[TOP]) == (None, None)
    assert "entropy" in measured(rewards=[1.0]).skipped


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_shows(value: float) -> None:
    given: Any = np.array([[0.1, value, 0.3, 0.2, 0.1, 0.1]])
    summary = measured(entropy=given, mask=np.ones_like(given))
    assert all(close(number(summary, name), value) for name in (MEAN, TOP))


@settings(max_examples=100)
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 7)), elements=st.floats(0, 12, width=32)), st.data()
)
def test_of_any_batch(entropy: Any, data: st.DataObject) -> None:
    mask = data.draw(arrays.arrays(np.bool_, entropy.shape))
    summary = measured(entropy=entropy, mask=mask)
    under = entropy[mask].tolist()
    if not under:
        assert summary.metrics[TOP] is None
        return
    expected = oracle(under)
    assert number(summary, TOP) == pytest.approx(expected[TOP], rel=1e-6)
    assert number(summary, MEAN) == pytest.approx(expected[MEAN], rel=1e-6)
    assert number(summary, TOP) >= number(summary, MEAN) * (1 - 1e-9)

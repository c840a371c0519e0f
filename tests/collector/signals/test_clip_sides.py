"""B6 by hand-made cases: which side, given which sign, and from which metrics."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.model import Provenance
from collector.run import Run
from tests.collector.records import apply, played, row
from tests.collector.signals.playing import values_of


def newest(run: Run, name: str) -> float:
    return run.series[name].values[-1]


@pytest.mark.parametrize(
    ("high", "low", "balance"), [(0.02, 0.02, 0.0), (0.03, 0.01, 0.5), (0.0, 0.05, -1.0), (0.05, 0.0, 1.0)]
)
def test_balance_of_the_shares_given_the_sign(high: float, low: float, balance: float) -> None:
    metrics: dict[str, Any] = {"ppo_clip_high_given_positive_ratio": high, "ppo_clip_low_given_negative_ratio": low}
    run = played([row(n, **metrics) for n in range(6)])
    assert newest(run, "clip_side_balance") == pytest.approx(balance)
    assert run.series["clip_side_balance"].provenance is Provenance.SIGNAL


def test_many_negatives_are_no_heavy_low_side() -> None:
    # 90 % of the tokens have a negative advantage: nine times as many low hits, and the same share of either sign.
    metrics: dict[str, Any] = {"ppo_clip_high_ratio": 0.002, "ppo_clip_low_ratio": 0.018, "positive_advantage_token_ratio": 0.1}
    run = played([row(n, **metrics) for n in range(6)])
    assert newest(run, "clip_side_balance") == pytest.approx(0.0)
    assert newest(run, "clip_low_heavy_records") == 0.0
    assert run.series["clip_side_balance"].provenance is Provenance.SIGNAL


def test_without_signs_it_is_a_proxy() -> None:
    run = played([row(n, ppo_clip_high_ratio=0.002, ppo_clip_low_ratio=0.018) for n in range(6)])
    assert newest(run, "clip_side_balance") == pytest.approx(-0.8)
    assert run.series["clip_side_balance"].provenance is Provenance.PROXY


def test_zero_advantage_tokens_are_on_neither_side() -> None:
    metrics: dict[str, Any] = {"ppo_clip_high_ratio": 0.02, "ppo_clip_low_ratio": 0.02, "positive_advantage_token_ratio": 0.2}
    run = played([row(n, zero_advantage_token_ratio=0.6, **metrics) for n in range(6)])
    assert newest(run, "clip_side_balance") == pytest.approx(0.0)


def test_records_in_a_row_and_the_way_back() -> None:
    heavy: dict[str, Any] = {"ppo_clip_high_given_positive_ratio": 0.0005, "ppo_clip_low_given_negative_ratio": 0.05}
    run = played([row(n, **heavy) for n in range(1, 5)])
    assert newest(run, "clip_low_heavy_records") == 4.0
    apply(run, *(row(n, ppo_clip_high_given_positive_ratio=0.05, ppo_clip_low_given_negative_ratio=0.05) for n in range(5, 10)))
    assert newest(run, "clip_low_heavy_records") == 0.0


def test_nothing_clipped_is_balanced_and_what_is_not_finite_is_left_out() -> None:
    run = played([row(n, ppo_clip_high_given_positive_ratio=0.0, ppo_clip_low_given_negative_ratio=0.0) for n in range(3)])
    assert newest(run, "clip_side_balance") == 0.0
    assert newest(run, "clip_low_heavy_records") == 0.0
    run = played(
        [
            row(n, ppo_clip_high_given_positive_ratio=math.nan if n == 2 else 0.01, ppo_clip_low_given_negative_ratio=0.01)
            for n in range(4)
        ]
    )
    assert newest(run, "clip_side_balance") == pytest.approx(0.0)


def test_one_side_alone_says_nothing() -> None:
    assert "clip_side_balance" not in played([row(n, ppo_clip_low_ratio=0.1) for n in range(9)]).series


def test_state_survives_a_restart() -> None:
    heavy: dict[str, Any] = {"ppo_clip_high_given_positive_ratio": 0.0, "ppo_clip_low_given_negative_ratio": 0.05}
    run = Run.load(played([row(n, **heavy) for n in range(1, 5)]).dump())
    apply(run, row(5, **heavy))
    assert newest(run, "clip_low_heavy_records") == 5.0


SHARES = st.one_of(st.floats(0.0, 0.2), st.sampled_from([0.0, 0.01, 0.001, 0.1, math.nan, math.inf]))
NAMES = ("ppo_clip_high_ratio", "ppo_clip_low_ratio", "positive_advantage_token_ratio", "zero_advantage_token_ratio")


def expected(rows: list[tuple[float, float, float, float]]) -> tuple[float, bool] | None:
    """(balance, heavy) at the last of some rows, from the definition."""
    means = []
    for values in zip(*rows[-5:], strict=True):
        known = [value for value in values if math.isfinite(value)]
        means.append(sum(known) / len(known) if known else None)
    high, low, positive, zero = means
    if high is None or low is None:
        return None
    if positive is not None:
        negative = max(0.0, 1.0 - positive - (zero or 0.0))
        high, low = high / positive if positive > 0 else 0.0, low / negative if negative > 0 else 0.0
    balance = (high - low) / (high + low) if 0 < high + low < math.inf else 0.0
    return balance, low > 0.01 and high < low / 10


@settings(max_examples=80)
@given(st.lists(st.tuples(SHARES, SHARES, SHARES, SHARES), min_size=1, max_size=40), st.integers(0, 39), st.booleans())
@example([(0.0, 0.125, math.nan, 0.0), (0.125, 0.0, 5e-324, 0.0)], 0, False)  # the mean of a NaN and next to nothing
def test_equals_a_recomputation(rows: list[tuple[float, float, float, float]], restart: int, apart: bool) -> None:
    run, in_a_row = Run("r"), 0
    for at, values in enumerate(rows):
        if at == restart:
            run = Run.load(run.dump())
        metrics: dict[str, Any] = dict(zip(NAMES, values, strict=True))
        late = {NAMES[1]: metrics.pop(NAMES[1])} if apart and at % 3 == 1 else None  # one side in a further row of its step
        apply(run, row(at, **metrics))
        if late:
            apply(run, row(at, **late))
        found = expected(rows[: at + 1])
        if found is None:
            continue
        in_a_row = in_a_row + 1 if found[1] else 0
        assert newest(run, "clip_side_balance") == pytest.approx(found[0], rel=1e-9, abs=1e-12)
        assert newest(run, "clip_low_heavy_records") == in_a_row


def test_sound_runs_are_heavy_below_for_a_few_records_only() -> None:
    longest = {
        name: max(value for _, value in values_of(name, "clip_low_heavy_records"))
        for name in ("tiny-healthy-s1", "tiny-healthy-s2", "tiny-warmup-s1", "tiny-group_size-s1", "tiny-adv_precision-s1")
    }
    assert longest.pop("tiny-adv_precision-s1") > 12
    assert max(longest.values()) < 10

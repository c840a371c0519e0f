"""B6 by hand-made cases: which side, given which sign, and from which metrics."""

from __future__ import annotations

import math
from typing import Any

import pytest

from collector.model import Provenance
from collector.run import Run
from tests.collector.records import apply, played, row


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

"""B9: rhythm, resumes, vanished, constant and non-finite metrics."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.run import Run
from collector.signals.life_cycle import CONSTANT_AFTER, GAPS, VANISHED_AFTER, is_core
from tests.collector.records import START, apply, ended, played, row, time_of


def last(run: Run, name: str) -> float:
    return run.series[name].values[-1]


@settings(max_examples=50)
@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=100))
def test_gaps(gaps: list[float]) -> None:
    times = [START]
    for gap in gaps:
        times.append(times[-1] + gap)
    run = played([row(n, time=time) for n, time in enumerate(times)])
    exact = [b - a for a, b in itertools.pairwise(times)]
    expected = statistics.median(exact[-GAPS:])
    assert last(run, "record_gap_median") == pytest.approx(expected)
    assert last(run, "record_gap_seconds") == exact[-1]
    assert last(run, "stall_after") == max(5 * last(run, "record_gap_median"), 600.0)


def test_time_that_goes_back_is_no_negative_gap() -> None:
    run = played([row(1), row(2, time=time_of(0))])
    assert last(run, "record_gap_seconds") == 0.0


def test_pause_of_a_restart_is_no_gap() -> None:
    run = played([row(n) for n in range(1, 10)])
    apply(run, row(5, attempt=2, time=time_of(10_000)), row(6, attempt=2, time=time_of(10_001)))
    assert last(run, "record_gap_median") == 20.0
    assert list(run.series["resumed"].values)[-2:] == [1.0, 0.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "-inf"])
def test_nonfinite_core_metrics_are_counted_at_their_first_record(value: float | str) -> None:
    run = played([row(n, grad_norm=1.0, reward_mean=0.5) for n in range(1, 5)])
    assert last(run, "nonfinite_metric_count") == 0.0
    apply(run, row(5, grad_norm=value, reward_component_mean={"a": value}, kl_old_policy=0.1))
    assert last(run, "nonfinite_metric_count") == 2.0
    assert run.reasons["nonfinite_metric_count"] == ("grad_norm", 'reward_component_mean{component="a"}')
    apply(run, row(6, grad_norm=1.0))
    assert last(run, "nonfinite_metric_count") == 0.0
    assert not run.reasons["nonfinite_metric_count"]


def test_metrics_that_may_be_nan_are_not_core() -> None:
    run = played(
        [row(1, rollout_prob_pearson_correlation="nan", response_length_correct_mean="nan", eval_score="nan", own="nan")]
    )
    assert last(run, "nonfinite_metric_count") == 0.0
    assert not is_core("grad_norm_spike_ratio")


def test_sum_that_overflows_is_not_a_nonfinite_metric() -> None:
    run = played([row(1, grad_norm=1.7e308, policy_loss=1.7e308)])
    assert last(run, "nonfinite_metric_count") == 0.0


def test_nan_in_a_further_row_of_the_step_is_told_with_the_next_step_at_the_latest() -> None:
    run = played([row(1, reward_mean=0.5), row(1, grad_norm="nan")])
    assert last(run, "nonfinite_metric_count") == 1.0  # shown, but the step was judged with its first row
    apply(run, row(2, reward_mean=0.5, grad_norm=1.0))
    assert "nonfinite_metric_count" in run.arrived
    assert last(run, "nonfinite_metric_count") == 1.0
    apply(run, row(3, reward_mean=0.5, grad_norm=1.0))
    assert last(run, "nonfinite_metric_count") == 0.0


def test_vanished_metric() -> None:
    run = played([row(n, grad_norm=1.0, reward_mean=0.5) for n in range(1, 20)])
    counts = []
    for n in range(20, 20 + VANISHED_AFTER + 3):
        apply(run, row(n, grad_norm=1.0))
        counts.append(last(run, "vanished_metric_count"))
    assert counts == [0.0] * VANISHED_AFTER + [1.0] * 3  # a step is complete when the next one begins
    assert run.reasons["vanished_metric_count"] == ("reward_mean",)
    apply(run, row(40, grad_norm=1.0, reward_mean=0.5), row(41, grad_norm=1.0, reward_mean=0.5))
    assert last(run, "vanished_metric_count") == 0.0


def test_sparse_metric_has_not_vanished_between_its_values() -> None:
    run = Run("r")
    for n in range(1, 400):
        extra: dict[str, Any] = {"eval_score": 0.5} if n % 25 == 0 else {}
        apply(run, row(n, grad_norm=1.0, **extra))
        assert last(run, "vanished_metric_count") == 0.0
    for n in range(400, 500):
        apply(run, row(n, grad_norm=1.0))
    assert run.reasons["vanished_metric_count"] == ("eval_score",)


def test_null_is_not_vanished() -> None:
    run = played([row(n, grad_norm=1.0, reward_mean=0.5 if n < 20 else None) for n in range(1, 60)])
    assert last(run, "vanished_metric_count") == 0.0


def test_steps_of_several_rows_are_complete_together() -> None:
    run = Run("r")
    for n in range(1, 40):
        apply(run, row(n, grad_norm=1.0), row(n, reward_mean=0.5))
        assert last(run, "vanished_metric_count") == 0.0
        assert last(run, "key_set_change_count") == 0.0


def test_key_set_change() -> None:
    run = played([row(n, grad_norm=1.0, a=1.0) for n in range(1, 10)])
    apply(run, row(10, grad_norm=1.0, b=1.0, c=1.0), row(11, grad_norm=1.0, b=1.0, c=1.0))
    assert last(run, "key_set_change_count") == 3.0
    apply(run, row(12, grad_norm=1.0, b=1.0, c=1.0))
    assert last(run, "key_set_change_count") == 0.0


def test_constant_metric() -> None:
    run = played([row(n, grad_norm=0.0, reward_mean=n / 100) for n in range(1, CONSTANT_AFTER)])
    assert last(run, "constant_metric_count") == 0.0
    apply(run, row(50, grad_norm=0.0, reward_mean=0.9))
    assert last(run, "constant_metric_count") == 1.0
    assert run.reasons["constant_metric_count"] == ("grad_norm",)
    apply(run, row(51, grad_norm=0.1, reward_mean=0.9))
    assert last(run, "constant_metric_count") == 0.0


def test_what_the_client_dropped() -> None:
    run = Run("r")
    record = row(1, grad_norm=1.0)
    record.dropped = 3
    apply(run, record)
    assert last(run, "client_dropped_records") == 3.0


@pytest.mark.parametrize(("status", "value"), [("failed", 1.0), ("finished", 0.0), ("stopped", 0.0)])
def test_how_the_run_ended(status: str, value: float) -> None:
    run = played([row(1, grad_norm=1.0), ended(1, status)])
    assert last(run, "run_failed") == value

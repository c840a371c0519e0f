"""B1 against a recomputation with the statistics module."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.run import Run
from collector.signals.baseline import COUNT, SKIP, baseline_of
from tests.collector.records import apply, played, row

FINITE = st.floats(-1e12, 1e12)


def oracle(values: list[float]) -> tuple[float, float]:
    centre = statistics.median(values)
    mad = statistics.median([abs(value - centre) for value in values])
    return centre, max(1.4826 * mad, 0.01 * abs(centre), 1e-9)


@given(st.lists(FINITE, min_size=1, max_size=40))
def test_centre_and_scale(values: list[float]) -> None:
    found = baseline_of(values)
    centre, scale = oracle(values)
    assert found.centre == pytest.approx(centre, rel=1e-12, abs=1e-300)
    assert found.scale == pytest.approx(scale, rel=1e-9)
    assert found.count == len(values)


def test_huge_values_do_not_overflow() -> None:
    found = baseline_of([1.7e308, 1.7e308, 1.6e308, 1.6e308])
    assert math.isfinite(found.centre)
    assert math.isfinite(found.scale)


def test_first_clean_records_after_the_warm_up_then_frozen() -> None:
    run = played([row(n, grad_norm=1000.0 if n <= SKIP else float(n)) for n in range(1, SKIP + COUNT + 1)])
    assert "grad_norm" not in run.baselines  # the last value may still turn out to breach
    apply(run, row(100, grad_norm=1e9))
    values = [float(n) for n in range(SKIP + 1, SKIP + COUNT + 1)]
    frozen = run.baselines["grad_norm"]
    assert (frozen.centre, frozen.scale) == pytest.approx(oracle(values))
    apply(run, *[row(n, grad_norm=5.0) for n in range(101, 200)])
    assert run.baselines["grad_norm"] is frozen


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, "nan"])
def test_values_that_are_not_finite_do_not_count(bad: Any) -> None:
    run = Run("r")
    apply(run, *[row(n, grad_norm=bad if n % 2 else 2.0) for n in range(1, 2 * COUNT + SKIP)])
    assert "grad_norm" not in run.baselines
    apply(run, *[row(n, grad_norm=2.0) for n in range(100, 110)])
    assert run.baselines["grad_norm"].centre == 2.0


def test_breaching_values_do_not_count() -> None:
    run = Run("r")
    for n in range(1, 60):
        breach = n % 3 == 0
        apply(run, row(n, grad_norm=50.0 if breach else 1.0, reward_mean=0.5))
        if breach:
            run.mark_breaching(["grad_norm"])
    assert run.baselines["grad_norm"].centre == 1.0
    assert run.baselines["grad_norm"].scale == pytest.approx(0.01)
    assert run.baselines["reward_mean"].count == COUNT


def test_sparse_metric_is_learnt_from_its_own_values() -> None:
    run = played([row(n, grad_norm=1.0, eval_score=float(n) if n % 10 == 0 else None) for n in range(1, 10 * COUNT + 12)])
    assert run.baselines["eval_score"].centre == pytest.approx(statistics.median(range(10, 10 * COUNT + 1, 10)))


def test_signals_have_baselines_too() -> None:
    run = played([row(n, grad_norm=1.0) for n in range(1, 60)])
    assert run.baselines["record_gap_seconds"].centre == 20.0

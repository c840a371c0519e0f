"""B4 against a recomputation from all values, for every series that a trainer can produce."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.run import Run
from collector.signals.spikes import LEAST, RATIO, SIGMAS, WATCHED, WINDOW
from tests.collector.records import apply, played, row
from tocsin import wire

VALUES = st.lists(
    st.one_of(st.floats(0.01, 10.0), st.floats(-3.0, 3.0), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e300, 2.0])),
    min_size=1,
    max_size=60,
)


def oracle(values: list[float], at: int) -> tuple[float, float] | None:
    """From the definition: all earlier values, sliced, filtered, and measured with the statistics module."""
    before = [abs(value) for value in values[max(0, at - WINDOW) : at] if math.isfinite(value)]
    if len(before) < LEAST or statistics.median(before) == 0:
        return None
    middle = statistics.median(before)
    scale = max(1.4826 * statistics.median([abs(value - middle) for value in before]), 0.01 * middle, 1e-9)
    return abs(values[at]) / middle, (abs(values[at]) - middle) / scale


@settings(max_examples=60)
@given(VALUES)
def test_equals_the_recomputation_at_every_record(values: list[float]) -> None:
    run = Run("r", depth=64)
    in_a_row = 0
    for at, value in enumerate(values):
        apply(run, row(at, grad_norm=value))
        expected = oracle(values, at)
        assert ("grad_norm_spike_ratio" in run.arrived) == (expected is not None)
        if expected is None:
            continue
        ratio, sigmas = (run.series[f"grad_norm_spike_{what}"].values[-1] for what in ("ratio", "sigmas"))
        assert ratio == pytest.approx(expected[0], rel=1e-9, nan_ok=True)
        assert sigmas == pytest.approx(expected[1], rel=1e-9, abs=1e-9, nan_ok=True)
        if math.isfinite(value):
            in_a_row = in_a_row + 1 if ratio >= RATIO and sigmas >= SIGMAS else 0
        assert run.series["grad_norm_spike_records"].values[-1] == in_a_row


@pytest.mark.parametrize("name", WATCHED)
def test_each_watched_metric(name: str) -> None:
    def at(step: int, value: float) -> wire.StepRecord:
        return wire.StepRecord(run="r", step=step, time=20.0 * step, metrics={name: value})

    run = played([at(n, 1.0 + n % 3 * 0.1) for n in range(1, 30)])
    apply(run, at(30, 25.0), at(31, 30.0))
    assert run.series[f"{name}_spike_records"].values[-1] == 2.0
    apply(run, at(32, 1.0))
    assert run.series[f"{name}_spike_records"].values[-1] == 0.0


def test_tight_series_does_not_cry_wolf() -> None:
    run = played([row(n, grad_norm=1.0) for n in range(1, 30)])
    apply(run, row(30, grad_norm=1.5))
    assert run.series["grad_norm_spike_sigmas"].values[-1] == pytest.approx(50.0)
    assert run.series["grad_norm_spike_records"].values[-1] == 0.0


def test_late_row_is_judged_by_what_was_before_it() -> None:
    values = [1.0 + n % 4 * 0.1 for n in range(40)]
    run = played([row(n, grad_norm=value) for n, value in enumerate(values) if n != 35])
    values[35] = 20.0
    apply(run, row(35, grad_norm=20.0))
    expected = oracle(values, 35)
    assert expected is not None
    assert run.series["grad_norm_spike_ratio"].at(35) == pytest.approx(expected[0])
    apply(run, row(40, grad_norm=2.0))
    after = oracle([*values, 2.0], 40)
    assert after is not None
    assert run.series["grad_norm_spike_ratio"].at(40) == pytest.approx(after[0])


def test_overwritten_value_is_what_later_records_are_measured_against() -> None:
    run = played([row(n, grad_norm=1.0 + n / 10) for n in range(10)])
    values = [1.0 + n / 10 for n in range(10)]
    for at in (9, 8, 7, 6, 5):  # the newest one, then late ones
        apply(run, row(at, grad_norm=100.0 + at))
        values[at] = 100.0 + at
    for n in range(10, 45):
        apply(run, row(n, grad_norm=3.0))
        values.append(3.0)
        expected = oracle(values, n)
        assert expected is not None
        assert run.series["grad_norm_spike_ratio"].values[-1] == pytest.approx(expected[0])
        assert run.series["grad_norm_spike_sigmas"].values[-1] == pytest.approx(expected[1])


def test_resume_starts_the_count_anew() -> None:
    run = played([row(n, grad_norm=1.0) for n in range(20)])
    apply(run, row(20, grad_norm=50.0), row(20, attempt=2, time=9e9, grad_norm=50.0))
    assert run.series["grad_norm_spike_records"].values[-1] == 1.0

"""B3 against slow recomputations: the trend by all pairs, the level and the attribution from the definition."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.run import Run
from collector.signals.ess_decline import LEAST, WINDOW
from collector.signals.trend import MannKendall
from tests.collector.records import apply, played, row
from tests.collector.signals.playing import flagged, values_of
from tocsin import wire

SAMPLES = st.lists(
    st.one_of(st.floats(0.01, 1.0), st.sampled_from([0.5, 0.25, math.nan, math.inf, -math.inf, 1e308])), min_size=1, max_size=70
)


def oracle(samples: list[float]) -> float | None:
    """z over the finite ones of the last WINDOW samples, pair by pair."""
    values = [x for x in samples[-WINDOW:] if math.isfinite(x)]
    size = len(values)
    if size < 2:
        return None
    score = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (size * (size - 1) * (2 * size + 5) - ties) / 18
    return 0.0 if score == 0 or variance == 0 else (score - math.copysign(1, score)) / math.sqrt(variance)


@settings(max_examples=150)
@given(SAMPLES)
def test_the_moving_trend_equals_all_pairs(samples: list[float]) -> None:
    trend = MannKendall(WINDOW)
    for at, sample in enumerate(samples):
        trend.push(sample)
        expected = oracle(samples[: at + 1])
        assert trend.z() == (None if expected is None else pytest.approx(expected, rel=1e-12))


@settings(max_examples=60)
@given(SAMPLES, st.integers(0, 69))
def test_the_series_equals_a_recomputation_also_after_a_restart(samples: list[float], restart: int) -> None:
    run = Run("r", depth=64)
    for at, sample in enumerate(samples):
        if at == restart:
            run = Run.load(run.dump(), depth=64)
        apply(run, row(at, ess_ratio=sample))
        expected = oracle(samples[: at + 1])
        enough = sum(map(math.isfinite, samples[max(0, at + 1 - WINDOW) : at + 1])) >= LEAST
        assert ("ess_ratio_trend" in run.arrived) == enough
        if enough:
            assert run.series["ess_ratio_trend"].values[-1] == pytest.approx(expected)


def test_a_late_and_an_overwritten_value_are_judged_where_they_belong() -> None:
    values = [0.9 - 0.01 * n for n in range(30)]
    run = played([row(n, ess_ratio=value) for n, value in enumerate(values) if n != 25])
    apply(run, row(25, ess_ratio=values[25]))
    assert run.series["ess_ratio_trend"].at(25) == pytest.approx(oracle(values[:26]))
    values[29] = 0.99
    apply(run, row(29, ess_ratio=0.99))  # the same step again, with another value
    values.append(0.5)
    apply(run, row(30, ess_ratio=0.5))
    assert run.series["ess_ratio_trend"].values[-1] == pytest.approx(oracle(values))


def steps(first: int, last: int, **metrics: float) -> list[wire.Record]:
    def moved(n: int) -> dict[str, Any]:
        return {name: value + 0.001 * value * (n % 3) for name, value in metrics.items()}

    return [row(n, **moved(n)) for n in range(first, last)]


@pytest.mark.parametrize(
    ("gap", "stale", "expected"),
    [(0.02, 1.0, (1.0, 0.0)), (0.002, 8.0, (0.0, 1.0)), (0.02, 8.0, (1.0, 1.0)), (0.002, 1.0, (0.0, 0.0))],
    ids=["engine", "staleness", "both", "unknown"],
)
def test_attribution(gap: float, stale: float, expected: tuple[float, float]) -> None:
    run = played(steps(1, 40, ess_ratio=0.9, rollout_logprob_abs_diff_mean=0.002, staleness_mean=1.0))
    apply(run, *steps(40, 46, ess_ratio=0.6, rollout_logprob_abs_diff_mean=gap, staleness_mean=stale))
    assert (run.series["ess_decline_engine"].values[-1], run.series["ess_decline_staleness"].values[-1]) == expected
    assert run.series["ess_ratio_relative"].values[-1] == pytest.approx(0.6 / 0.9, rel=0.01)


def test_what_nobody_logs_accuses_and_acquits_nobody() -> None:
    run = played([row(n, ess_ratio=0.9 - 0.001 * n) for n in range(60)])
    assert "ess_ratio_relative" in run.series
    assert "ess_decline_engine" not in run.series
    assert "ess_decline_staleness" not in run.series


# ---- recorded runs

ENGINE_ONLY = ("tiny-engine_quant-s1", "tiny-engine_temperature-s1")
OLD_ROLLOUTS = ("tiny-stale-s1", "tiny-engine_sync-s1")


@pytest.mark.parametrize("name", [*ENGINE_ONLY, *OLD_ROLLOUTS])
def test_faults_are_attributed_from_their_first_record_on(name: str) -> None:
    told = flagged(name, "ess_decline_engine", "ess_decline_staleness")
    after = list(range(120, 241))
    assert told["ess_decline_engine"] == after
    assert told["ess_decline_staleness"] == (after if name in OLD_ROLLOUTS else [])
    level = dict(values_of(name, "ess_ratio_relative"))
    assert level[122] < 0.97 < min(value for step, value in level.items() if step < 120)


@pytest.mark.parametrize("name", ["tiny-healthy-s1", "tiny-healthy-s2", "tiny-group_size-s1", "tiny-data_shift-s1"])
def test_sound_engines_are_not_accused(name: str) -> None:
    assert not any(flagged(name, "ess_decline_engine", "ess_decline_staleness").values())
    assert min(value for _, value in values_of(name, "ess_ratio_relative")) > 0.97

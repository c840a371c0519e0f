"""B7 by hand-made cases, against a recomputation from the samples, and on the recorded runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.run import Run
from collector.signals.length import GROWTH, WINDOW
from tests.collector.records import apply, opened, played, row
from tests.collector.signals.playing import flagged
from tests.collector.signals.test_ess_decline import oracle as mann_kendall
from tests.collector.signals.test_trend import fitted

CORRECT, INCORRECT = "response_length_correct_mean", "response_length_incorrect_mean"


def lengths(step: int, correct: float, incorrect: float) -> dict[str, Any]:
    return {CORRECT: correct * (1 + 0.001 * (step % 3)), INCORRECT: incorrect * (1 + 0.001 * (step % 2))}


def newest(run: Run, name: str) -> float:
    return run.series[name].values[-1]


@pytest.mark.parametrize(
    ("correct", "incorrect", "hack", "norm"),
    [
        (1.03, 1.01, 1.0, 0.0),
        (1.01, 1.03, 0.0, 0.0),
        (1.00, 1.02, 0.0, 1.0),
        (0.98, 1.02, 0.0, 1.0),
        (1.02, 1.00, 0.0, 0.0),
        (1.00, 1.00, 0.0, 0.0),
        (0.97, 0.97, 0.0, 0.0),
        (1.004, 1.003, 0.0, 0.0),
    ],
    ids=["hack", "incorrect faster", "norm", "norm and shrinking", "only correct", "flat", "shrinking", "slowly"],
)
def test_kinds_of_growth(correct: float, incorrect: float, hack: float, norm: float) -> None:
    run = played([row(n, **lengths(n, 400 * correct**n, 500 * incorrect**n)) for n in range(30)])
    assert (newest(run, "length_hack"), newest(run, "length_norm_bias")) == (hack, norm)


LENGTHS = st.one_of(st.floats(1.0, 1000.0), st.sampled_from([math.nan, math.inf, 100.0, 200.0]))


@settings(max_examples=80)
@given(st.lists(st.tuples(LENGTHS, LENGTHS), min_size=8, max_size=45), st.integers(2, 4))
def test_slopes_and_flags_equal_a_recomputation(pairs: list[tuple[float, float]], growth: int) -> None:
    grown = [(a * growth ** (n / 9), b * growth ** (n / 11)) for n, (a, b) in enumerate(pairs)]
    run = played([row(n, **{CORRECT: a, INCORRECT: b}) for n, (a, b) in enumerate(grown)])
    slopes, rises = [], []
    for values in zip(*grown, strict=True):
        known = [value for value in values[-WINDOW:] if math.isfinite(value)]
        if len(known) < 8:
            assert "length_hack" not in run.arrived
            return
        slope, mean, _ = fitted(known)
        slopes.append(float(slope / mean))
        z = mann_kendall(list(values))
        rises.append(slopes[-1] > GROWTH and z is not None and z > 2.0)
    assert newest(run, "response_length_correct_slope") == pytest.approx(slopes[0], rel=1e-9, abs=1e-12)
    assert newest(run, "response_length_incorrect_slope") == pytest.approx(slopes[1], rel=1e-9, abs=1e-12)
    assert newest(run, "length_hack") == float(all(rises) and slopes[0] > slopes[1])
    assert newest(run, "length_norm_bias") == float(rises[1] and not rises[0])


def test_a_late_value_is_judged_where_it_belongs() -> None:
    early = played([row(n, **lengths(n, 400 * 1.03**n, 500 * 1.01**n)) for n in range(21)])
    run = played([row(n, **lengths(n, 400 * 1.03**n, 500 * 1.01**n)) for n in range(25) if n != 20])
    apply(run, row(20, **lengths(20, 400 * 1.03**20, 500 * 1.01**20)))
    assert run.series["response_length_correct_slope"].at(20) == newest(early, "response_length_correct_slope")


def test_collapse_needs_few_tokens_and_a_fall() -> None:
    run = played([row(n, response_length_mean=300.0 + n % 5) for n in range(40)])
    assert newest(run, "length_collapse") == 0.0
    apply(run, *(row(n, response_length_mean=80.0) for n in range(40, 45)))  # a quarter, but not a few tokens
    assert newest(run, "length_collapse") == 0.0
    apply(run, *(row(n, response_length_mean=20.0) for n in range(45, 48)))
    assert newest(run, "length_collapse") == 1.0
    short = played([row(n, response_length_mean=10.0 + n % 2) for n in range(60)])  # answers that were always short
    assert newest(short, "length_collapse") == 0.0


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"truncated_ratio": 1.0}, 1.0),
        ({"truncated_ratio": 0.98}, 0.0),
        ({"response_length_min": 4096, "response_length_max": 4096}, 1.0),
        ({"response_length_min": 4000, "response_length_max": 4096}, 0.0),
        ({"response_length_min": 900, "response_length_max": 900}, 0.0),
        ({"truncated_ratio": 0.1, "response_length_min": 4096, "response_length_max": 4096}, 0.0),
        ({"response_length_min": 4096}, None),
        ({"truncated_ratio": math.nan}, None),
    ],
)
def test_all_truncated(metrics: dict[str, Any], expected: float | None) -> None:
    run = played([opened(max_response_length=4096), row(1, **metrics)])
    assert ("all_truncated" in run.series) == (expected is not None)
    if expected is not None:
        assert newest(run, "all_truncated") == expected


def test_shortest_and_longest_alone_say_nothing_without_a_limit() -> None:
    assert "all_truncated" not in played([row(1, response_length_min=64, response_length_max=64)]).series


# ---- recorded runs


@pytest.mark.parametrize("name", ["tiny-healthy-s1", "tiny-healthy-s2", "tiny-length_hack-s1", "ag-babyai-dapo-healthy"])
def test_quiet_on_sound_runs(name: str) -> None:
    assert not any(flagged(name, "length_hack", "length_norm_bias", "length_collapse", "all_truncated").values())


def test_all_truncated_but_learning_is_told() -> None:
    told = flagged("openenv-watchdog-all-truncated-but-learning", "all_truncated", "length_hack")
    assert len(told["all_truncated"]) > 150 and not told["length_hack"]


def test_the_crash_that_ends_in_endless_responses() -> None:
    told = flagged("nips-rho030-s42-reward-crash-truncation", "all_truncated")["all_truncated"]
    assert told and 20 <= told[0] <= 30

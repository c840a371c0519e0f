"""B5 against recomputations from the samples, by hand-made cases, and on the recorded runs."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.run import Run
from collector.signals.diversity import FAR, WINDOW
from tests.collector.records import apply, played, row
from tests.collector.signals.playing import flagged, values_of
from tests.collector.signals.test_ess_decline import oracle as mann_kendall
from tests.collector.signals.test_trend import fitted


def newest(run: Run, name: str) -> float:
    return run.series[name].values[-1]


ENTROPIES = st.one_of(st.floats(0.001, 2.0), st.sampled_from([math.nan, math.inf, 0.0, -0.1, 0.5]))


@settings(max_examples=80)
@given(st.lists(ENTROPIES, min_size=8, max_size=60), st.integers(0, 59))
def test_slope_and_ratio_equal_a_recomputation_also_after_a_restart(samples: list[float], restart: int) -> None:
    run = Run("r", depth=64)
    early: float | None = None
    first: list[float] = []
    for at, sample in enumerate(samples):
        if at == restart:
            run = Run.load(run.dump(), depth=64)
        apply(run, row(at, policy_entropy=sample))
        if at >= 5 and early is None and math.isfinite(sample):
            first.append(sample)
            if len(first) == 20:
                slope, mean, _ = fitted(first)
                early = max(float(-slope / mean), 0.005) if mean > 0 else None
                first = []
        known = [value for value in samples[max(0, at + 1 - WINDOW) : at + 1] if math.isfinite(value)]
        assert ("policy_entropy_slope" in run.arrived) == (len(known) >= 8)
        if len(known) >= 8:
            slope, mean, _ = fitted(known)
            assert newest(run, "policy_entropy_slope") == pytest.approx(float(slope), rel=1e-9, abs=1e-12)
            if abs(mean) < 1e-12:  # whether it is above 0 is a matter of rounding
                continue
            assert ("policy_entropy_slope_ratio" in run.arrived) == (early is not None and mean > 0)
            if early is not None and mean > 0:
                ratio = float(-slope / mean) / early
                assert newest(run, "policy_entropy_slope_ratio") == pytest.approx(ratio, rel=1e-9, abs=1e-9)


def test_an_entropy_that_decays_by_a_share_reaches_the_floor_when_the_exponential_says() -> None:
    run = played([row(n, policy_entropy=0.95**n) for n in range(30)])
    # 0.95 ** n = 0.05 at n = 58.4; the newest is 29.
    assert newest(run, "policy_entropy_records_left") == pytest.approx(math.log(0.05) / math.log(0.95) - 29, rel=1e-6)


def test_an_entropy_that_falls_in_a_line_reaches_it_when_the_line_says() -> None:
    run = played([row(n, policy_entropy=1.0 - 0.02 * n) for n in range(30)])
    assert newest(run, "policy_entropy_records_left") == pytest.approx((0.95 - 0.02 * 29) / 0.02, rel=1e-6)


@pytest.mark.parametrize(
    ("entropies", "left"),
    [
        ([0.5] * 30, FAR),
        ([0.3 + 0.01 * n for n in range(30)], FAR),
        ([0.5 + 0.01 * (-1) ** n - 1e-5 * n for n in range(30)], FAR),
        ([0.02] * 30, 0.0),
        ([0.9 - 1e-7 * n for n in range(30)], FAR),
    ],
    ids=["flat", "rising", "noise", "there already", "too slow to tell"],
)
def test_no_fall_is_far_off(entropies: list[float], left: float) -> None:
    assert newest(played([row(n, policy_entropy=x) for n, x in enumerate(entropies)]), "policy_entropy_records_left") == left


def test_the_ratio_tells_a_faster_fall_from_the_usual_one() -> None:
    run = played([row(n, policy_entropy=0.995**n) for n in range(60)])
    assert newest(run, "policy_entropy_slope_ratio") == pytest.approx(1.0, rel=1e-6)
    apply(run, *(row(n, policy_entropy=0.995**60 * 0.98 ** (n - 60)) for n in range(60, 85)))
    assert newest(run, "policy_entropy_slope_ratio") == pytest.approx(math.log(0.98) / math.log(0.995), rel=0.02)


def test_a_beginning_without_a_fall_is_no_measure_of_its_own() -> None:
    run = played([row(n, policy_entropy=0.4) for n in range(40)])
    apply(run, *(row(n, policy_entropy=0.4 * 0.98 ** (n - 39)) for n in range(40, 60)))
    assert newest(run, "policy_entropy_slope_ratio") == pytest.approx(0.0202 / 0.005, rel=0.02)


def ratios(source: random.Random, at: int, correct: float, reach: float) -> dict[str, Any]:
    return {
        "correct_ratio": 0.3 + correct * at + source.gauss(0, 0.01),
        "group_pass_ratio": 0.8 + reach * at + source.gauss(0, 0.01),
    }


@pytest.mark.parametrize(
    ("correct", "reach", "expected"), [(0.01, -0.01, 1.0), (0.01, 0.005, 0.0), (-0.01, -0.01, 0.0), (0.0, -0.01, 0.0)]
)
def test_sharpening_without_reach(correct: float, reach: float, expected: float) -> None:
    source = random.Random(7)
    run = played([row(n, **ratios(source, n, correct, reach)) for n in range(40)])
    values = {name: list(run.series[name].values) for name in ("correct_ratio", "group_pass_ratio")}
    up, down = mann_kendall(values["correct_ratio"]), mann_kendall(values["group_pass_ratio"])
    assert up is not None and down is not None
    assert newest(run, "sharpening_without_reach") == float(up > 2 and down < -2) == expected


@pytest.mark.parametrize(
    ("entropy", "accuracy", "compression", "template"),
    [(0.1, 0.9, 1.0, 0.0), (0.1, 0.1, 0.0, 0.0), (0.5, 0.08, 0.0, 1.0), (0.5, 0.9, 0.0, 0.0), (0.7, 0.06, 0.0, 1.0)],
    ids=["compressed", "plain collapse", "template", "healthy", "template with more words"],
)
def test_kinds_of_loss(entropy: float, accuracy: float, compression: float, template: float) -> None:
    usual: dict[str, Any] = {"policy_entropy": 0.5, "retrieval_accuracy": 0.9, "retrieval_chance": 0.0625}
    run = played([row(n, **usual) for n in range(30)])
    assert "template_collapse" in run.series
    apply(run, *(row(n, **usual | {"policy_entropy": entropy, "retrieval_accuracy": accuracy}) for n in range(30, 34)))
    assert (newest(run, "healthy_compression"), newest(run, "template_collapse")) == (compression, template)


def test_retrieval_among_one_prompt_says_nothing() -> None:
    run = played([row(n, policy_entropy=0.5, retrieval_accuracy=1.0, retrieval_chance=1.0) for n in range(40)])
    assert "template_collapse" not in run.series


# ---- recorded runs


def test_entropy_that_is_pushed_down_falls_faster_than_honest_sharpening() -> None:
    pushed = [
        value for step, value in values_of("tiny-entropy_collapse-s1", "policy_entropy_slope_ratio") if 122 <= step <= 200
    ]
    for name in ("tiny-healthy-s1", "tiny-healthy-s2"):
        honest = [value for step, value in values_of(name, "policy_entropy_slope_ratio") if step > 60]
        assert max(pushed) > 1.3 * max(honest), name


@pytest.mark.parametrize("name", ["tiny-healthy-s1", "tiny-healthy-s2", "tiny-warmup-s1", "ag-babyai-dapo-healthy"])
def test_honest_sharpening_is_no_loss_of_reach(name: str) -> None:
    assert not any(flagged(name, "sharpening_without_reach", "template_collapse").values())

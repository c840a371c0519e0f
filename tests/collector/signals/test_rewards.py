"""B8 against recomputations from the samples, by hand-made cases, and on the recorded runs."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Provenance
from collector.run import Run
from collector.series import Series
from collector.signals.reward_components import Extremes
from tests.collector.records import apply, played, row
from tests.collector.signals.playing import flagged, values_of


def newest(run: Run, name: str) -> float:
    return run.series[name].values[-1]


REWARDS = st.one_of(st.floats(-5.0, 5.0), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0]))


def fall_share(samples: list[float]) -> float | None:
    value, before = samples[-1], [x for x in samples[-16:-1] if math.isfinite(x)]
    known = [x for x in samples[-200:] if math.isfinite(x)]
    if not math.isfinite(value) or len(before) < 2 or max(known) == min(known):
        return None
    return (sum(before) / len(before) - value) / (max(known) - min(known))


@settings(max_examples=60)
@given(st.lists(REWARDS, min_size=1, max_size=60), st.integers(0, 59))
def test_fall_share_equals_a_recomputation_also_after_a_restart(samples: list[float], restart: int) -> None:
    run = Run("r", depth=256)
    for at, sample in enumerate(samples):
        if at == restart:
            run = Run.load(run.dump(), depth=256)
        apply(run, row(at, reward_mean=sample))
        expected = fall_share(samples[: at + 1])
        assert ("reward_fall_share" in run.arrived) == (expected is not None)
        if expected is not None:
            assert newest(run, "reward_fall_share") == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_late_and_overwritten_rewards_are_part_of_the_range() -> None:
    samples = [0.5 + 0.01 * (n % 7) for n in range(40)]
    run = played([row(n, reward_mean=value) for n, value in enumerate(samples) if n != 36])
    samples[36] = -1.0
    apply(run, row(36, reward_mean=-1.0))
    assert run.series["reward_fall_share"].at(36) == pytest.approx(fall_share(samples[:37]))
    samples[38] = 3.0
    apply(run, row(38, reward_mean=3.0))  # the same step again, with another value
    samples.append(0.2)
    apply(run, row(40, reward_mean=0.2))
    assert newest(run, "reward_fall_share") == pytest.approx(fall_share(samples))


@settings(max_examples=100)
@given(st.lists(REWARDS, min_size=1, max_size=80), st.integers(1, 20), st.sets(st.integers(0, 79)))
def test_extremes_equal_those_of_the_slice(samples: list[float], size: int, asked: set[int]) -> None:
    series, extremes = Series(Provenance.SIGNAL), Extremes(size)
    for at, sample in enumerate(samples):
        series.put(at, sample)
        if at in asked or at == len(samples) - 1:
            known = [x for x in samples[max(0, at + 1 - size) : at + 1] if math.isfinite(x)]
            assert extremes.of(series, at) == (min(known, default=math.inf), max(known, default=-math.inf))


# ---- nothing to learn from, or no update

CASES: list[tuple[dict[str, Any], float | None, float | None]] = [
    ({"grad_norm": 0.0, "zero_variance_group_ratio": 1.0, "reward_std": 0.4}, 1.0, 0.0),
    ({"grad_norm": 0.0, "zero_variance_group_ratio": 0.75}, 0.0, 1.0),
    ({"grad_norm": 0.2, "zero_variance_group_ratio": 0.75}, 0.0, 0.0),
    ({"grad_norm": 0.2, "zero_variance_group_ratio": 1.0}, 0.0, 0.0),
    ({"grad_norm": 0.0, "reward_group_std_mean": 0.0}, 1.0, 0.0),
    ({"grad_norm": 0.0, "reward_group_std_mean": 0.1}, 0.0, 1.0),
    ({"grad_norm": 0.0, "reward_std": 0.0}, 1.0, None),
    ({"grad_norm": 0.0, "reward_std": 0.4}, 0.0, None),
    ({"grad_norm": 0.0, "reward_min": 0.0, "reward_max": 0.0}, 1.0, None),
    ({"grad_norm": 0.0, "reward_min": 0.0, "reward_max": 1.0}, 0.0, None),
    ({"grad_norm": 0.0, "reward_max": 1.0}, None, None),
    ({"grad_norm": 0.0}, None, None),
    ({"zero_variance_group_ratio": 1.0}, None, None),
    ({"grad_norm": math.nan, "zero_variance_group_ratio": 0.5}, 0.0, 0.0),
    ({"grad_norm": 0.0, "zero_variance_group_ratio": math.nan, "reward_group_std_mean": 0.0}, 1.0, 0.0),
]


@pytest.mark.parametrize(("metrics", "nothing", "no_update"), CASES)
def test_zero_gradients(metrics: dict[str, Any], nothing: float | None, no_update: float | None) -> None:
    run = played([row(1, grad_norm=1.0), row(2, **metrics)])
    for name, expected in (("no_learning_signal", nothing), ("no_update", no_update)):
        found = run.series[name].at(2) if name in run.series else None
        assert found == expected, name


def test_a_record_of_several_steps_has_no_say_in_updates() -> None:
    metrics: dict[str, Any] = {"grad_norm": 0.0, "zero_variance_group_ratio": 0.7}
    run = played([row(n, **metrics) for n in range(5, 50, 5)])
    assert "no_update" not in run.series
    assert newest(run, "no_learning_signal") == 0.0


# ---- components


def components(source: random.Random, step: int, **shapes: Any) -> dict[str, Any]:
    return {"reward_component_mean": {name: shape(step, source) for name, shape in shapes.items()}}


def topped(step: int, source: random.Random) -> float:
    return min(0.1 + 0.03 * step, 0.97) + source.uniform(-0.01, 0.01)


def flat(step: int, source: random.Random) -> float:
    return 0.3 + source.gauss(0, 0.03)


def rising(step: int, source: random.Random) -> float:
    return 0.2 + 0.004 * step + source.gauss(0, 0.01)


def falls_after_plateau(step: int, source: random.Random) -> float:
    return (0.6 if step < 70 else 0.6 - 0.01 * (step - 70)) + source.gauss(0, 0.01)


def solved(step: int, source: random.Random) -> float:
    return 1.0


def weighted(step: int, source: random.Random) -> float:
    return min(0.01 * step, 0.2)


def dead(step: int, source: random.Random) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("shapes", "deaths", "diverges"),
    [
        ({"form": topped, "answer": flat}, 0.0, 1.0),
        ({"form": topped, "answer": falls_after_plateau}, 0.0, 1.0),
        ({"form": topped, "answer": rising}, 0.0, 0.0),
        ({"form": topped, "answer": solved}, 0.0, 0.0),
        ({"form": flat, "answer": rising}, 0.0, 0.0),
        ({"form": topped, "other": topped}, 0.0, 0.0),
        ({"form": dead, "answer": rising}, 1.0, 0.0),
        ({"form": dead, "other": dead, "answer": rising}, 2.0, 0.0),
        ({"form": dead, "other": dead}, 0.0, 0.0),
        ({"form": weighted, "answer": rising}, 0.0, 0.0),
    ],
    ids=["flat", "falls", "rises", "solved", "no top", "both", "dead", "two dead", "all still", "weighted"],
)
def test_components(shapes: dict[str, Any], deaths: float, diverges: float) -> None:
    source = random.Random(11)
    run = played([row(n, **components(source, n, **shapes)) for n in range(110)])
    assert newest(run, "reward_components_dead") == deaths
    assert newest(run, "reward_component_divergence") == diverges


def test_divergence_outlasts_the_window_in_which_the_form_was_learnt() -> None:
    source = random.Random(12)
    run = played([row(n, **components(source, n, form=topped, answer=flat)) for n in range(600)])
    assert newest(run, "reward_component_divergence") == 1.0


def test_one_component_is_not_compared() -> None:
    assert "reward_components_dead" not in played([row(n, reward_component_mean={"only": 0.0}) for n in range(40)]).series


# ---- recorded runs


def test_a_run_that_never_earned_anything_has_nothing_to_learn_from() -> None:
    told = flagged("ag-alfworld-grpo-dead", "no_learning_signal", "no_update")
    assert told["no_learning_signal"][:8] == [1, 2, 3, 4, 5, 6, 7, 8] and not told["no_update"]


@pytest.mark.parametrize(
    "name", ["tiny-healthy-s1", "tiny-healthy-s2", "tiny-group_size-s1", "tiny-length_hack-s1", "ag-babyai-dapo-healthy"]
)
def test_quiet_on_sound_runs(name: str) -> None:
    names = ("no_learning_signal", "no_update", "reward_components_dead", "reward_component_divergence")
    assert not any(flagged(name, *names).values())


@pytest.mark.parametrize(
    "name",
    [
        "openenv-watchdog-all-truncated-but-learning",
        "nips-vanilla-s43-dip-and-recover",
        "ag-textcraft-split-gp2-single-grad-spike",
    ],
)
def test_steps_without_a_gradient_that_their_groups_explain_are_no_bug(name: str) -> None:
    assert not flagged(name, "no_update")["no_update"]


def test_components_that_never_moved_are_told() -> None:
    # Two format rewards of this recipe are 0 throughout: nothing in the prompts asks for them.
    values = values_of("gemma3-250-healthy-sparse-log", "reward_components_dead")
    assert values[-1][1] == 2.0


def test_a_verifier_that_scores_all_right_stands_out_by_its_range() -> None:
    shares = dict(values_of("tiny-verifier_zero-s1", "reward_fall_share"))
    assert max(shares[step] for step in (120, 121, 122)) > 0.5
    assert max(share for step, share in shares.items() if 20 < step < 120) < 0.5

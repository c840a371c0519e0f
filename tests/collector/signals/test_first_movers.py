"""B10: what moved first on every recorded fault, against a recomputation from the stored samples, and whatever the values."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Baseline
from collector.names import Vocabularies
from collector.run import Run
from collector.signals import definitions
from collector.signals.first_movers import MAX_MOVERS, SIGMAS, WATCHED, FirstMovers, first_movers, words
from tests.collector.records import apply, played, row, time_of
from tests.collector.signals.playing import steps_of
from tests.kit.view import FakeRun
from tocsin import wire

EXPECTED: dict[str, tuple[int, set[str]]] = {
    "tiny-accum_scale-s1": (120, {"grad_norm"}),
    "tiny-engine_quant-s1": (120, {"rollout_kl_k3", "rollout_logprob_abs_diff_mean"}),
    "tiny-engine_sync-s1": (120, {"staleness_mean", "rollout_logprob_abs_diff_mean"}),
    "tiny-engine_temperature-s1": (120, {"rollout_kl_k3", "rollout_logprob_abs_diff_mean"}),
    "tiny-lr_blowup-s1": (120, {"grad_norm", "param_update_ratio"}),
    "tiny-mask_bug-s1": (120, {"loss_mask_mismatch_tokens", "grad_norm"}),
    "tiny-nan-s1": (120, {"grad_norm", "policy_ratio_p99"}),
    "tiny-stale-s1": (120, {"staleness_mean", "rollout_logprob_abs_diff_mean"}),
    "tiny-verifier_leak-s1": (120, {"reward_std"}),
    "tiny-verifier_zero-s1": (120, {"reward_std"}),
}
"""Of each labelled fault: the step of the first movers, and what is among those of that step."""


def at(name: str, step: int, since: int) -> FirstMovers:
    """What is told when an incident opens at `step`."""
    return next(first_movers(run, since) for run in steps_of(name) if run.step == step)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_mover_of_each_labelled_fault(name: str) -> None:
    step, keys = EXPECTED[name]
    found = at(name, step + 2, step)
    assert found.movers[0].step == step
    assert keys <= {mover.key for mover in found.movers if mover.step == step}
    assert found.unknown == ()


def test_the_layer_that_takes_the_meaning_of_the_others_comes_first() -> None:
    assert at("tiny-mask_bug-s1", 121, 120).movers[0].key == "loss_mask_mismatch_tokens"
    assert at("tiny-engine_sync-s1", 121, 120).movers[0].layer == 1


@pytest.mark.parametrize("name", ["tiny-healthy-s1", "tiny-healthy-s2", "tiny-warmup-s1", "tiny-single_spike-s1"])
def test_where_nothing_is_wrong_hardly_anything_moves(name: str) -> None:
    """Entropy falls by a factor of 4 here: what had drifted away from its baseline before is no first mover."""
    for run in steps_of(name):
        if run.step in (60, 90, 122, 150, 200, 240):
            assert len(first_movers(run, run.step - 2).movers) <= 1, run.step


def test_a_first_record_has_no_normal_yet() -> None:
    found = at("tiny-adv_precision-s1", 3, 1)
    assert found.movers == ()
    assert "advantage_mean" in found.unknown


def test_not_a_number_moved_without_any_baseline() -> None:
    found = at("unsloth-46-nan-grad-start", 2, 1)
    (mover,) = [mover for mover in found.movers if mover.key == "grad_norm"]
    assert (mover.step, mover.sigmas, mover.centre, mover.reference) == (1, None, None, "")
    assert words(found) == "grad_norm at step 1 (nan)"


def quiet(steps: int, **metrics: float) -> list[dict[str, float]]:
    return [{key: value + 0.01 * (-1) ** at for key, value in metrics.items()} for at in range(steps)]


def told(rows: Sequence[dict[str, float]], since: int, baselines: dict[str, Baseline] | None = None) -> FirstMovers:
    run = FakeRun()
    for step, values in enumerate(rows, start=1):
        run.row(step, values)
    run.baselines = baselines or {}
    return first_movers(run, since)


def test_only_the_side_that_does_harm_counts() -> None:
    base = {"ess_ratio": Baseline(0.9, 0.01, 20), "reward_mean": Baseline(0.5, 0.01, 20), "grad_norm": Baseline(1.0, 0.01, 20)}
    before = quiet(30, ess_ratio=0.9, reward_mean=0.5, grad_norm=1.0)
    good = told([*before, {"ess_ratio": 1.0, "reward_mean": 0.9, "grad_norm": 1.0}], 31, base)
    assert good.movers == ()
    bad = told([*before, {"ess_ratio": 0.7, "reward_mean": 0.1, "grad_norm": 0.0}], 31, base)
    assert [(mover.layer, mover.key) for mover in bad.movers] == [(1, "ess_ratio"), (2, "grad_norm"), (5, "reward_mean")]
    assert all(mover.sigmas is not None and mover.sigmas < -SIGMAS for mover in bad.movers)


def test_the_recorded_baseline_wins() -> None:
    recorded = {"grad_norm": Baseline(1.0, 0.02, 100)}
    run = Run("r", recorded_for=lambda labels: recorded)
    apply(run, *(row(step, grad_norm=1.0) for step in range(1, 30)), row(30, grad_norm=2.0))
    (mover,) = first_movers(run, 30).movers
    assert run.baselines["grad_norm"].count == 100
    assert (mover.centre, mover.scale, mover.reference) == (1.0, 0.02, "baseline")
    assert mover.sigmas == pytest.approx(50.0)


def test_what_had_drifted_is_held_against_the_records_just_before() -> None:
    base = {"policy_entropy": Baseline(2.0, 0.01, 20)}
    falling = [{"policy_entropy": 2.0 - 0.02 * at} for at in range(60)]
    assert told([*falling, {"policy_entropy": 0.78}], 61, base).movers == ()
    (mover,) = told([*falling, {"policy_entropy": 6.0}], 61, base).movers
    assert (mover.step, mover.reference) == (61, "recent")


def test_a_spike_that_healed_is_no_mover_and_one_at_the_end_is() -> None:
    base = {"grad_norm": Baseline(1.0, 0.01, 20)}
    healed = [*quiet(30, grad_norm=1.0), {"grad_norm": 30.0}, *quiet(4, grad_norm=1.0)]
    assert told(healed, 31, base).movers == ()
    assert told(healed[:31], 31, base).movers[0].step == 31


def test_the_ramp_tells_a_jump_from_a_slope() -> None:
    base = {"kl_reference": Baseline(0.1, 0.01, 20)}
    slope = [*quiet(20, kl_reference=0.1), *({"kl_reference": value} for value in (0.125, 0.13, 0.14, 0.15, 0.2))]
    assert told(slope, 25, base).movers[0].ramp == 4
    assert told([*quiet(20, kl_reference=0.1), {"kl_reference": 0.3}], 21, base).movers[0].ramp == 0


def test_a_metric_without_any_normal_is_told_as_unknown_and_one_that_has_no_sample_is_not() -> None:
    found = told([{"grad_norm": 1.0}, {"ess_ratio": 0.5}], 2)
    assert found.unknown == ("ess_ratio", "grad_norm")
    assert told([{"grad_norm": 1.0}], 5).unknown == ("grad_norm",)
    assert first_movers(Run("r"), 10) == FirstMovers(since=10, until=-1)


def test_labelled_series_are_watched_one_by_one() -> None:
    run = Run("r")
    apply(run, *(row(step, reward_component_mean={"a": 1.0 + 0.01 * (-1) ** step, "b": 0.5}) for step in range(1, 40)))
    apply(run, row(40, reward_component_mean={"a": 0.0, "b": 0.5}))
    (mover,) = first_movers(run, 40).movers
    assert mover.key == 'reward_component_mean{component="a"}'


def test_what_is_watched_is_in_the_catalogue() -> None:
    known = Vocabularies(frozenset(definitions())).of("canonical")
    run = Run("r")
    apply(run, wire.StepRecord(run="r", step=1, time=time_of(1), metrics=dict.fromkeys(WATCHED, 1.0)))
    assert known.known
    unlabelled = {key for key in run.series if run.series[key].provenance == "raw"}
    assert not unlabelled, "names that nobody sends"


def test_words() -> None:
    found = at("tiny-accum_scale-s1", 122, 120)
    assert words(found) == "grad_norm at step 120 (+15 sigmas), grad_clip_ratio at step 120 (0.75, was 0)"
    assert words(found, 1) == "grad_norm at step 120 (+15 sigmas) and 1 more"
    assert words(FirstMovers(since=1, until=2)) == ""


NUMBERS = st.one_of(
    st.floats(-3.0, 3.0),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e308, -1e308, 5e-324]),
)
NAMES = ("grad_norm", "ess_ratio", "reward_mean", "policy_entropy", "rollout_kl_k3")


@settings(max_examples=80)
@given(
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, NUMBERS)), min_size=1, max_size=70),
    st.integers(-3, 80),
    st.one_of(st.none(), st.integers(-3, 80)),
)
def test_whatever_the_values(rows: list[dict[str, float]], since: int, until: int | None) -> None:
    run = played(wire.StepRecord(run="r", step=step, time=time_of(step), metrics=values) for step, values in enumerate(rows))
    found = first_movers(run, since, until)
    again = first_movers(Run.load(run.dump()), since, until)
    assert repr(found) == repr(again)
    assert len(found.movers) <= MAX_MOVERS
    assert [mover.step for mover in found.movers] == sorted(mover.step for mover in found.movers)
    assert json.loads(msgspec.json.encode(found))["since"] == found.since
    words(found)
    for mover in found.movers:
        assert found.since <= mover.step <= found.until
        assert repr(run.series[mover.key].at(mover.step)) == repr(mover.value)
        if math.isfinite(mover.value):
            assert mover.centre is not None and mover.scale is not None and mover.sigmas is not None
            assert abs(mover.sigmas) > SIGMAS
            assert mover.sigmas == pytest.approx((mover.value - mover.centre) / mover.scale)
        else:
            assert mover.sigmas is None
    for key in found.unknown:
        assert key not in run.baselines

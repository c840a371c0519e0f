"""B11: each piece of the evidence by itself, the recorded faults, and whatever the state of the run."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Provenance
from collector.rollouts import Around, Sampled, StepRollouts
from collector.signals.first_movers import FirstMovers, Mover, first_movers
from collector.signals.rollout_reader import Reading, Side, read_rollouts
from collector.signals.triage import LAYERS, Raised, Triage, triage, words
from tests.collector.signals.playing import steps_of
from tests.kit.view import FakeRun

MEASURED = (
    "rollout_logprob_abs_diff_mean",
    "loss_mask_mismatch_tokens",
    "grad_norm",
    "kl_reference",
    "reward_mean",
    "policy_entropy",
)


def run_with(*names: str) -> FakeRun:
    run = FakeRun()
    run.row(1, dict.fromkeys(names or MEASURED, 1.0))
    return run


def moved(key: str, layer: int, ramp: int = 0, value: float = 9.0) -> Mover:
    sigmas = 8.0 if math.isfinite(value) else None
    return Mover(
        key=key, layer=layer, step=7, value=value, centre=1.0, scale=1.0, sigmas=sigmas, reference="baseline", ramp=ramp
    )


def found(*movers: Mover, unknown: tuple[str, ...] = ()) -> FirstMovers:
    return FirstMovers(since=1, until=9, movers=movers, unknown=unknown)


def reading(kind: str) -> Reading:
    texts = {"garbled": "!" * 200, "hack": "<answer></answer>", "normal": "60"}
    side = StepRollouts(step=7, rollouts=(Sampled(prompt="p", response=texts[kind]),) * 4)
    return read_rollouts(Around((), side, ()))


def state(seen: Triage, layer: int) -> str:
    return seen.layers[layer].state


@pytest.mark.parametrize(
    ("key", "layer", "name"),
    [
        ("rollout_kl_k3", 1, "probabilities"),
        ("loss_mask_mismatch_tokens", 2, "gradient and mask"),
        ("log_ratio_clamp_ratio", 3, "numbers"),
    ],
)
def test_an_early_layer_that_fails_is_engineering_even_when_it_crept(key: str, layer: int, name: str) -> None:
    seen = triage(run_with(), found(moved(key, layer, ramp=5)), [])
    assert (seen.kind, seen.first_failed, seen.onset, state(seen, layer)) == ("crash", layer, "slope", "failed")
    assert seen.reasons[0].points == 3 and name in seen.reasons[0].text
    assert seen.hint


def test_what_creeps_in_a_late_layer_while_the_early_ones_pass_is_a_collapse() -> None:
    seen = triage(run_with(), found(moved("policy_entropy", 6, ramp=4)), [Raised("EntropyFall", 6, False)])
    assert (seen.kind, seen.first_failed, seen.onset) == ("collapse", 6, "slope")
    assert [each.points for each in seen.reasons] == [2, 1, 1]
    assert [state(seen, layer) for layer in range(7)] == ["passed"] * 6 + ["failed"]


def test_a_late_layer_that_jumps_is_rather_a_crash() -> None:
    seen = triage(run_with(), found(moved("reward_std", 5)), [Raised("RewardCrash", 5, True)])
    assert (seen.kind, seen.first_failed, seen.onset) == ("crash", 5, "jump")
    assert "verifier" in seen.hint


def test_an_alert_without_any_mover_came_slowly_unless_nobody_knows_what_is_normal() -> None:
    raised = [Raised("DistinctResponsesFall", 6, False)]
    assert triage(run_with(), found(), raised).onset == "slope"
    seen = triage(run_with(), found(unknown=("policy_entropy",)), raised)
    assert seen.onset == "unknown"
    assert "what is normal for policy_entropy: no baseline yet" in seen.missing
    assert triage(run_with(), found(), [Raised("Stalled", 0, True)]).onset == "unknown"


def test_not_a_number_fails_the_numbers_and_no_other_layer() -> None:
    seen = triage(run_with(), found(moved("grad_norm", 2, value=math.nan)), [])
    assert (seen.kind, seen.first_failed, state(seen, 2)) == ("crash", 3, "passed")
    assert seen.layers[3].by == "grad_norm is nan at step 7"


def test_a_run_that_stops_is_engineering_and_a_remark_on_its_life_is_not() -> None:
    assert triage(run_with(), found(), [Raised("Stalled", 0, True)]).first_failed == 0
    assert triage(run_with(), found(), [Raised("RunResumed", 0, False)]).first_failed is None


def test_the_text_weighs_on_one_side() -> None:
    late = moved("policy_entropy", 6, ramp=2)
    plain = triage(run_with(), found(late), [], reading("normal"))
    assert plain.kind == "collapse"
    garbled = triage(run_with(), found(late), [], reading("garbled"))
    assert [(each.side, each.text) for each in garbled.reasons if each not in plain.reasons] == [
        ("crash", "rollouts are garbled")
    ]
    hack = triage(run_with(), found(late), [], reading("hack"))
    assert sum(each.points for each in hack.reasons) == sum(each.points for each in plain.reasons) + 1
    jumped = triage(run_with(), found(moved("reward_std", 5)), [], reading("hack"))
    assert not any("hack" in each.text for each in jumped.reasons)


def test_layers_that_nobody_measures_do_not_pass() -> None:
    run = run_with("reward_mean", "policy_entropy")
    seen = triage(run, found(moved("policy_entropy", 6, ramp=2)), [])
    assert [state(seen, layer) for layer in (1, 2, 3, 4)] == ["unmeasured"] * 4
    assert not any("pass" in each.text for each in seen.reasons)
    said = "; ".join(seen.missing)
    assert "no log-probabilities" in said and "loss_mask_mismatch_tokens" in said and "grad_norm" in said and "rollouts" in said


def test_a_proxy_is_told_as_one() -> None:
    run = FakeRun()
    run.provenances["rollout_logprob_abs_diff_mean"] = Provenance.PROXY
    run.row(1, dict.fromkeys(MEASURED, 1.0))
    seen = triage(run, found(), [], reading("normal"))
    assert seen.missing == ("whether both engines agree exactly: rollout_logprob_abs_diff_mean is a proxy",)
    assert triage(run_with(), found(), [], reading("normal")).missing == ()


def test_the_hint_on_a_gradient_depends_on_whether_the_mask_is_known_to_be_right() -> None:
    gradient = found(moved("grad_norm", 2))
    assert "the mask counts as it should" in triage(run_with(), gradient, []).hint
    assert "which tokens enter the loss" in triage(run_with("grad_norm"), gradient, []).hint
    both = found(moved("loss_mask_mismatch_tokens", 2), moved("grad_norm", 2))
    assert "which tokens enter the loss" in triage(run_with(), both, []).hint


def test_what_moves_after_the_first_record_may_be_a_consequence() -> None:
    first = moved("reward_std", 5)
    later = msgspec.structs.replace(first, key="rollout_kl_k3", layer=1, step=8)
    seen = triage(run_with(), found(first, later), [])
    assert (seen.first_failed, state(seen, 1), state(seen, 5)) == (5, "failed", "failed")
    assert triage(run_with(), found(first, later), [Raised("LogprobGapStop", 1, True)]).first_failed == 1


def test_nothing_is_unclear() -> None:
    seen = triage(FakeRun(), found(), [])
    assert (seen.kind, seen.first_failed, seen.hint, words(seen)) == ("unclear", None, "", "kind unclear")


def test_words() -> None:
    seen = triage(run_with(), found(moved("rollout_kl_k3", 1)), [Raised("LogprobGapStop", 1, True)])
    assert words(seen) == (
        "perhaps a crash (engineering): first to fail: probabilities (LogprobGapStop); rollout_kl_k3 jumped at step 7"
    )


RECORDED = {
    "tiny-accum_scale-s1": ("crash", 2),
    "tiny-engine_quant-s1": ("crash", 1),
    "tiny-engine_sync-s1": ("crash", 1),
    "tiny-engine_temperature-s1": ("crash", 1),
    "tiny-lr_blowup-s1": ("crash", 2),
    "tiny-mask_bug-s1": ("crash", 2),
    "tiny-stale-s1": ("crash", 1),
    "tiny-verifier_leak-s1": ("crash", 5),
    "tiny-verifier_zero-s1": ("crash", 5),
}
"""From the first movers alone, two records after the onset: kind, and the first layer that fails."""


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_faults(name: str) -> None:
    run = next(run for run in steps_of(name) if run.step == 122)
    seen = triage(run, first_movers(run, 120), [], read_rollouts(run.rollouts.around(120)))
    assert (seen.kind, seen.first_failed) == RECORDED[name]
    assert seen.missing == ()


def test_an_entropy_that_is_pushed_down_is_a_collapse() -> None:
    run = next(run for run in steps_of("tiny-entropy_collapse-s1") if run.step == 135)
    seen = triage(run, first_movers(run, 133), [Raised("EntropyFall", 6, False)], read_rollouts(run.rollouts.around(133)))
    assert (seen.kind, seen.first_failed) == ("collapse", 6)


MOVERS = st.builds(
    moved,
    st.sampled_from(["grad_norm", "rollout_kl_k3", "reward_std", "loss_mask_mismatch_tokens"]),
    st.integers(1, 6),
    st.integers(0, 9),
    st.sampled_from([1.0, -9.0, math.nan, math.inf]),
)
RAISED = st.builds(Raised, st.sampled_from(["A", "B"]), st.integers(0, 6), st.booleans())
READINGS = st.none() | st.builds(
    Reading,
    kind=st.sampled_from(["garbled", "truncated", "hack", "normal", "unknown"]),
    fault=st.builds(Side, rollouts=st.integers(0, 3)),
    before=st.just(Side()),
)


@settings(max_examples=80)
@given(st.lists(st.sampled_from(MEASURED)), st.lists(MOVERS, max_size=5), st.lists(RAISED, max_size=4), READINGS)
def test_whatever_the_state(names: list[str], movers: list[Mover], raised: list[Raised], read: Reading | None) -> None:
    run = run_with(*names, "own")
    seen = triage(run, found(*movers), raised, read)
    assert repr(seen) == repr(triage(run, found(*movers), reversed(raised), read))  # in whatever order the alerts come
    points = {side: sum(each.points for each in seen.reasons if each.side == side) for side in ("crash", "collapse")}
    wins = {"crash": points["crash"] > points["collapse"], "collapse": points["collapse"] > points["crash"]}
    assert wins.get(seen.kind, points["crash"] == points["collapse"])
    failed = [each.layer for each in seen.layers if each.state == "failed"]
    assert (seen.first_failed in failed) if failed else seen.first_failed is None
    assert bool(seen.hint) == bool(failed)
    assert len(seen.layers) == len(LAYERS)
    assert {each.layer for each in raised if each.layer or each.pages} <= set(failed)
    words(seen)

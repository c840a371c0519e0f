"""The probability-consistency pack beyond the two rules of the request."""

from __future__ import annotations

from math import nan

import pytest

from rules.model import Severity
from tests.kit.story import fired, tell
from tests.packs.tales import GAP, Values, first, noisy, severity, span, told

ESS = "ess_ratio"


def gap(after: float, count: int = 12) -> dict[str, Values]:
    """Thirty records at a gap of 0.001, then others at another one; the ESS ratio stays."""
    return {GAP: noisy(0.001, 0.00005, 30) + [after] * count, ESS: noisy(0.97, 0.005, 30 + count)}


def test_fires_engine_mismatch_far_below_the_stop_line() -> None:
    assert first("EngineMismatch", gap(0.003)) in (33, 34)
    assert severity("EngineMismatch") is Severity.WARNING


def test_holds_engine_mismatch_on_a_small_rise_and_on_one_record() -> None:
    assert first("EngineMismatch", gap(0.0014)) is None
    assert first("EngineMismatch", {GAP: noisy(0.001, 0.00005, 30) + [0.0022] + [0.001] * 9, ESS: [0.97] * 40}) is None


def test_nan_engine_mismatch_says_nothing() -> None:
    assert first("EngineMismatch", gap(nan)) is None
    assert first("EngineMismatch", {GAP: [nan] * 40, ESS: [nan] * 40}) is None


def test_fires_stale_rollouts_above_four_versions_and_resolves_below() -> None:
    assert span("StaleRollouts", {"staleness_mean": told((0.0, 30), (4.1, 8), (3.3, 4), (3.1, 4))}) == ([34], [44])
    assert severity("StaleRollouts") is Severity.WARNING


def test_fires_stale_rollouts_at_twice_the_normal_age_of_an_asynchronous_run() -> None:
    assert first("StaleRollouts", {"staleness_mean": told((8.0, 30), (16.5, 8))}) == 34


def test_holds_stale_rollouts_on_the_line_and_at_a_normal_age() -> None:
    assert first("StaleRollouts", {"staleness_mean": told((0.0, 30), (4.0, 20))}) is None
    assert first("StaleRollouts", {"staleness_mean": told((8.0, 30), (15.5, 20))}) is None
    assert first("StaleRollouts", {"staleness_mean": told((0.0, 30), (11.9, 1), (0.0, 20))}) is None


def test_nan_stale_rollouts_holds() -> None:
    assert first("StaleRollouts", {"staleness_mean": [0.0] * 30 + [nan] * 10}) is None


CLIPPED = "first_minibatch_clip_ratio"


def test_fires_first_minibatch_clipped_on_the_second_record_without_any_warm_up() -> None:
    assert first("FirstMinibatchClipped", {CLIPPED: [0.0011, 0.0011]}) == 2
    assert severity("FirstMinibatchClipped") is Severity.PAGE


def test_holds_first_minibatch_clipped_on_the_line_and_for_one_record() -> None:
    assert first("FirstMinibatchClipped", {CLIPPED: [0.001] * 40}) is None
    assert first("FirstMinibatchClipped", {CLIPPED: told((0.0, 9), (0.3, 1), (0.0, 9))}) is None


def test_nan_first_minibatch_clipped_breaches_as_a_page() -> None:
    assert first("FirstMinibatchClipped", {CLIPPED: told((0.0, 9), (nan, 2))}) == 11


def test_fires_weight_sync_mismatch_at_the_first_record() -> None:
    assert span("WeightSyncMismatch", {"weight_sync_mismatch": [1.0, 1.0, 0.0]}) == ([1], [3])
    assert severity("WeightSyncMismatch") is Severity.PAGE


def test_holds_weight_sync_mismatch_at_zero() -> None:
    assert first("WeightSyncMismatch", {"weight_sync_mismatch": [0.0] * 20}) is None


def test_nan_weight_sync_mismatch_breaches_as_a_page() -> None:
    assert first("WeightSyncMismatch", {"weight_sync_mismatch": [0.0, nan]}) == 2


K1, K3 = "rollout_kl_k1", "rollout_kl_k3"


def test_fires_mismatch_kl_from_the_start_and_keeps() -> None:
    assert first("MismatchKl", {K3: [0.0105] * 3}) == 3
    assert span("MismatchKl", {K3: told((0.001, 30), (0.02, 5), (0.0055, 5), (0.0045, 9))}) == ([33], [46])
    assert severity("MismatchKl") is Severity.WARNING


def test_holds_mismatch_kl_on_the_line_for_two_records_and_below_a_recorded_level() -> None:
    assert first("MismatchKl", {K3: [0.01] * 40}) is None
    assert first("MismatchKl", {K3: told((0.001, 30), (0.5, 2), (0.001, 9))}) is None
    assert fired(tell({K3: [0.019] * 9}, recorded={K3: 0.0065}), "MismatchKl") == []
    assert fired(tell({K3: [0.02] * 9}, recorded={K3: 0.0065}), "MismatchKl") == [3]


def test_nan_mismatch_kl_holds() -> None:
    assert first("MismatchKl", {K3: told((0.001, 30), (nan, 9))}) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_fires_mismatch_bias_where_one_side_is_higher_throughout(sign: float) -> None:
    assert first("MismatchBias", {K1: [sign * 0.0035] * 5, K3: [0.0011] * 5}) == 5
    assert severity("MismatchBias") is Severity.WARNING


def test_holds_mismatch_bias_for_noise_for_a_small_gap_and_for_four_records() -> None:
    assert first("MismatchBias", {K1: [0.0032] * 20, K3: [0.0011] * 20}) is None
    assert first("MismatchBias", {K1: [0.004] * 20, K3: [0.001] * 20}) is None
    assert first("MismatchBias", {K1: told((0.004, 4), (0.001, 9)), K3: [0.0011] * 13}) is None


def test_nan_mismatch_bias_holds() -> None:
    assert first("MismatchBias", {K1: [nan] * 20, K3: [0.002] * 20}) is None


@pytest.mark.parametrize("mean", [0.89, 1.11])
def test_fires_importance_weight_offset_from_the_start_in_both_directions(mean: float) -> None:
    assert first("ImportanceWeightOffset", {"is_weight_mean": [mean] * 5}) == 5
    assert severity("ImportanceWeightOffset") is Severity.WARNING


def test_fires_importance_weight_offset_until_half_of_the_line() -> None:
    assert span("ImportanceWeightOffset", {"is_weight_mean": told((0.8, 6), (0.94, 6), (0.96, 26))}) == ([5], [33])


def test_holds_importance_weight_offset_within_the_line_and_on_a_proxy() -> None:
    assert first("ImportanceWeightOffset", {"is_weight_mean": told((0.91, 20), (1.09, 20))}) is None
    assert first("ImportanceWeightOffset", {"is_weight_mean": told((0.5, 4), (1.0, 20))}) is None


def test_nan_importance_weight_offset_holds() -> None:
    assert first("ImportanceWeightOffset", {"is_weight_mean": [nan] * 20}) is None


def test_fires_sequence_weights_spread_at_the_fifth_record() -> None:
    assert first("SequenceWeightsSpread", {"chi2_seq": [1.02] * 6}) == 5
    assert severity("SequenceWeightsSpread") is Severity.WARNING


def test_holds_sequence_weights_spread_on_the_line_and_for_four_records() -> None:
    assert first("SequenceWeightsSpread", {"chi2_seq": [1.0] * 20}) is None
    assert first("SequenceWeightsSpread", {"chi2_seq": told((50.0, 4), (0.1, 20))}) is None


def test_nan_sequence_weights_spread_holds() -> None:
    assert first("SequenceWeightsSpread", {"chi2_seq": [nan] * 20}) is None


MASKED = 'rejection_masked_sequence_ratio{option="seq_mean_k3"}'


def test_fires_rejection_heavy_and_names_the_option() -> None:
    events = tell({MASKED: [0.52] * 4})
    assert fired(events, "RejectionHeavy") == [3]
    assert events[0].summary == "Rejection seq_mean_k3 masks 52 % of the responses: the rest carries the update"
    assert severity("RejectionHeavy") is Severity.WARNING


def test_holds_rejection_heavy_on_the_line_and_for_two_records() -> None:
    assert first("RejectionHeavy", {MASKED: [0.5] * 20}) is None
    assert first("RejectionHeavy", {MASKED: told((0.9, 2), (0.1, 9))}) is None


def test_nan_rejection_heavy_holds() -> None:
    assert first("RejectionHeavy", {MASKED: [nan] * 9}) is None

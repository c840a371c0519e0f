"""The probability-consistency pack beyond the two rules of the request."""

from __future__ import annotations

from math import nan

from rules.model import Severity
from tests.packs.tales import GAP, Values, first, noisy, severity, span

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
    began, ended = span("StaleRollouts", {"staleness_mean": [0.0] * 30 + [4.2] * 8 + [3.0] * 8})
    assert (began, ended) == ([34], [41])
    assert severity("StaleRollouts") is Severity.WARNING


def test_fires_stale_rollouts_at_twice_the_normal_age_of_an_asynchronous_run() -> None:
    assert first("StaleRollouts", {"staleness_mean": [8.0] * 30 + [16.5] * 8}) == 34


def test_holds_stale_rollouts_on_the_line_and_at_a_normal_age() -> None:
    assert first("StaleRollouts", {"staleness_mean": [0.0] * 30 + [4.0] * 20}) is None
    assert first("StaleRollouts", {"staleness_mean": [8.0] * 30 + [15.5] * 20}) is None
    assert first("StaleRollouts", {"staleness_mean": [0.0] * 30 + [11.9] + [0.0] * 20}) is None


def test_nan_stale_rollouts_holds() -> None:
    assert first("StaleRollouts", {"staleness_mean": [0.0] * 30 + [nan] * 10}) is None

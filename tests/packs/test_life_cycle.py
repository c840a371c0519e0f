"""The life-cycle pack beyond Stalled and MetricVanished."""

from __future__ import annotations

from math import nan

from rules.model import Severity
from tests.kit.story import fired, tell
from tests.packs.tales import Values, first, noisy, severity, span, told


def test_fires_run_resumed_at_the_first_record_of_the_further_attempt() -> None:
    assert first("RunResumed", {"resumed_by_hand": [1.0] * 5}) is None
    events = tell({"grad_norm": [0.4] * 40}, resumes={40: 10})
    assert fired(events, "RunResumed") == [10]
    assert severity("RunResumed") is Severity.INFO


def test_holds_run_resumed_for_a_run_that_goes_on() -> None:
    assert first("RunResumed", {"grad_norm": [0.4] * 100}) is None
    assert fired(tell({"grad_norm": [0.4] * 40}, resumes={40: 36}), "RunResumed") == [], "a few steps back are late rows"


def test_nan_run_resumed_is_about_steps() -> None:
    assert first("RunResumed", {"grad_norm": [nan] * 30}) is None


def test_fires_metric_constant_after_twenty_equal_values() -> None:
    assert first("MetricConstant", {"reward_mean": [*noisy(0.5, 0.1, 10), *told((0.25, 30))]}) in range(30, 33)
    events = tell({"grad_norm": [0.5] * 30, "reward_mean": [0.5] * 30})
    assert next(event.summary for event in events if event.alert == "MetricConstant").startswith(
        "grad_norm, reward_mean have not"
    )
    assert severity("MetricConstant") is Severity.WARNING


def test_holds_metric_constant_for_a_learning_rate_and_for_nineteen_records() -> None:
    assert first("MetricConstant", {"learning_rate": [1e-6] * 60, "policy_loss": [0.0] * 60}) is None
    assert first("MetricConstant", {"reward_mean": [*noisy(0.5, 0.1, 10), *told((0.25, 19)), *noisy(0.5, 0.1, 10)]}) is None


def test_nan_metric_constant_is_no_value() -> None:
    assert first("MetricConstant", {"reward_mean": [nan] * 40}) is None


def pace(seconds: float, length: float, count: int = 12) -> dict[str, Values]:
    """Steps of 100 s with responses of 400 tokens, then others."""
    return {
        "step_duration_seconds": told((100.0, 30), (seconds, count)),
        "response_length_mean": told((400.0, 30), (length, count)),
    }


def test_fires_step_time_drift_at_the_fifth_slow_step() -> None:
    assert first("StepTimeDrift", pace(205.0, 400.0)) == 35
    story = pace(205.0, 490.0)
    story["step_duration_seconds"] += told((165.0, 5), (150.0, 5))
    story["response_length_mean"] += told((400.0, 10))
    assert span("StepTimeDrift", story) == ([35], [52]), "five of ten at 150 s and five at 165 s: a median of 157.5 s"
    assert severity("StepTimeDrift") is Severity.WARNING


def test_holds_step_time_drift_for_longer_responses_and_for_four_steps() -> None:
    assert first("StepTimeDrift", pace(300.0, 510.0)) is None
    assert first("StepTimeDrift", pace(195.0, 400.0, 30)) is None
    assert first("StepTimeDrift", pace(300.0, 400.0, 4)) is None


def test_nan_step_time_drift_holds() -> None:
    assert first("StepTimeDrift", pace(nan, 400.0)) is None

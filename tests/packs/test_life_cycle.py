"""The life-cycle pack beyond Stalled and MetricVanished."""

from __future__ import annotations

from math import nan

from rules.model import Severity
from tests.kit.story import fired, tell
from tests.packs.tales import first, severity


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

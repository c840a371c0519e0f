"""The event that PagerDuty gets."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from alerts.model import Action
from alerts.receivers.pagerduty import MAX_EVENT, pagerduty_event
from alerts.wording import Wording
from rules.model import AlertEvent, Severity
from tests.kit.receivers import delivery, event
from tests.kit.vectors import alerting


def sent(about: AlertEvent, action: Action = Action.TRIGGER, **changes: Any) -> dict[str, Any]:
    raw = pagerduty_event(delivery(about, action, **changes), "routing-key", Wording({"incident": "https://h/{incident}"}))
    assert len(raw) <= MAX_EVENT
    found: dict[str, Any] = json.loads(raw)
    return found


def test_a_trigger() -> None:
    found = sent(event(), dedup_key="tocsin:grpo-7b-042#1")
    details = found["payload"].pop("custom_details")
    assert found == {
        "routing_key": "routing-key",
        "event_action": "trigger",
        "dedup_key": "tocsin:grpo-7b-042#1",
        "client": "Tocsin",
        "links": [{"href": "https://h/grpo-7b-042%231", "text": "incident"}],
        "payload": {
            "summary": "PAGE grpo-7b-042: LogprobGapStop at step 1234: Engines disagree",
            "source": "grpo-7b-042",
            "severity": "error",
            "component": "LogprobGapStop",
            "group": "grpo-7b-042#1",
            "class": "layer-1",
            "timestamp": "2026-09-21T14:13:20+00:00",
        },
    }
    assert details["event"]["reason"] == "0.01235 > 0.01" and details["text"].startswith("PAGE grpo-7b-042")


@pytest.mark.parametrize(("action", "theirs"), [(Action.RESOLVE, "resolve"), (Action.UPDATE, "acknowledge")])
def test_an_end_and_an_acknowledgement_name_the_key_and_nothing_else(action: Action, theirs: str) -> None:
    found = sent(event(), action, dedup_key="k")
    assert found == {"routing_key": "routing-key", "event_action": theirs, "dedup_key": "k"}


@pytest.mark.parametrize(
    ("severity", "theirs"),
    [(Severity.INFO, "info"), (Severity.WARNING, "warning"), (Severity.PAGE, "error"), (Severity.STOP, "critical")],
)
def test_severities(severity: Severity, theirs: str) -> None:
    assert sent(event(severity=severity))["payload"]["severity"] == theirs


def test_limits() -> None:
    found = sent(event(run="r" * 5_000, summary="s" * 5_000, alert="a" * 5_000), dedup_key="k" * 300)
    assert len(found["dedup_key"]) == 64
    assert len(found["payload"]["summary"]) == 1_024 and found["payload"]["summary"].endswith("…")
    assert all(len(found["payload"][key]) <= 1_024 for key in ("source", "component", "group", "class"))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300, -1e18])
def test_a_clock_that_is_none(seconds: float) -> None:
    assert "timestamp" not in sent(event(event_time=seconds), created_at=0.0)["payload"]


def test_n09_details_that_are_too_long_give_way() -> None:
    limits = alerting()["N09"]["page_payload"]
    assert limits["limit_bytes"] == MAX_EVENT
    # Characters that JSON needs four bytes for, in every field that is bounded by characters.
    wide = {f"k{n:03}" + "🔔" * 190: "🔔" * 4_000 for n in range(100)}
    found = sent(event(summary="short", run_labels=wide), dedup_key="k")
    assert found["dedup_key"] == "k"
    assert found["payload"]["summary"].endswith("short")
    assert set(found["payload"]["custom_details"]) == {"notice"}
    assert "512000" in found["payload"]["custom_details"]["notice"]


def test_a_run_without_a_name() -> None:
    assert sent(event(run=""))["payload"]["source"] == "tocsin"

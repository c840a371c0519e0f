"""docs/alerts/messages.md shows what is really said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from alerts.messages import compose, plain_text
from alerts.model import Action, Delivery
from alerts.thread import line_of
from alerts.wording import Wording
from tests.kit.briefs import BRIEF
from tests.kit.receivers import delivery, event

PAGE = Path(__file__).parents[2] / "docs" / "alerts" / "messages.md"
LINKS = Wording(
    {
        "incident": "https://tocsin.example/incidents/{incident}",
        "panel": "https://grafana.example/d/tocsin-run?var-run={run}&from={from_ms}&to={to_ms}",
        "runbook": "https://tocsin.example/runbooks/{runbook}",
    }
)


def about(action: Action, **changes: Any) -> Delivery:
    fires = event(
        summary="The trainer and the rollout engine disagree by 0.0123",
        runbook="logprob-gap-stop",
        explains=("ClipHigh",),
        run_labels={"team": "reasoning"},
        links={"wandb": "https://wandb.example/r/1"},
        **changes,
    )
    return delivery(fires, action, brief=BRIEF, created_at=BRIEF.made_at)


def shown(name: str) -> str:
    match = re.search(rf"^```text {name}\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert match is not None, f"the page has no block `text {name}`"
    return match[1]


def test_the_message() -> None:
    assert shown("trigger") == plain_text(compose(about(Action.TRIGGER), LINKS), 4_000)


def test_the_line_in_a_thread() -> None:
    assert shown("line") == plain_text(line_of(about(Action.TRIGGER), LINKS), 4_000)


def test_the_end() -> None:
    assert shown("resolve") == plain_text(compose(about(Action.RESOLVE, event_time=BRIEF.onset_time + 5_400.0), LINKS), 4_000)


def test_each_line_of_the_message_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for label, _ in compose(about(Action.TRIGGER), LINKS).facts:
        assert label == "team" or f"| {label} |" in text, label

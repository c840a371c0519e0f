"""docs/alerts/messages.md shows what is really said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from alerts.config import AlertsConfig, parse_config
from alerts.messages import compose, plain_text
from alerts.model import Action, Delivery
from alerts.sample import BRIEF
from alerts.templates import FILTERS_OF_TEMPLATES, Fields
from alerts.thread import line_of
from alerts.wording import Wording
from tests.kit.receivers import delivery, event, tools

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


def template_example() -> AlertsConfig:
    text = PAGE.read_text(encoding="utf-8").partition("\n## Templates\n")[2]
    match = re.search(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert match is not None
    return parse_config(match[1], "alerts.yaml", None)


def test_the_templates_of_the_page_are_good_and_say_this() -> None:
    config = template_example()
    chat = compose(about(Action.TRIGGER), config.wording("chat", "slack_bot", tools()))
    assert chat.title == "PAGE reasoning/grpo-7b-042: LogprobGapStop at step 1234"
    assert [line for _, line in chat.facts] == [
        "0.0123 against 0.01; normal: rollout_logprob_abs_diff_mean 0.0042 ± 0.0003",
        "First staleness_mean at step 1229 (+15 sigmas), rollout_logprob_abs_diff_mean at step 1230 (+27 sigmas) and 3 more.",
        "perhaps a crash (engineering): first to fail: probabilities (LogprobGapStop); staleness_mean jumped at step 1229",
    ]
    oncall = compose(about(Action.TRIGGER), config.wording("oncall", "pagerduty", tools()))
    assert oncall.summary == "The trainer and the rollout engine disagree by 0.0123 (0.0123, limit 0.01)"
    over = compose(about(Action.RESOLVE), config.wording("chat", "slack_bot", tools()))
    assert over.title.startswith("RESOLVED reasoning/") and len(over.facts) == 2


def test_each_field_and_filter_of_templates_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("\n## Templates\n")[2]
    assert [name for name in Fields.__slots__ if f"`{name}`" not in text] == []
    assert [name for name in FILTERS_OF_TEMPLATES if f"`{name}`" not in text] == []

"""What a message says of its alert, line by line; in which kinds of messages; and that it stays data for each receiver."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from alerts.envelope import envelope
from alerts.facts import MAX_LINE, MAX_QUOTE, brief_facts, facts, short_facts
from alerts.messages import compose, plain_text
from alerts.model import Action
from alerts.receivers.alertmanager import described
from alerts.receivers.pagerduty import pagerduty_event
from alerts.sample import BRIEF
from alerts.slack import slack_message
from alerts.thread import line_of, message_of
from alerts.wording import PLAIN
from tests.kit.briefs import brief
from tests.kit.receivers import delivery, event

SENTENCE = "Change no hyperparameter; compare the probabilities of both engines."
NASTY = "<!channel> @everyone https://evil.example\n\u202eback\x1b[2J"


def told(**changes: Any) -> dict[str, str]:
    return dict(facts(delivery(event(**changes), brief=BRIEF, created_at=BRIEF.made_at)))


def test_the_order_is_that_in_which_people_ask() -> None:
    assert list(told(run_labels={"team": "lab"})) == [
        "Value",
        "Normal",
        "Reason",
        "Moved first",
        "Layer",
        "Triage",
        "Cost",
        "Rollouts",
        "team",
    ]


def test_the_words() -> None:
    found = told()
    assert found["Normal"] == "rollout_logprob_abs_diff_mean 0.0042 ± 0.0003"
    assert found["Moved first"].startswith("staleness_mean at step 1229 (+15 sigmas), ")
    assert found["Layer"] == "1, probabilities"
    assert found["Triage"].startswith("perhaps a crash (engineering): ")
    assert found["Cost"] == "1.3 GPU-hours since step 1230 (10 min on 8 GPUs)"
    assert found["Rollouts"] == "at steps 1230 to 1232: 6 of 9 garbled (loops), 0 of 12 before; one ends “the the the the”"


def test_without_a_brief_there_is_what_the_event_says() -> None:
    assert [label for label, _ in facts(delivery())] == ["Value", "Reason"]
    assert brief_facts(delivery()) == []


def test_what_is_not_known_has_no_line() -> None:
    bare = brief(normals=(), moved=(), moved_more=0, kind="", reasons=(), rollouts="", quote="x")
    assert [label for label, _ in facts(delivery(brief=bare))] == ["Value", "Reason", "Layer", "Cost"]


def test_an_end_says_what_it_cost_and_nothing_else_of_the_beginning() -> None:
    end = delivery(event(event_time=BRIEF.onset_time + 7_200.0), Action.RESOLVE, brief=BRIEF, created_at=0.0)
    assert dict(short_facts(end))["Cost"] == "16 GPU-hours since step 1230 (2 h on 8 GPUs)"
    assert [label for label, _ in compose(end).facts] == ["Value", "Reason", "Cost"]
    assert [label for label, _ in compose(delivery(action=Action.UPDATE, brief=BRIEF)).facts] == ["Value", "Reason"]


def test_a_reminder_says_all_of_it_with_the_cost_of_now() -> None:
    row = delivery(action=Action.REMIND, brief=BRIEF, created_at=BRIEF.made_at + 3 * 3_600.0)
    assert dict(compose(row).facts)["Cost"] == "25 GPU-hours since step 1230 (3.17 h on 8 GPUs)"


def test_the_decision_table_has_the_last_word_on_what_to_do() -> None:
    assert compose(delivery(brief=BRIEF)).next == ("Do not tune.", "Check weight sync.", SENTENCE)
    said = brief(hint="Do not tune.")
    assert compose(delivery(brief=said)).next == ("Do not tune.", "Check weight sync."), "once"


def test_the_message_of_a_thread_counts_the_cost_on_and_its_lines_do_not_repeat_the_brief() -> None:
    begun = delivery(brief=BRIEF, created_at=BRIEF.made_at)
    later = delivery(action=Action.UPDATE, brief=BRIEF, created_at=BRIEF.made_at + 3_000.0, note="A resolved", begun=begun)
    assert dict(message_of(later, PLAIN).facts)["Cost"] == "8 GPU-hours since step 1230 (60 min on 8 GPUs)"
    assert "Triage" not in dict(line_of(later, PLAIN).facts)


def test_text_of_runs_stays_data() -> None:
    row = delivery(brief=brief(quote=NASTY * 50, rollouts="rollouts " + NASTY, reasons=(NASTY,)))
    message = compose(row)
    for _, text in message.facts:
        assert not {"\n", "\u202e", "\x1b"} & set(text) and len(text) <= MAX_LINE
    assert len(dict(message.facts)["Rollouts"]) <= MAX_QUOTE + 200
    assert "<!channel>" not in json.dumps(slack_message(message), ensure_ascii=False)
    annotations = described(row, message)
    assert "https://evil" not in annotations["rollouts"] and "@everyone" not in annotations["rollouts"]
    assert {"moved_first", "triage", "cost", "rollouts", "normal"} - set(annotations) == {"normal"}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_machines_get_the_brief_as_strict_json(value: float) -> None:
    row = delivery(brief=brief(gpus=value, quote=NASTY))
    said = json.loads(json.dumps(envelope(row, PLAIN), allow_nan=False))["brief"]
    assert said["gpus"] == ("nan" if math.isnan(value) else "inf") and said["since"] == 1230
    assert said["moved"][0] == {"metric": "staleness_mean", "layer": 1, "step": 1229, "how": "+15 sigmas"}
    assert "\x1b" not in said["quote"]
    assert envelope(delivery(), PLAIN)["brief"] is None
    details = json.loads(pagerduty_event(row, "key", PLAIN))["payload"]["custom_details"]
    assert details["brief"] == said and "Moved first: staleness_mean" in details["text"]


def test_the_whole_message_with_a_brief() -> None:
    text = plain_text(compose(delivery(brief=BRIEF, created_at=BRIEF.made_at)), 4_000)
    assert text.split("\n") == [
        "PAGE grpo-7b-042: LogprobGapStop at step 1234",
        "Engines disagree",
        "Value: 0.01235, limit 0.01",
        "Normal: rollout_logprob_abs_diff_mean 0.0042 ± 0.0003",
        "Reason: 0.01235 > 0.01",
        "Moved first: staleness_mean at step 1229 (+15 sigmas), rollout_logprob_abs_diff_mean at step 1230 (+27 sigmas)"
        " and 3 more",
        "Layer: 1, probabilities",
        "Triage: perhaps a crash (engineering): first to fail: probabilities (LogprobGapStop);"
        " staleness_mean jumped at step 1229",
        "Cost: 1.3 GPU-hours since step 1230 (10 min on 8 GPUs)",
        "Rollouts: at steps 1230 to 1232: 6 of 9 garbled (loops), 0 of 12 before; one ends “the the the the”",
        "Next:",
        "- Do not tune.",
        "- Check weight sync.",
        f"- {SENTENCE}",
    ]

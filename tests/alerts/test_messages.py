"""What a message says, in its neutral form, as text, and in Slack's blocks; the limits of each."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.brief import Brief, Moved
from alerts.messages import MAY_REPEAT, compose, link, loudest, payload, plain_text, unknown_placeholders
from alerts.model import Action, BoardLine, LineState
from alerts.receivers.pagerduty import MAX_EVENT, pagerduty_event
from alerts.slack import bare_message, slack_message
from alerts.wording import Wording
from rules.model import AlertEvent, EventState, Severity, Verdict
from tests.kit.briefs import brief
from tests.kit.receivers import delivery, event

LINKS = Wording(
    {
        "incident": "https://tocsin.example/incidents/{incident}",
        "panel": "https://grafana.example/d/run?var-run={run}&from={from_ms}&to={to_ms}",
        "runbook": "https://docs.example/runbooks/{runbook}",
    }
)


def test_the_whole_message() -> None:
    about = event(
        runbook="logprob-gap",
        explains=("ClipHigh", "RewardCrash"),
        links={"wandb": "https://wandb.example/r/1", "rollouts": "s3://bucket/rollouts"},
        run_labels={"team": "reasoning", "model": "qwen3-8b"},
    )
    assert plain_text(compose(delivery(about), LINKS), 4_000) == (
        "PAGE grpo-7b-042: LogprobGapStop at step 1234\n"
        "Engines disagree\n"
        "Value: 0.01235, limit 0.01\n"
        "Reason: 0.01235 > 0.01\n"
        "model: qwen3-8b\n"
        "team: reasoning\n"
        "rollouts: s3://bucket/rollouts\n"
        "Explains:\n- ClipHigh\n- RewardCrash\n"
        "Next:\n- Do not tune.\n- Check weight sync.\n"
        "incident: https://tocsin.example/incidents/grpo-7b-042%231\n"
        "panel: https://grafana.example/d/run?var-run=grpo-7b-042&from=1789996400000&to=1790003600000\n"
        "runbook: https://docs.example/runbooks/logprob-gap\n"
        "wandb: https://wandb.example/r/1"
    )


def test_a_resolve_is_short() -> None:
    text = plain_text(compose(delivery(event(reason="0.0042 < 0.008"), Action.RESOLVE)), 4_000)
    assert text == ("RESOLVED grpo-7b-042: LogprobGapStop at step 1234\nValue: 0.01235, limit 0.01\nReason: 0.0042 < 0.008")


def test_codes_are_told_in_words_and_tocsins_own_alerts_have_no_step() -> None:
    ended = event(reason="run_finished", value=None, limit=None)
    assert plain_text(compose(delivery(ended, Action.RESOLVE)), 4_000).splitlines()[1] == "Reason: run finished"
    assert ("Reason", "grad_norm > 10") in compose(delivery(event(reason="grad_norm > 10"))).facts
    own = event(run="tocsin", alert="TocsinReloadFailed", id="tocsin-reload-failed", step=0)
    assert compose(delivery(own)).title == "PAGE tocsin: TocsinReloadFailed"
    assert compose(delivery(event(step=0))).title.endswith(" at step 0")


def test_own_labels_belong_to_the_name() -> None:
    assert compose(delivery(event(labels={"component": "accuracy", "b": "2"}))).title == (
        "PAGE grpo-7b-042: LogprobGapStop{b=2, component=accuracy} at step 1234"
    )


def test_a_value_that_is_no_number_is_named() -> None:
    message = compose(delivery(event(value=math.nan, limit=None, verdict=Verdict.NON_FINITE, reason="grad_norm is NaN")))
    assert message.facts[:3] == (("Value", "nan"), ("Reason", "grad_norm is NaN"), ("Verdict", "non finite"))
    assert compose(delivery(event(value=None))).facts[0][0] == "Reason"


def test_a_repeat_says_so() -> None:
    assert compose(delivery(ambiguous=True)).notes == (MAY_REPEAT,)
    assert MAY_REPEAT in plain_text(compose(delivery(ambiguous=True)), 4_000).split("\n")[1]


def test_explained_by_is_said_when_the_end_of_a_told_alert_comes() -> None:
    row = delivery(event(explained_by="LogprobGapStop"), Action.RESOLVE)
    assert ("Explained by", "LogprobGapStop") in compose(row).facts


@pytest.mark.parametrize(
    "bad", ["javascript:alert(1)", "https://", 'https://h/"><b', "https://h/<!channel>", "https://h/|x", "x"]
)
def test_only_addresses_become_links(bad: str) -> None:
    message = compose(delivery(event(links={"l": bad})))
    assert message.links == ()
    assert ("l", bad) in message.facts


def test_an_address_that_is_too_long_is_no_link() -> None:
    message = compose(delivery(event(links={"l": "https://h/" + "x" * 5_000})))
    assert message.links == () and len(dict(message.facts)["l"]) == 1_000


def test_a_runbook_may_be_an_address_or_a_name() -> None:
    assert compose(delivery(event(runbook="https://docs.example/r"))).links == (("runbook", "https://docs.example/r"),)
    assert ("Runbook", "logprob-gap") in compose(delivery(event(runbook="logprob-gap"))).facts
    assert "runbook" not in dict(compose(delivery(), LINKS).links), "a rule without runbook has no link to one"


def test_link_templates() -> None:
    row = delivery(event(run="a b/ü&#\ud800"))
    assert link("https://h/{run}?s={step}&t={time_ms}", row) == "https://h/a%20b%2F%C3%BC%26%23%3F?s=1234&t=1790000000000"
    assert unknown_placeholders("https://h/{run}/{rum}/{}") == ["rum", ""]


def test_payload_is_strict_json() -> None:
    data = payload(event(value=math.nan, limit=-math.inf, summary="x" * 9_000, labels={"a": "\x00"}))
    json.loads(json.dumps(data, allow_nan=False))
    assert (data["value"], data["limit"], data["state"], data["severity"]) == ("nan", "-inf", "firing", "page")
    assert len(data["summary"]) == 4_000 and data["labels"] == {"a": "\ufffd"}
    assert payload(event(value=math.inf))["value"] == "inf"


def texts_of(blocks: list[dict[str, Any]]) -> list[str]:
    found = []
    for block in blocks:
        found += [block["text"]["text"]] if "text" in block else [element["text"] for element in block["elements"]]
    return found


def test_slack_blocks() -> None:
    row = delivery(event(explains=("B",), summary="a < b & c"))
    message = slack_message(compose(row, LINKS))
    header, body, explains, steps, links = texts_of(message["blocks"])
    assert header == "PAGE grpo-7b-042: LogprobGapStop at step 1234"
    assert body.startswith("a &lt; b &amp; c\nValue: 0.01235, limit 0.01")
    assert steps == "*Next*\n• Do not tune.\n• Check weight sync."
    assert explains == "*Explains*\n• B"
    assert links.startswith(
        "<https://tocsin.example/incidents/grpo-7b-042%231|incident> · <https://grafana.example/d/run?var-run="
    )
    assert "&amp;from=" in links, "an ampersand in an address is escaped as well"
    assert message["text"].startswith(header)
    assert (message["unfurl_links"], message["unfurl_media"]) == (False, False)
    for block in message["blocks"]:
        for text in [block["text"]] if "text" in block else block["elements"]:
            assert text.get("verbatim") or text["type"] == "plain_text"


def test_slack_links_that_do_not_fit_are_counted() -> None:
    about = event(links={f"link {n:02}": f"https://h/{'x' * 900}{n}" for n in range(20)})
    links = texts_of(slack_message(compose(delivery(about)))["blocks"])[-1]
    assert len(links) <= 3_000 and links.count("<https://") == 3 and links.endswith("(+17 links)")


def test_a_fault_in_the_text_does_not_cost_the_page(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr("alerts.messages.link", broken)
    message = compose(delivery(event(run="r\n\ud800")), LINKS)
    assert message.title == "PAGE r ?: LogprobGapStop at step 1234"
    assert "could not be composed" in message.notes[0] and "ZeroDivisionError" in caplog.text


ANY = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("<>&*_~`|!@#\n\u202e\ud800🔔")), max_size=30)
LONG = st.builds(lambda text, times: text * times, ANY, st.sampled_from([1, 1, 50, 700]))
EVENTS: st.SearchStrategy[AlertEvent] = st.builds(
    event,
    run=LONG,
    alert=LONG,
    state=st.sampled_from(EventState),
    severity=st.sampled_from(Severity),
    summary=LONG,
    reason=LONG,
    next=st.lists(LONG, max_size=4).map(tuple),
    explains=st.lists(LONG, max_size=4).map(tuple),
    labels=st.dictionaries(ANY, LONG, max_size=3),
    run_labels=st.dictionaries(ANY, LONG, max_size=30),
    links=st.dictionaries(ANY, st.one_of(LONG, LONG.map("https://h/{}".format)), max_size=4),
    runbook=LONG,
    value=st.one_of(st.none(), st.floats()),
    limit=st.one_of(st.none(), st.floats()),
    event_time=st.floats(),
)


BRIEFS: st.SearchStrategy[Brief | None] = st.one_of(
    st.none(),
    st.builds(
        brief,
        quote=LONG,
        rollouts=LONG,
        hint=LONG,
        kind=st.sampled_from(["crash", "collapse", "unclear", "", "?"]),
        reasons=st.lists(LONG, max_size=4).map(tuple),
        gpus=st.one_of(st.none(), st.floats(0.0, 1e9)),
        onset_time=st.floats(allow_nan=False),
        moved=st.lists(st.builds(Moved, metric=LONG, layer=st.integers(), step=st.integers(), how=LONG), max_size=3).map(tuple),
    ),
)


@settings(max_examples=150)
@given(EVENTS, st.sampled_from(Action), st.booleans(), BRIEFS)
def test_slack_takes_whatever_a_run_is_called(about: AlertEvent, action: Action, ambiguous: bool, found: Brief | None) -> None:
    composed = compose(delivery(about, action, ambiguous=ambiguous, brief=found), LINKS)
    message = slack_message(composed)
    msgspec.json.encode([message, bare_message(composed)])
    assert 0 < len(bare_message(composed)["text"]) <= 1_000
    blocks = message["blocks"]
    assert len(blocks) <= 50
    assert 0 < len(blocks[0]["text"]["text"]) <= 150
    texts = texts_of(blocks)
    assert all(0 < len(text) <= 3_000 for text in texts)
    assert sum(map(len, texts)) <= 12_000
    assert len(message["text"]) <= 4_000
    for text in [message["text"], *(text for text, block in zip(texts, blocks, strict=True) if block["type"] != "context")]:
        assert "<" not in text and ">" not in text
        assert all(text[i:].startswith(("&amp;", "&lt;", "&gt;")) for i, c in enumerate(text) if c == "&")
    for text, block in zip(texts, blocks, strict=True):
        if block["type"] == "context":
            for part in text.split(" · "):
                assert part.startswith(("<https://", "(+")) and part.endswith((">", ")"))
                assert "<" not in part[1:] and ">" not in part[:-1]


@settings(max_examples=100)
@given(EVENTS, st.sampled_from(Action))
def test_pagerduty_takes_whatever_a_run_is_called(about: AlertEvent, action: Action) -> None:
    raw = pagerduty_event(delivery(about, action), "key", LINKS)
    assert len(raw) <= MAX_EVENT
    found = json.loads(raw)
    assert len(found["dedup_key"]) <= 255
    if action is Action.TRIGGER:
        assert 0 < len(found["payload"]["summary"]) <= 1_024 and found["payload"]["source"]


@settings(max_examples=100)
@given(EVENTS, st.sampled_from(Action), st.integers(50, 500))
def test_text_fits_and_steers_no_terminal(about: AlertEvent, action: Action, limit: int) -> None:
    text = plain_text(compose(delivery(about, action), LINKS), limit)
    assert len(text) <= limit
    text.encode()
    assert not any(ord(c) < 32 and c != "\n" and c != "\t" for c in text)


def board(*states: LineState) -> tuple[BoardLine, ...]:
    severities = list(Severity)
    return tuple(
        BoardLine(alert=f"A{n}", severity=severities[n % 4], layer=n, state=state, step=10 + n, value=0.5 if n else None)
        for n, state in enumerate(states)
    )


@pytest.mark.parametrize(
    ("action", "state", "title"),
    [
        (Action.TRIGGER, EventState.FIRING, "PAGE grpo-7b-042: LogprobGapStop at step 1234"),
        (Action.REMIND, EventState.FIRING, "REMINDER: PAGE grpo-7b-042: LogprobGapStop at step 1234"),
        (Action.UPDATE, EventState.FIRING, "UPDATE: PAGE grpo-7b-042: LogprobGapStop at step 1234"),
        (Action.UPDATE, EventState.RESOLVED, "RESOLVED grpo-7b-042: LogprobGapStop at step 1234"),
        (Action.RESOLVE, EventState.RESOLVED, "RESOLVED grpo-7b-042: LogprobGapStop at step 1234"),
    ],
)
def test_every_action_says_what_it_is(action: Action, state: EventState, title: str) -> None:
    message = compose(delivery(event(state=state), action, note="acknowledged by ada\x1b"))
    assert message.title == title
    assert message.notes == ("acknowledged by ada\ufffd",)
    assert bool(message.next) == (action in (Action.TRIGGER, Action.REMIND)), "what to do next is said when somebody is called"


def test_a_board_is_shown_when_there_is_more_than_one_alert() -> None:
    one, two = board(LineState.FIRING), board(LineState.EXPLAINED, LineState.FIRING)
    assert compose(delivery(board=one)).board == ()
    text = plain_text(compose(delivery(board=two)), 4_000)
    assert (
        "\nAlerts:\n- explained: A0 (info, layer 0) at step 10\n- firing: A1 (warning, layer 1) at step 11, value 0.5\n" in text
    )


def test_the_loudest_of_what_fires() -> None:
    assert loudest(delivery()) is Severity.PAGE
    assert loudest(delivery(board=board(LineState.FIRING, LineState.FIRING))) is Severity.WARNING
    assert loudest(delivery(board=board(LineState.FIRING, *[LineState.RESOLVED] * 3))) is Severity.INFO
    assert loudest(delivery(board=board(*[LineState.RESOLVED] * 4))) is Severity.PAGE, "nothing fires: the event's own"

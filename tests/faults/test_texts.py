"""What runs say is data: forty kilobytes of it, mentions, markup, control characters, and names that are paths or headers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from alerts.receivers.pagerduty import MAX_EVENT, MAX_SUMMARY
from rules.model import EventState
from tests.faults.theatre import OWN, Theatre
from tests.kit.pipelines import begin, end, steps

NASTY = {
    "forty kilobytes": "Ω" * 20_000,
    "a mention": "<!channel> <!here> <@U0123456789> @everyone",
    "a link": "<https://evil.example|click here> https://evil.example/fetch",
    "markup": "*bold* _it_ `code` ```block``` ~gone~ > quote",
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "ANSI": "\x1b[2J\x1b]0;owned\x07\x1b[31mred",
    "right to left": "\u202egnp.exe \u2066hidden\u2069",
    "lines": "one\r\ntwo\u2028three\x00four",
    "a header": "x\r\nAuthorization: Bearer stolen",
    "a path": "../../../../etc/passwd",
    "a template": "{{ 7 * 7 }} {% for x in ().__class__.__subclasses__() %}x{% endfor %} ${7*7} %(secret)s {0.__class__}",
    "a lone surrogate": "\ud800 \udfff",
    "quotes": "'\"`;--\\",
}
BLOCK, WHOLE = 3_000, 40_000
"""Characters that Slack takes in a section and in a text."""


def run_name(text: str) -> str:
    """What the wire takes of it."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")[:200]


@pytest.mark.parametrize("name", NASTY)
def test_text_of_a_run(theatre: Callable[..., Theatre], name: str) -> None:
    """In its name, its labels, its links, its rollouts, and the reason of its end."""
    play, text = theatre(), NASTY[name]
    run = run_name(text)
    first = json.loads(begin(run, team=text[:200], note=text[:200]))
    first["links"] = {text[:60]: text[:200], "board": "https://wandb.example/run"}
    play.stage.push(json.dumps(first).encode())
    for line in steps(run, [1.0, 20.0, 20.0]):
        play.stage.push(_with_rollouts(line, text))
    play.stage.settle()
    play.stage.push(end(run, 4, "failed"))
    play.stage.settle()
    assert len(play.pagerduty.opened) == 1 and not play.pagerduty.open
    (root,) = play.slack.channel.roots
    assert root.title.startswith("RESOLVED")
    for said in play.slack.channel.messages:
        assert len(said.text) <= WHOLE
        for shown in _texts(said.content):
            assert len(shown) <= BLOCK or shown == said.text
            _harmless(shown)
        assert said.content["link_names"] is False
        assert (said.content.get("unfurl_links"), said.content.get("unfurl_media")) in ((False, False), (None, None))
    for event in play.pagerduty.events:
        assert len(json.dumps(event).encode()) <= MAX_EVENT
        if event["event_action"] == "trigger":
            assert len(event["payload"]["summary"]) <= MAX_SUMMARY
            assert not set("\r\n\x00\x1b\u202e") & set(event["payload"]["summary"])


def _with_rollouts(line: bytes, text: str) -> bytes:
    record = json.loads(line)
    most = text.encode("utf-8", "replace")[:4_000].decode("utf-8", "ignore")
    record["rollouts"] = [{"prompt": most, "response": most, "reward": 1.0}] * 10
    return json.dumps(record).encode()


def _texts(content: Any) -> list[str]:
    """All that a person is shown of a message."""
    if isinstance(content, dict):
        own = [content["text"]] if isinstance(content.get("text"), str) else []
        return own + [text for key, value in content.items() if key != "metadata" for text in _texts(value)]
    if isinstance(content, list):
        return [text for value in content for text in _texts(value)]
    return []


def _harmless(shown: str) -> None:
    for tag in ("<!", "<@", "<#", "<script", "<https://evil"):
        assert tag not in shown, tag
    assert not set("\x00\x1b\x07\r\u202e\u2066\u2028") & set(shown)
    assert "49" not in shown and "subclasses" not in shown.replace("__subclasses__", "")


TEMPLATES = """
templates:
  default:
    {part}: "{text}"
"""
FAILING = {
    "division": "{{ 1 / (step - 3) }}",
    "a field that is not there now": "{{ (run_labels.team | default('7') | int) / 0 if step == 3 else 1 }}",
}


@pytest.mark.parametrize("name", ["division", "a field that is not there now"])
@pytest.mark.parametrize("part", ["title", "summary", "body"])
def test_a_template_that_fails_on_a_message(theatre: Callable[..., Theatre], part: str, name: str) -> None:
    """It was without fault at load. The page goes out in the built-in words, once; somebody hears of the template, once."""
    play = theatre(more=TEMPLATES.format(part=part, text=FAILING[name]))
    play.stage.push(*steps("r", [1.0, 20.0, 20.0]))
    play.stage.settle()
    play.kept("r#1", over=False)
    (root,) = play.slack.channel.roots
    assert root.title.startswith("PAGE r: High at step 3")
    (page,) = play.pagerduty.events
    assert "High" in page["payload"]["summary"]
    play.stage.push(*steps("r", [20.0, 1.0], first=4))
    play.stage.settle()
    play.kept("r#1")
    own = [row.event for row in play.stage.running.store.alerts(run=OWN) if row.event.state is EventState.FIRING]
    assert [event.alert for event in own] == ["TocsinTemplateFailed"] and play.stage.written


def test_a_reload_with_a_template_that_cannot_be_rendered_is_refused(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    play.stage.push(*steps("r", [1.0, 20.0, 20.0]))
    play.stage.settle()
    faults = play.stage.reload(play.alerts() + TEMPLATES.format(part="title", text="{{ nothing_of_this_name }}"))
    assert faults and "nothing_of_this_name" in faults[0]
    play.stage.push(*steps("r", [1.0], first=4))
    play.stage.settle()
    play.kept("r#1")

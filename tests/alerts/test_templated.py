"""Messages in the words of templates: which one a receiver has, what stays built-in, and what a failing one costs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from alerts.config import AlertsConfig, parse_config
from alerts.facts import facts
from alerts.messages import compose, plain_text
from alerts.model import Action, Delivery
from alerts.receivers.pagerduty import pagerduty_event
from alerts.sample import BRIEF
from alerts.slack import slack_message
from alerts.templated import fields_of
from alerts.templates import SAMPLE, Fields, Templates, compile_template
from alerts.thread import line_of, message_of
from alerts.wording import Wording
from rules.config_errors import ConfigErrors
from rules.model import AlertEvent
from tests.alerts.test_messages import EVENTS
from tests.kit.receivers import delivery, event, tools

FILE = """
receivers:
  chat: {kind: console}
  other: {kind: console}
  bus: {kind: webhook, url: "https://h.example/x"}
default: chat
"""


def config(templates: str) -> AlertsConfig:
    return parse_config(FILE + templates, "alerts.yaml", None)


def wording(told: list[str] | None = None, **parts: str) -> Wording:
    failed = (lambda why: None) if told is None else told.append
    return Wording({}, Templates({part: compile_template(text) for part, text in parts.items()}, failed))


def row(action: Action = Action.TRIGGER) -> Delivery:
    return delivery(event(run_labels={"team": "lab"}), action, brief=BRIEF, created_at=BRIEF.made_at)


def test_the_nearest_template_of_each_part() -> None:
    found = config(
        "templates:\n"
        "  default: {title: 'd {{ run }}', summary: 's'}\n"
        "  console: {title: 'k {{ run }}', body: 'b'}\n"
        "  other: {body: 'o'}\n"
    )
    said = {name: compose(row(), found.wording(name, each.kind, tools())) for name, each in found.settings.items()}
    assert {name: message.title for name, message in said.items()} == {
        "chat": "k grpo-7b-042",
        "other": "k grpo-7b-042",
        "bus": "d grpo-7b-042",
    }
    assert {name: message.summary for name, message in said.items()} == dict.fromkeys(said, "s")
    assert said["chat"].facts == (("", "b"),) and said["other"].facts == (("", "o"),)
    assert said["bus"].facts == tuple(facts(row()))
    assert config("").wording("chat", "console", tools()).templates is None


def test_a_body_stands_for_the_facts_and_nothing_else() -> None:
    message = compose(row(), wording(body="{{ moved_first }}\n\n{{ run_labels.team }}"))
    text = plain_text(message, 4_000).split("\n")
    assert text[0] == "PAGE grpo-7b-042: LogprobGapStop at step 1234"
    assert text[2].startswith("staleness_mean at step 1229") and text[3:5] == ["lab", "Next:"]
    body = slack_message(message)["blocks"][1]["text"]["text"]
    assert body.endswith("and 3 more\nlab"), "no label, no colon"


def test_threads_keep_their_counts_and_their_words() -> None:
    begun = row()
    own = wording(title="[{{ word }}] {{ run }}")
    over = delivery(event(), Action.RESOLVE, root="1.1", begun=begun)
    assert message_of(over, own).title == "[RESOLVED] grpo-7b-042"
    assert message_of(delivery(action=Action.UPDATE, begun=begun, root="1.1"), own).title == "[PAGE] grpo-7b-042"
    assert line_of(over, own).title == "[RESOLVED] grpo-7b-042"


def test_pagerduty_has_the_title_and_keeps_its_source() -> None:
    raw = pagerduty_event(row(), "key", wording(title="{{ alert }} here", summary="look"))
    assert b'"summary":"LogprobGapStop here: look"' in raw and b'"source":"grpo-7b-042"' in raw


def test_a_failing_template_leaves_the_built_in_words_and_says_so() -> None:
    told: list[str] = []
    own = wording(told, title="{{ 1 // (layer - layer) }}", summary="{{ nothing_of_this_name }}", body="{{ cost }}")
    message = compose(row(), own)
    assert message.title == "PAGE grpo-7b-042: LogprobGapStop at step 1234"
    assert message.summary == "Engines disagree"
    assert message.facts == (("", "1.3 GPU-hours since step 1230 (10 min on 8 GPUs)"),)
    assert message.notes == ("(the template of the title and the summary failed, these are the built-in words)",)
    assert [why.partition(":")[0] for why in told] == [
        "the template of the title failed on incident grpo-7b-042#1",
        "the template of the summary failed on incident grpo-7b-042#1",
    ]


@pytest.mark.parametrize(
    ("templates", "error"),
    [
        (
            "templates:\n  default: {title: '{{ rn }}'}\n",
            "alerts.yaml:8:20: the template of the title fails with a sample: 'rn'",
        ),
        ("templates:\n  default: {title: ''}\n", "the title is empty"),
        ("templates:\n  default:\n    body: |\n      a\n      {{ run\n", "alerts.yaml:9:11: the template of the body line 2: "),
        ("templates:\n  consle: {title: 'x'}\n", "not for 'consle' (did you mean 'console'?)"),
        ("templates:\n  default: {titel: 'x'}\n", "did you mean 'title'"),
    ],
)
def test_faults_have_their_place(templates: str, error: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        config(templates)
    assert error in "\n".join(map(str, caught.value.errors))


def test_all_fields_of_a_real_row() -> None:
    about = event(
        labels={"component": "accuracy"},
        run_labels={"team": "lab"},
        runbook="r",
        explains=("B",),
        explained_by="A",
        links={"l": "https://h.example/"},
    )
    real = delivery(about, brief=BRIEF, note="n")
    found = fields_of(real, compose(real), "PAGE").asdict()
    assert not [name for name, value in found.items() if not value and name != "resolved"]
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in SAMPLE.asdict().items()
    }


@settings(max_examples=100)
@given(EVENTS)
def test_whatever_a_run_is_called_it_stays_data(about: AlertEvent) -> None:
    names = [name for name in Fields.__slots__ if name not in ("labels", "run_labels", "links", "next", "facts", "explains")]
    body = "".join(f"{{{{ {name} }}}}\n" for name in names) + "{% for line in facts %}{{ line }}\n{% endfor %}"
    told: list[str] = []
    message = compose(delivery(about, brief=BRIEF), wording(told, title="{{ word }} {{ run }} {{ alert }}", body=body))
    assert not told and message.title
    for text in (message.title, *(line for _, line in message.facts)):
        assert not {"\x1b", "\x00", "\u202e", "\n"} & set(text)
    raw = str(slack_message(message))
    assert "<!" not in raw and "<@" not in raw

"""Which name a receiver goes by after an edit of alerts.yaml, and that all of the configuration goes by it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from alerts.config import AlertsConfig, parse_config
from alerts.messages import compose
from alerts.receivers import KINDS
from alerts.receivers.settings import Settings
from alerts.renaming import names_to_go_by, renamed
from rules.model import Severity
from tests.kit.receivers import delivery, event, tools

CHAT = "{kind: slack_bot, token: env:A, channel: C0000001}"
MOVED = "{kind: slack_bot, token: env:A, channel: C0000002}"
THIRD = "{kind: slack_bot, token: env:A, channel: C0000003}"
SECRETS = {"env:A": "one", "env:B": "two", "file:a": "one", "env:URL": "https://hooks.example/1"}


def made(receivers: Mapping[str, str]) -> dict[str, Settings]:
    entries = "".join(f"  {name}: {entry}\n" for name, entry in receivers.items())
    return dict(parse_config(f"receivers:\n{entries}default: {next(iter(receivers))}\n", "x", None).settings)


@pytest.mark.parametrize(
    ("before", "now", "owed", "names"),
    [
        pytest.param({}, {"chat": CHAT}, "", {"chat": "chat"}, id="new"),
        pytest.param({"chat": CHAT}, {"chat": CHAT}, "chat", {"chat": "chat"}, id="as it was"),
        pytest.param({"chat": CHAT}, {"room": CHAT}, "chat", {"room": "chat"}, id="renamed"),
        pytest.param({"chat": CHAT}, {"room": CHAT}, "", {"room": "room"}, id="renamed, nothing open"),
        pytest.param({"chat": CHAT}, {"room": CHAT, "chat": CHAT}, "chat", {"room": "room", "chat": "chat"}, id="one more"),
        pytest.param({"chat": CHAT}, {"chat": MOVED}, "chat", {"chat": "chat.2"}, id="moved"),
        pytest.param({"chat": CHAT}, {"chat": MOVED}, "", {"chat": "chat"}, id="moved, nothing open"),
        pytest.param({"chat": CHAT, "chat.2": MOVED}, {"chat": MOVED}, "chat chat.2", {"chat": "chat.2"}, id="still moved"),
        pytest.param({"chat": CHAT, "chat.2": MOVED}, {"chat": MOVED}, "chat", {"chat": "chat.2"}, id="only the old is owed"),
        pytest.param({"chat": CHAT, "chat.2": MOVED}, {"chat": MOVED}, "chat.2", {"chat": "chat.2"}, id="only the new is owed"),
        pytest.param({"chat": CHAT, "chat.2": MOVED}, {"chat": THIRD}, "chat chat.2", {"chat": "chat.3"}, id="moved again"),
        pytest.param({"chat": CHAT, "chat.2": MOVED}, {"chat": CHAT}, "chat chat.2", {"chat": "chat"}, id="moved back"),
        pytest.param(
            {"chat": CHAT}, {"chat": MOVED, "chat.2": THIRD}, "chat", {"chat": "chat.3", "chat.2": "chat.2"}, id="name taken"
        ),
        pytest.param(
            {"a": CHAT, "b": MOVED}, {"a": MOVED, "b": CHAT}, "a b", {"a": "b", "b": "a"}, id="changed with each other"
        ),
        pytest.param({"a": CHAT, "b": CHAT}, {"c": CHAT, "d": CHAT}, "a b", {"c": "a", "d": "b"}, id="two at one place"),
        pytest.param({"chat": CHAT, "room": CHAT}, {"chat": CHAT}, "room", {"chat": "room"}, id="renamed and back"),
        pytest.param({"a": CHAT, "b": CHAT}, {"a": CHAT, "b": CHAT}, "b", {"a": "a", "b": "b"}, id="two that stay"),
        pytest.param({"a": CHAT}, {"b": CHAT, "c": CHAT}, "a", {"b": "a", "c": "c"}, id="one has become two"),
    ],
)
def test_names(before: dict[str, str], now: dict[str, str], owed: str, names: dict[str, str]) -> None:
    known = made(before) if before else {}
    assert names_to_go_by(made(now), known, owed.split().__contains__, SECRETS.get) == names


PAGER = "{kind: pagerduty, routing_key: env:A}"
HOOK = "{kind: webhook, url: env:URL}"
AM = '{kind: alertmanager, urls: ["http://a:9093", "http://b:9093"]}'
BUS = '{kind: kafka, bootstrap: ["a:9092"]}'


@pytest.mark.parametrize(
    ("before", "now", "same_under_one_name", "same_under_another"),
    [
        pytest.param(CHAT, CHAT.replace("env:A", "env:B"), True, True, id="another bot in the same channel"),
        pytest.param(CHAT, CHAT.replace("C0000001", "C0000001, chart: false, timeout: 3"), True, True, id="how, not where"),
        pytest.param(CHAT, CHAT.replace("}", ', api: "https://chat.example"}'), False, False, id="another api"),
        pytest.param(CHAT, PAGER, False, False, id="another kind"),
        pytest.param(PAGER, PAGER.replace("env:A", "env:B"), False, False, id="another key"),
        pytest.param(PAGER, PAGER.replace("env:A", "file:a"), True, True, id="the same key, kept elsewhere"),
        pytest.param(PAGER.replace("env:A", "env:GONE"), PAGER, True, False, id="a key that is gone"),
        pytest.param(PAGER, PAGER.replace("env:A", 'env:A, api: "https://eu.example"'), False, False, id="another region"),
        pytest.param(HOOK, '{kind: webhook, url: "https://hooks.example/1"}', True, True, id="an address that is said"),
        pytest.param('{kind: webhook, url: "https://hooks.example/1"}', HOOK, True, True, id="an address that is a secret now"),
        pytest.param(HOOK, '{kind: webhook, url: "https://hooks.example/2"}', False, False, id="another address"),
        pytest.param(AM, '{kind: alertmanager, urls: ["http://b:9093", "http://c:9093"]}', True, True, id="another member"),
        pytest.param(AM, '{kind: alertmanager, urls: ["http://c:9093"]}', False, False, id="another cluster"),
        pytest.param(BUS, BUS.replace("9092", '9092", "b:9092'), True, True, id="another broker"),
        pytest.param(BUS, BUS.replace("}", ", topic: other}"), False, False, id="another topic"),
        pytest.param("{kind: console}", "{kind: console, send_resolved: false}", True, True, id="there is one console"),
    ],
)
def test_what_is_the_same_receiver(before: str, now: str, same_under_one_name: bool, same_under_another: bool) -> None:
    known = made({"a": before})
    assert (names_to_go_by(made({"a": now}), known, "a".__eq__, SECRETS.get) == {"a": "a"}) == same_under_one_name
    assert (names_to_go_by(made({"b": now}), known, "a".__eq__, SECRETS.get) == {"b": "a"}) == same_under_another


def test_every_kind_says_where_its_messages_go() -> None:
    """Of a new kind too somebody has to think of it."""
    for kind, each in KINDS.items():
        assert bool(each.settings.place) == (kind != "console"), kind
        assert set(each.settings.place) <= set(each.settings.__struct_fields__)


FILE = """
receivers: {{{chat}: {{kind: console}}, {pager}: {{kind: console}}, {lead}: {{kind: console}}}}
default: {chat}
escalate: {{after: 15m, to: [{lead}]}}
canary: {{receiver: {chat}, tell: [{pager}, {lead}]}}
templates:
  {chat}: {{title: "to the chat"}}
  console: {{title: "to any"}}
routes:
  - match: {{severity: page}}
    receiver: [{pager}, {chat}]
    routes:
      - match: {{run: "x*"}}
        receiver: {pager}
        escalate: {{after: 1m, to: [{chat}]}}
"""


def told(config: AlertsConfig) -> list[object]:
    """All that the configuration says of receivers by name."""
    router, answers = config.router, list[object]()
    for run, severity in (("x1", Severity.PAGE), ("r", Severity.PAGE), ("r", Severity.WARNING)):
        asked = event(run=run, severity=severity)
        answers += [list(router(asked)), list(router.escalate(asked))]
    for rule in ("tocsin-canary", "tocsin-canary-lost"):
        answers.append(list(router(event(id=rule))))
    assert config.canary is not None
    titles = [compose(delivery(), config.wording(name, "console", tools())).title for name in config.settings]
    lanes = [lane.receiver.name for lane in config.lanes(tools())]
    return [*answers, config.canary.receiver, config.canary.told, sorted(config.reach), lanes, titles]


def test_all_of_the_configuration_goes_by_the_names() -> None:
    names = {"room": "chat", "nights": "oncall", "boss": "lead"}
    as_if = parse_config(FILE.format(chat="chat", pager="oncall", lead="lead"), "x", None)
    other = parse_config(FILE.format(chat="room", pager="nights", lead="boss"), "x", None)
    assert told(renamed(other, names)) == told(as_if) != told(other)
    assert told(renamed(as_if, {name: name for name in as_if.settings})) == told(as_if)

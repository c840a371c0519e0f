"""Slack by bot token: metadata, and looking for an attempt of unknown outcome."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from alerts.model import Outcome
from alerts.receivers.slack_bot import SlackBot, SlackBotSettings
from tests.kit.receivers import Behaviour, FakeServer, Reply, Request, delivery, tools

TOKEN = "xoxb-0123456789-secret"


def bot(url: str) -> SlackBot:
    settings = SlackBotSettings(kind="slack_bot", token="env:T", channel="C0123456789", api=url + "/api/")
    return SlackBot("chat", settings, tools({"T": TOKEN}))


def look(*script: Behaviour) -> tuple[Outcome | None, list[Request]]:
    with FakeServer(script) as server:
        receiver = bot(server.url)
        found = receiver.reconcile(delivery(created_at=54_800.0))
        receiver.close()
    return found, server.requests


def page(*messages: Any, cursor: str = "") -> Reply:
    return Reply(200, json.dumps({"ok": True, "messages": messages, "response_metadata": {"next_cursor": cursor}}).encode())


def ours(identity: str, ts: str = "17.1") -> dict[str, Any]:
    return {"ts": ts, "metadata": {"event_type": "tocsin_delivery", "event_payload": {"delivery_id": identity}}}


def test_a_message_carries_its_delivery_and_mentions_nobody() -> None:
    with FakeServer([Reply(200, b'{"ok":true,"ts":"1790000000.000100"}')]) as server:
        receiver = bot(server.url)
        row = delivery()
        outcome = receiver.send(row)
        receiver.close()
    assert outcome.remote == "1790000000.000100"
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/api/chat.postMessage")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    body = request.json()
    assert body["channel"] == "C0123456789"
    assert body["metadata"] == {"event_type": "tocsin_delivery", "event_payload": {"delivery_id": row.id}}
    assert (body["link_names"], body["unfurl_links"], body["unfurl_media"]) == (False, False, False)


def test_a_message_is_found_on_a_later_page() -> None:
    strangers = [
        {"ts": "1", "text": "hello"},
        "nonsense",
        {"ts": "2", "metadata": None},
        {"ts": "3", "metadata": {"event_type": "other", "event_payload": {"delivery_id": delivery().id}}},
        {"ts": "4", "metadata": {"event_type": "tocsin_delivery", "event_payload": []}},
        ours("another"),
    ]
    found, requests = look(page(*strangers, cursor="next=="), page(ours(delivery().id, "99.5")))
    assert found is not None and found.ok and found.remote == "99.5"
    queries = [parse_qs(urlsplit(request.target).query) for request in requests]
    assert queries[0] == {
        "channel": ["C0123456789"],
        "oldest": ["800.000000"],
        "inclusive": ["true"],
        "include_all_metadata": ["true"],
        "limit": ["200"],
    }
    assert queries[1]["cursor"] == ["next=="]
    assert {request.method for request in requests} == {"GET"}


def test_a_message_that_is_not_there() -> None:
    assert look(page({"ts": "1", "text": "hello"}))[0] is None
    assert look(Reply(200, b'{"ok": true}'))[0] is None
    assert look(Reply(200, b'{"ok": true, "messages": "none", "response_metadata": []}'))[0] is None


def test_one_looks_through_ten_pages_at_most() -> None:
    found, requests = look(*[page(cursor=f"c{n}") for n in range(10)])
    assert found is None and len(requests) == 10


def test_looking_without_the_scope_for_it_cannot_be_known() -> None:
    assert look(Reply(200, b'{"ok": false, "error": "missing_scope"}'))[0] is None


@pytest.mark.parametrize("reply", [Reply(503), Reply(429, b"", {"retry-after": "9"}), Reply(200, b"<html>")])
def test_one_who_cannot_look_now_looks_later(reply: Reply) -> None:
    found, _ = look(reply)
    assert found is not None and not found.ok and found.retry
    assert found.retry_after == (9.0 if reply.status == 429 else None)


def test_looking_needs_the_secret() -> None:
    given = tools({"T": TOKEN})
    receiver = SlackBot("chat", SlackBotSettings(kind="slack_bot", token="env:T", channel="C0123456789"), given)
    environ = given.secrets._environ
    assert isinstance(environ, dict)
    environ.clear()
    found = receiver.reconcile(delivery())
    receiver.close()
    assert found is not None and (found.retry, found.reason) == (True, "no_secret")

"""Receivers that left the configuration: known while they are owed something, across restarts, never by a secret's value."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from alerts.config import parse_config
from alerts.model import Action, DeliveryStatus
from alerts.receivers.settings import Tools
from alerts.redaction import Redactor
from alerts.secrets import Secrets
from service.retired import Retired
from service.store.model import Advance, Commit
from service.store.store import Store
from tests.kit.commits import delivery, incident

SECRET = "xoxb-0123456789-secret"
BOTH = """
receivers:
  chat: {kind: slack_bot, token: env:TOKEN, channel: C0123456789, timeout: 3}
  own: {kind: console}
default: chat
"""
LEFT = "receivers: {own: {kind: console}}\ndefault: own\n"


def retired(store: Store, environ: dict[str, str] | None = None) -> Retired:
    environ = {"TOKEN": SECRET} if environ is None else environ
    return Retired(store.remembered, store.deliveries, Tools(Secrets(Redactor(), environ, Path()), lambda: 0.0))


def owe(store: Store, status: DeliveryStatus) -> None:
    """A trigger for `chat` in an open incident."""
    row = delivery("a")
    row.receiver = "chat"
    found = incident()
    row.incident = found.id
    store.commit(Commit([Advance("p/0", None, 1)], 5.0, incidents=[found], deliveries=[row]))
    row.status = status
    store.deliveries.finish(row)


@pytest.mark.parametrize(
    ("status", "owed"),
    [
        (DeliveryStatus.PENDING, True),
        (DeliveryStatus.SENDING, True),
        (DeliveryStatus.SENT, True),
        (DeliveryStatus.FAILED, False),
        (DeliveryStatus.SKIPPED, False),
    ],
)
def test_who_is_owed_something_is_known(store: Store, status: DeliveryStatus, owed: bool) -> None:
    before, after = parse_config(BOTH, "x", None), parse_config(LEFT, "x", None)
    retired(store).remember(before)
    owe(store, status)
    found = retired(store).beside(after)
    assert found == ({"chat": before.settings["chat"]} if owed else {})
    assert retired(store).beside(before) == {}, "it has not left"


def test_who_was_told_of_an_incident_is_known_until_that_is_closed(store: Store) -> None:
    """Also when it was told the end of all that it was told: the incident may go on with what nobody is told of."""
    before, after = parse_config(BOTH, "x", None), parse_config(LEFT, "x", None)
    retired(store).remember(before)
    owe(store, DeliveryStatus.SENT)
    told, over = incident(), delivery("b", action=Action.RESOLVE)
    over.receiver, over.incident, over.status = "chat", told.id, DeliveryStatus.SENT
    store.commit(Commit([Advance("p/0", 1, 2)], 6.0, deliveries=[over]))
    assert not store.deliveries.held("chat") and not store.deliveries.waiting()
    assert set(retired(store).beside(after)) == {"chat"}
    told.closed_at = 7.0
    store.commit(Commit([Advance("p/0", 2, 3)], 7.0, incidents=[told]))
    assert retired(store).beside(after) == {}


def test_nobody_is_known_before_there_was_a_configuration(store: Store) -> None:
    owe(store, DeliveryStatus.SENT)
    assert retired(store).beside(parse_config(LEFT, "x", None)) == {}


def test_references_are_kept_and_no_secret(store: Store) -> None:
    retired(store).remember(parse_config(BOTH, "x", None))
    kept = store.remembered.get("receivers")
    assert kept is not None and "env:TOKEN" in kept and SECRET not in kept


def test_who_is_owed_nothing_any_more_is_forgotten(store: Store) -> None:
    retired(store).remember(parse_config(BOTH, "x", None))
    retired(store).remember(parse_config(LEFT, "x", None))
    kept = store.remembered.get("receivers")
    assert kept is not None and list(json.loads(kept)) == ["own"]


@pytest.mark.parametrize(
    "kept",
    [
        "no JSON",
        "[]",
        '{"chat": 3}',
        '{"chat": {"kind": "carrier_pigeon"}}',
        '{"chat": {"kind": "slack_bot", "token": "env:TOKEN", "channel": "#general"}}',
        '{"chat": {"kind": "slack_bot", "token": "plain", "channel": "C0123456789"}}',
        '{"chat": {"kind": "slack_bot", "token": "env:GONE", "channel": "C0123456789"}}',
        '{"chat": {"kind": "slack_bot", "token": 3, "channel": "C0123456789"}}',
    ],
)
def test_what_no_receiver_can_be_made_of_is_left_to_fail(store: Store, kept: str, caplog: pytest.LogCaptureFixture) -> None:
    store.remembered.put("receivers", kept)
    owe(store, DeliveryStatus.SENT)
    with caplog.at_level(logging.WARNING):
        assert retired(store).beside(parse_config(LEFT, "x", None)) == {}
        after = parse_config(BOTH, "x", None)
        assert retired(store).going_on(after).settings == after.settings
    assert ("cannot be told" in caplog.text) == kept.startswith('{"chat"')
    assert SECRET not in caplog.text


def test_a_word_replaces_the_one_before_and_the_version_stays(store: Store) -> None:
    store.remembered.put("a", "1")
    store.remembered.put("a", "2")
    assert (store.remembered.get("a"), store.remembered.get("b")) == ("2", None)
    assert store.remembered.get("schema") is not None

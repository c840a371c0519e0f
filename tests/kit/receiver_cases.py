"""Every receiver that speaks HTTP: how it is configured, its secrets, and an attempt against a server with a script."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from alerts.model import Action, Delivery, Outcome
from alerts.ports import Receiver
from alerts.receivers import KINDS
from alerts.receivers.settings import HttpSettings, Tools
from alerts.redaction import RedactingFilter
from rules.typed_yaml import load
from tests.kit.receivers import (
    Behaviour,
    FakeServer,
    Reply,
    delivery,
    tools,
)

NOW = 1_790_000_000.0
SECRET = "s3cr3t/B0XX/abcdefghij"
Watch = Callable[[Tools], None]
"""Given a receiver's tools, before it is used."""


class Case(NamedTuple):
    """A receiver, how to configure it for a server, and what its service says when all is well."""

    kind: str
    entry: Callable[[str], str]
    """YAML of the receiver for a server's address."""
    secrets: Callable[[str], dict[str, str]]
    success: Reply
    error_bodies: tuple[tuple[Reply, str, bool], ...]
    """Answers with status 200 that are errors all the same: the reply, the reason, whether to retry."""
    body_matters: bool = True
    """A success is one only when its body says so."""
    needs_no: tuple[Action, ...] = ()
    """What is not sent, because the service does it by itself."""


CASES = [
    Case(
        "slack_webhook",
        lambda url: "url: env:SECRET",
        lambda url: {"SECRET": f"{url}/services/{SECRET}"},
        Reply(200, b"ok"),
        (
            (Reply(200, b"not ok"), "bad_answer", True),
            (Reply(200, b""), "bad_answer", True),
            (Reply(200, b"<html>Please log in</html>"), "bad_answer", True),
        ),
    ),
    Case(
        "slack_bot",
        lambda url: f'token: env:SECRET\nchannel: C0123456789\napi: "{url}"',
        lambda url: {"SECRET": SECRET},
        Reply(200, b'{"ok": true, "ts": "1790000000.000100"}'),
        (
            (Reply(200, b'{"ok": false, "error": "channel_not_found"}'), "rejected", False),
            (Reply(200, b'{"ok": false, "error": "invalid_auth"}'), "rejected", False),
            (Reply(200, b'{"ok": false, "error": "ratelimited"}', {"retry-after": "7"}), "rate_limited", True),
            (Reply(200, b'{"ok": false, "error": "internal_error"}'), "server_error", True),
            (Reply(200, b'{"ok": false}'), "rejected", False),
            (Reply(200, b'{"ok": "yes"}'), "bad_answer", True),
            (Reply(200, b"[" * 100_000), "bad_answer", True),
            (Reply(200, b"\xff\xfe"), "bad_answer", True),
        ),
    ),
    Case(
        "pagerduty",
        lambda url: f'routing_key: env:SECRET\napi: "{url}/v2/enqueue"',
        lambda url: {"SECRET": SECRET},
        Reply(202, b'{"status": "success", "message": "Event processed", "dedup_key": "k"}'),
        (
            (Reply(200, b'{"status": "invalid event", "errors": ["x"]}'), "rejected", False),
            (Reply(202, b"accepted"), "bad_answer", True),
            (Reply(202, b"[]"), "bad_answer", True),
        ),
        needs_no=(Action.REMIND,),
    ),
    Case(
        "alertmanager",
        lambda url: f'urls: ["{url}/am"]\nbearer: env:SECRET',
        lambda url: {"SECRET": SECRET},
        Reply(200),
        (),
        body_matters=False,
    ),
    Case(
        "webhook",
        lambda url: f'url: "{url}/hook"\nbearer: env:SECRET\nsigning_secret: env:SIGNING',
        lambda url: {"SECRET": SECRET, "SIGNING": "another-secret-0123"},
        Reply(204),
        (),
        body_matters=False,
    ),
]


def leaks(text: str) -> list[str]:
    """The parts of secrets that a text shows."""
    return [part for part in (SECRET, "abcdefghij", "another-secret-0123") if part in text]


def build(case: Case, url: str, more: str = "", now: float = NOW) -> tuple[Receiver, Tools]:
    given = tools(case.secrets(url), now=now)
    settings: Any = load(f"kind: {case.kind}\n{case.entry(url)}\n{more}", "alerts.yaml", KINDS[case.kind].settings)
    assert isinstance(settings, HttpSettings)
    return KINDS[case.kind].make("chat", settings, given), given


def attempt(
    case: Case, watch: Watch, *script: Behaviour, row: Delivery | None = None, more: str = ""
) -> tuple[Outcome, FakeServer]:
    """Send one row to a server with this script. The outcome and everything about the receiver must be free of secrets."""
    with FakeServer(script) as server:
        receiver, given = build(case, server.url, more)
        watch(given)
        outcome = receiver.send(row or delivery())
        receiver.close()
    assert not leaks(repr(outcome) + repr(receiver) + str(receiver) + repr(given))
    assert outcome.reason and re.fullmatch("[a-z_]+", outcome.reason)
    assert outcome.ok or outcome.detail
    return outcome, server


def no_secret_in(caplog: pytest.LogCaptureFixture) -> Iterator[Watch]:
    """Call with a receiver's tools: everything that any logger says from here on is redacted by the filter and checked."""
    filters: list[RedactingFilter] = []

    def watch(given: Tools) -> None:
        caplog.set_level(logging.DEBUG)
        filters.append(RedactingFilter(given.secrets.redactor))
        caplog.handler.addFilter(filters[-1])

    yield watch
    for each in filters:
        caplog.handler.removeFilter(each)
    text = caplog.text + "".join(repr(vars(record)) for record in caplog.records)
    assert not leaks(text)

"""Events in, HTTP out: book, store, workers and receivers together, through a bad hour, with a crash in the middle of it."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path

import pytest

from alerts.config import AlertsConfig, parse_config
from alerts.delivery import RetryPolicy
from alerts.identity import delivery_id, fingerprint
from alerts.incidents import IncidentBook
from alerts.model import Action, Delivery, DeliveryStatus, Outcome
from alerts.pool import DeliveryPool
from alerts.receivers.settings import Tools
from alerts.redaction import RedactingFilter
from rules.model import AlertEvent, EventState, Severity
from service.store.model import Commit
from service.store.store import Store
from tests.kit.receivers import FakeServer, Raw, Reply, event, tools

SECRETS = {"KEY": "R0UTINGKEY-0123456789", "TOKEN": "xoxb-9876543210-abc", "BEARER": "bearer-0123456789"}
CONFIG = """
receivers:
  pager: {{kind: pagerduty, routing_key: env:KEY, api: "{pager}"}}
  chat: {{kind: slack_bot, token: env:TOKEN, channel: C0123456789, api: "{chat}"}}
  hook: {{kind: webhook, url: "{hook}/hook", bearer: env:BEARER}}
default: [chat, hook]
routes:
  - match: {{severity: [page, stop]}}
    receiver: [pager, chat, hook]
"""
TIMEOUT = 30.0
ACCEPTED = Reply(202, b'{"status": "success"}')
SAID = Reply(200, b'{"ok": true, "ts": "17.1"}')


class Process:
    """One life of the collector on a store: what it plans it commits, what is committed its workers send."""

    def __init__(self, folder: Path, config: AlertsConfig, given: Tools) -> None:
        self.store = Store(f"sqlite:///{folder / 'tocsin.db'}")
        self.book = IncidentBook(config.router, config.reach)
        self.book.restore(self.store.open_incidents())
        self._final = threading.Condition()
        self._open: set[str] = set()
        self._commits = 0
        self.pool = DeliveryPool(
            [lane._replace(pace=0.0) for lane in config.lanes(given)],
            self.store.deliveries,
            clock=time.time,
            jitter=lambda: 0.5,
            policy=RetryPolicy(base=0.002, cap=0.002, longest_retry_after=0.002),
            observe=self._observe,
            redact=given.secrets.redactor.redact,
        )

    def _observe(self, row: Delivery, outcome: Outcome, finished_at: float) -> None:
        if row.status is not DeliveryStatus.PENDING:
            with self._final:
                self._open.discard(row.id)
                self._final.notify_all()

    def tell(self, *events: AlertEvent) -> None:
        plan = self.book.apply(events, time.time())
        with self._final:
            self._open |= {row.id for row in plan.deliveries}
        self.store.commit(Commit([], 0.0, events=events, incidents=plan.incidents, deliveries=plan.deliveries))
        self.pool.notify(plan.receivers)

    def settle(self) -> None:
        """Until every row has its end."""
        with self._final:
            assert self._final.wait_for(lambda: not self._open, TIMEOUT), self._open

    def end(self) -> None:
        assert self.pool.stop(TIMEOUT)
        self.store.close()


def happens(step: int, alert: str, state: EventState = EventState.FIRING, severity: Severity = Severity.PAGE) -> AlertEvent:
    return event(alert=alert, state=state, severity=severity, step=step, record=step)


def history(about: AlertEvent) -> Reply:
    """The channel with this event's message in it: delivery ids are a function of the events, so the test can say it."""
    identity = delivery_id(f"{about.run}#1", fingerprint(about), 1, Action.TRIGGER, "chat")
    metadata = {"event_type": "tocsin_delivery", "event_payload": {"delivery_id": identity}}
    return Reply(200, json.dumps({"ok": True, "messages": [{"ts": "16.2", "metadata": metadata}]}).encode())


def test_a_bad_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = tools(SECRETS)
    caplog.set_level(logging.DEBUG)
    redacting = RedactingFilter(given.secrets.redactor)
    caplog.handler.addFilter(redacting)
    with FakeServer() as pager, FakeServer() as chat, FakeServer() as hook:
        config = parse_config(CONFIG.format(pager=pager.url, chat=chat.url, hook=hook.url), "alerts.yaml", given)
        process = Process(tmp_path, config, given)
        process.pool.start()

        # A page. PagerDuty is overloaded, Slack takes the message and drops the connection, the webhook echoes and refuses.
        pager.add(Reply(429, b"", {"retry-after": "0"}), Reply(503, echo=True), Raw(b"", reset=True), ACCEPTED)
        chat.add(Raw(b"", reset=True), Reply(503, echo=True), history(happens(1, "LogprobGapStop")))
        hook.add(Reply(403, echo=True))
        process.tell(happens(1, "LogprobGapStop"))
        process.settle()
        assert {request.json()["dedup_key"] for request in pager.requests} == {"tocsin:grpo-7b-042#1"}
        assert [request.target.partition("?")[0] for request in chat.requests] == [
            "/chat.postMessage",
            "/conversations.history",
            "/conversations.history",
        ], "found in the channel, not sent twice"

        # A warning, which PagerDuty never hears of and Slack in the thread; then the process ends and another goes on.
        chat.add(SAID, SAID)
        hook.add(Reply(204))
        process.tell(happens(2, "EssRatioDecline", severity=Severity.WARNING))
        process.settle()
        process.end()
        process = Process(tmp_path, config, given)
        process.pool.start()

        # Both end. The webhook never took the first, so it hears the end of the second alone.
        pager.add(ACCEPTED)
        chat.add(SAID, SAID)
        hook.add(Reply(204))
        process.tell(
            happens(3, "LogprobGapStop", EventState.RESOLVED),
            happens(3, "EssRatioDecline", EventState.RESOLVED, Severity.WARNING),
        )
        process.settle()
        assert process.book.open_incident("grpo-7b-042") is None
        process.end()

    assert pager.requests[-1].json()["event_action"] == "resolve"
    edits = [(request.target, request.json().get("ts"), request.json().get("thread_ts")) for request in chat.requests[3:]]
    edit, line = ("/chat.update", "16.2", None), ("/chat.postMessage", None, "16.2")
    assert edits == [edit, line] * 2, "the message that was found is edited, and each row is a line below it"
    assert [(body["action"], body["event"]["alert"]) for body in (request.json() for request in hook.requests)] == [
        ("trigger", "LogprobGapStop"),
        ("trigger", "EssRatioDecline"),
        ("resolve", "EssRatioDecline"),
    ]
    caplog.handler.removeFilter(redacting)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"rejected: HTTP 403" in stored
    for secret in SECRETS.values():
        assert secret in repr([*pager.requests, *chat.requests, *hook.requests]), "it was used"
        assert secret.encode() not in stored
        assert secret not in caplog.text and secret not in repr([vars(record) for record in caplog.records])

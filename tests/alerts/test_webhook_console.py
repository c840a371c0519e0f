"""The two receivers that need no service: the webhook's body and signature, and the console."""

from __future__ import annotations

import hashlib
import hmac
import sys

import pytest

from alerts.model import Action, BoardLine, LineState
from alerts.receivers.console import Console
from alerts.receivers.settings import Settings
from alerts.receivers.webhook import Webhook, WebhookSettings
from rules.model import Severity
from tests.kit.receivers import FakeServer, Reply, delivery, event, tools


def test_a_webhook_is_signed_and_can_be_told_apart_from_its_repeat() -> None:
    with FakeServer([Reply(204), Reply(204)]) as server:
        settings = WebhookSettings(kind="webhook", url=server.url + "/hook", bearer="env:B", signing_secret="env:S")
        receiver = Webhook("hook", settings, tools({"B": "bearer-token", "S": "signing-secret"}))
        receiver.send(delivery())
        receiver.send(delivery(ambiguous=True))
        receiver.close()
    first, second = server.requests
    assert first.headers["authorization"] == "Bearer bearer-token"
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == delivery().id
    seconds, _, digest = first.headers["tocsin-signature"].partition(",v1=")
    assert seconds == "t=1790000000"
    assert digest == hmac.new(b"signing-secret", b"1790000000." + first.body, hashlib.sha256).hexdigest()
    assert (first.json()["may_repeat"], second.json()["may_repeat"]) == (False, True)
    assert "(may repeat an earlier message)" in second.json()["text"]
    body = first.json()
    assert (body["version"], body["action"], body["incident"]) == (1, "trigger", "grpo-7b-042#1")
    assert body["event"]["alert"] == "LogprobGapStop"


def test_a_webhook_address_may_be_a_secret() -> None:
    with FakeServer([Reply(400, echo=True)]) as server:
        settings = WebhookSettings(kind="webhook", url="env:U")
        receiver = Webhook("hook", settings, tools({"U": server.url + "/a-secret-path"}))
        outcome = receiver.send(delivery())
        receiver.close()
    assert server.requests[0].target == "/a-secret-path"
    assert "a-secret-path" not in outcome.detail and "tocsin-signature" not in server.requests[0].headers


@pytest.mark.parametrize("url", ["ftp://h/", "https://", "http://h:99999/", "hook", "https://h/ x", "https://h/é"])
def test_a_webhook_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"address") as refused:
        WebhookSettings(kind="webhook", url=url)
    assert url not in str(refused.value).replace("https://host/path", "")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "http://localhost/x", "http://[::1]/x", "https://hook.example/x"])
def test_a_secret_may_go_to_loopback_in_clear(url: str) -> None:
    WebhookSettings(kind="webhook", url=url, bearer="env:B")


def test_a_secret_goes_nowhere_else_in_clear() -> None:
    WebhookSettings(kind="webhook", url="http://hook.cluster.local/x")
    with pytest.raises(ValueError, match="in clear"):
        WebhookSettings(kind="webhook", url="http://hook.cluster.local/x", bearer="env:B")


def test_the_console() -> None:
    written: list[str] = []
    console = Console("console", Settings(kind="console"), tools()._replace(write=written.append))
    assert console.send(delivery()).ok and console.send(delivery(action=Action.RESOLVE)).ok
    assert console.reconcile(delivery()) is None
    console.close()
    assert written[0].startswith("PAGE grpo-7b-042: LogprobGapStop at step 1234\n  Engines disagree\n")
    assert written[1].startswith("RESOLVED grpo-7b-042")
    assert all(text.endswith("\n") for text in written)


def test_the_console_is_not_steered_by_a_run() -> None:
    written: list[str] = []
    console = Console("console", Settings(kind="console"), tools()._replace(write=written.append))
    console.send(delivery(event(run="a\x1b[2J\r\nPAGE fake", summary="b\x07\x9b31m")))
    assert not set(written[0]) & set("\x1b\r\x07\x9b")
    assert len([line for line in written[0].split("\n") if not line.startswith("  ")]) == 2, "one title, one final newline"


def test_a_console_that_is_gone() -> None:
    def broken(text: str) -> None:
        raise BrokenPipeError

    outcome = Console("console", Settings(kind="console"), tools()._replace(write=broken)).send(delivery())
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.detail) == (False, True, "unreachable", "BrokenPipeError")


def test_the_console_writes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert sys.stdout is not None
    assert Console("console", Settings(kind="console"), tools()).send(delivery(event(run="läuft 🔔"))).ok
    assert capsys.readouterr().out.startswith("PAGE läuft 🔔: LogprobGapStop")


def test_the_console_reads_well_for_every_action() -> None:
    written: list[str] = []
    console = Console("console", Settings(kind="console"), tools()._replace(write=written.append))
    lines = tuple(
        BoardLine(alert=name, severity=Severity.PAGE, layer=1, state=state, step=7)
        for name, state in (("LogprobGapStop", LineState.FIRING), ("B\x1b", LineState.RESOLVED))
    )
    for action, note in (
        (Action.UPDATE, "acknowledged by ada"),
        (Action.REMIND, "reminder: open for 1 h"),
        (Action.RESOLVE, ""),
    ):
        console.send(delivery(action=action, note=note, board=lines))
    board = "  Alerts:\n  - firing: LogprobGapStop (page, layer 1) at step 7\n  - resolved: B\ufffd (page, layer 1) at step 7\n"
    title = "grpo-7b-042: LogprobGapStop at step 1234\n"
    assert written[0].startswith(f"UPDATE: PAGE {title}  acknowledged by ada\n{board}  Value: ")
    assert written[1].startswith(f"REMINDER: PAGE {title}  reminder: open for 1 h\n{board}  Engines disagree\n")
    assert written[2].startswith(f"RESOLVED {title}{board}  Value: ")

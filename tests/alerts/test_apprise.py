"""Apprise: what a service gets, what its failures mean, and that its URL shows nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from alerts.config import parse_config
from alerts.model import Action, Delivery, Outcome
from alerts.receivers.apprise import AppriseReceiver, AppriseSettings, secret_parts
from alerts.redaction import RedactingFilter
from rules.config_errors import ConfigErrors
from rules.model import Severity
from tests.kit.receivers import Behaviour, Drip, FakeServer, Hang, Raw, Refuse, Reply, delivery, event, tools

SECRET = "s3cr3t-path-0123456789"
PASSWORD = "pa55word-abcdef"


def receiver(url: str, **more: Any) -> AppriseReceiver:
    """Posts JSON to an address through Apprise's own plugin for that."""
    address = url.replace("http://", f"json://ada:{PASSWORD}@") + f"/hooks/{SECRET}"
    given = tools({"U": address}, links={"incident": "https://h/{incident}"})
    return AppriseReceiver("lark", AppriseSettings(kind="apprise", url="env:U", **more), given)


@pytest.fixture(autouse=True)
def nothing_leaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """As in the collector, records of all loggers pass the redacting filter; Apprise's own must not even get there."""
    caplog.set_level(logging.DEBUG)
    yield
    said = caplog.text + repr([vars(record) for record in caplog.records if record.name != "urllib3.connectionpool"])
    assert SECRET not in said and PASSWORD not in said
    assert not [record for record in caplog.records if record.name == "apprise"]


def attempt(*script: Behaviour, row: Delivery | None = None, **more: Any) -> tuple[Outcome, FakeServer]:
    with FakeServer(script) as server:
        lark = receiver(server.url, **more)
        outcome = lark.send(row or delivery())
        lark.close()
    assert SECRET not in repr(outcome) and PASSWORD not in repr(outcome)
    return outcome, server


def test_a_service_gets_plain_text() -> None:
    outcome, server = attempt(Reply(200))
    assert outcome == Outcome(ok=True, reason="ok")
    (request,) = server.requests
    assert request.target == f"/hooks/{SECRET}" and request.headers["authorization"].startswith("Basic ")
    body = request.json()
    assert body["title"] == "PAGE grpo-7b-042: LogprobGapStop at step 1234"
    assert body["message"].startswith("Engines disagree\nValue: 0.01235, limit 0.01\n")
    assert body["message"].endswith("\nincident: https://h/grpo-7b-042%231")
    assert body["type"] == "failure"


@pytest.mark.parametrize(
    ("severity", "action", "kind"),
    [
        (Severity.WARNING, Action.TRIGGER, "warning"),
        (Severity.STOP, Action.TRIGGER, "failure"),
        (Severity.STOP, Action.RESOLVE, "success"),
    ],
)
def test_a_service_may_colour_it(severity: Severity, action: Action, kind: str) -> None:
    _, server = attempt(Reply(200), row=delivery(event(severity=severity), action))
    assert server.requests[0].json()["type"] == kind


def test_what_a_run_says_is_cut_and_mentions_nobody() -> None:
    nasty = "<!channel> @everyone https://evil.example/ \x1b[31m\ud800"
    row = delivery(event(run=nasty, summary=nasty + "x" * 40_000, next=(nasty,) * 50, links={"a": "https://h/" + "y" * 900}))
    _, server = attempt(Reply(200), row=row)
    body = server.requests[0].json()
    assert len(body["title"]) <= 250 and len(body["message"]) <= 4_000
    assert not [word for word in ("<!", "@everyone", "https://evil", "\x1b") if word in body["title"] + body["message"]]
    assert body["message"].endswith("incident: " + body["message"].rpartition("incident: ")[2])
    assert "y" * 900 in body["message"], "an address is whole or absent"


@pytest.mark.parametrize(
    ("status", "retry", "reason", "ambiguous"),
    [
        (400, False, "rejected", False),
        (401, False, "rejected", False),
        (404, False, "rejected", False),
        (429, True, "rate_limited", False),
        (500, True, "server_error", True),
        (503, True, "server_error", False),
    ],
)
def test_the_status_that_apprise_names_decides(status: int, retry: bool, reason: str, ambiguous: bool) -> None:
    outcome, _ = attempt(Reply(status, echo=True))
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, retry, reason, ambiguous)
    assert f"error={status}" in outcome.detail


@pytest.mark.parametrize(
    "behaviour", [Raw(b"", reset=True), Raw(b"nonsense\r\n\r\n"), Refuse()], ids=["reset", "nonsense", "refuse"]
)
def test_a_lost_connection_may_have_taken_it(behaviour: Behaviour) -> None:
    outcome, _ = attempt(behaviour)
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "connection_lost", True)


def test_nobody_listens(unreachable: str) -> None:
    lark = receiver(f"http://{unreachable}")
    outcome = lark.send(delivery())
    lark.close()
    assert (outcome.ok, outcome.retry, outcome.reason) == (False, True, "connection_lost")


def test_a_redirect_is_not_followed() -> None:
    outcome, server = attempt(Reply(302, b"", {"location": "/elsewhere"}))
    assert not outcome.ok and len(server.requests) == 1


def test_an_attempt_is_bounded_as_a_whole_and_not_overtaken() -> None:
    with FakeServer([Drip(b"HTTP/1.1 200 OK\r\nx: ")]) as server:
        lark = receiver(server.url, timeout=1.0, connect_timeout=1.0)
        first, second = lark.send(delivery()), lark.send(delivery())
        lark.close()
    assert (first.retry, first.reason, first.ambiguous) == (True, "timeout", True)
    assert (second.retry, second.reason, second.ambiguous) == (True, "timeout", False)
    assert len(server.requests) == 1


def test_a_server_that_hangs() -> None:
    outcome, _ = attempt(Hang(), timeout=1.0)
    assert (outcome.ok, outcome.retry, outcome.ambiguous) == (False, True, True)


def test_a_secret_is_looked_up_each_time() -> None:
    with FakeServer([Reply(200)]) as old, FakeServer([Reply(200)]) as new:
        lark = receiver(old.url)
        assert lark.send(delivery()).ok
        environ = lark._secrets._environ
        assert isinstance(environ, dict)
        environ["U"] = new.url.replace("http://", "json://") + f"/{SECRET}"
        assert lark.send(delivery()).ok
        environ["U"] = "nonsense-and-no-address"
        broken = lark.send(delivery())
        environ.clear()
        gone = lark.send(delivery())
        lark.close()
    assert (broken.retry, broken.reason) == (gone.retry, gone.reason) == (True, "no_secret")


def test_other_users_of_the_library_are_still_heard(caplog: pytest.LogCaptureFixture) -> None:
    lark = receiver("http://127.0.0.1:9")
    logging.getLogger("apprise").warning("from elsewhere")
    lark.close()
    assert [record.getMessage() for record in caplog.records if record.name == "apprise"] == ["from elsewhere"]
    caplog.clear()
    assert logging.getLogger("apprise").filters == []


def test_parts_of_the_address_are_redacted_where_the_http_library_logs_them(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer([Reply(200)]) as server:
        lark = receiver(server.url)
        caplog.handler.addFilter(redacting := RedactingFilter(lark._secrets.redactor))
        lark.send(delivery())
        lark.close()
        caplog.handler.removeFilter(redacting)
    assert "POST [redacted] HTTP/1.1" in caplog.text


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops", ["A1BRTD4JD", "T1JJ3T3L2", "TIiajkdnlazkcOXrIdevi7FQ"]),
        ("mailtos://ada:pass%20word1@mail.example.com", ["pass word1", "pass%20word1"]),
        ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", ["4174216298", "JHMHI8qBe7bk2ZwO5U711o3dV_js"]),
        ("sendgrid://SG.abcd.EFGH1234:from@ada.example/", ["SG.abcd.EFGH1234"]),
        ("jsons://127.0.0.1:8443/x?key=abcdefghij", ["abcdefghij"]),
    ],
)
def test_what_of_an_address_is_secret(url: str, parts: list[str]) -> None:
    assert secret_parts(url) == parts


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("unheard-of://h/abcdefgh", "no URL that Apprise understands"),
        ("jsons://h/abcdefgh?verify=no", "certificates off"),
    ],
)
def test_an_address_that_cannot_work_is_found_at_load(url: str, said: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        parse_config("receivers:\n  lark: {kind: apprise, url: env:U}\ndefault: lark", "alerts.yaml", tools({"U": url}))
    (error,) = refused.value.errors
    assert said in str(error) and "abcdefgh" not in str(error)
    assert logging.getLogger("apprise").filters == []

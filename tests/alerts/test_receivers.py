"""Every HTTP receiver against every way in which a server can answer, fail, or talk nonsense."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any, NamedTuple

import pytest

from alerts.model import Action, Delivery, Outcome
from alerts.ports import Receiver
from alerts.receivers import KINDS
from alerts.receivers.settings import HttpSettings, Tools
from alerts.redaction import RedactingFilter
from rules.typed_yaml import load
from tests.kit.receivers import (
    CERTIFICATE,
    Behaviour,
    Blurt,
    Drip,
    FakeServer,
    Hang,
    Raw,
    Refuse,
    Reply,
    delivery,
    event,
    tools,
)

NOW = 1_790_000_000.0
SECRET = "s3cr3t/B0XX/abcdefghij"


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


@pytest.fixture(params=CASES, ids=lambda case: case.kind)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[Tools], None]]:
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


def leaks(text: str) -> list[str]:
    """The parts of secrets that a text shows."""
    return [part for part in (SECRET, "abcdefghij", "another-secret-0123") if part in text]


def build(case: Case, url: str, more: str = "", now: float = NOW) -> tuple[Receiver, Tools]:
    given = tools(case.secrets(url), now=now)
    settings: Any = load(f"kind: {case.kind}\n{case.entry(url)}\n{more}", "alerts.yaml", KINDS[case.kind].settings)
    assert isinstance(settings, HttpSettings)
    return KINDS[case.kind].make("chat", settings, given), given


def attempt(
    case: Case, watch: Callable[[Tools], None], *script: Behaviour, row: Delivery | None = None, more: str = ""
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


Watch = Callable[[Tools], None]


@pytest.mark.parametrize("action", list(Action))
def test_a_success_is_one(case: Case, no_secret_is_logged: Watch, action: Action) -> None:
    needed = action not in case.needs_no
    outcome, server = attempt(case, no_secret_is_logged, *[case.success] * needed, row=delivery(action=action))
    assert (outcome.ok, outcome.reason) == (True, "ok" if needed else "not_needed")
    assert len(server.requests) == needed


def test_a_success_with_another_2xx_is_one_where_only_the_status_counts(case: Case, no_secret_is_logged: Watch) -> None:
    outcome, _ = attempt(case, no_secret_is_logged, case.success._replace(status=299))
    assert outcome.ok


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 413, 414, 415, 422, 431, 451, 499])
def test_4xx_is_final(case: Case, no_secret_is_logged: Watch, status: int) -> None:
    attempts = 2 if (case.kind, status) == ("pagerduty", 400) else 1  # there a bare event follows
    outcome, _ = attempt(case, no_secret_is_logged, *[Reply(status, b"no_team")] * attempts)
    assert outcome == Outcome(ok=False, reason="rejected", detail=f"HTTP {status}: no_team")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_final_and_not_followed(case: Case, no_secret_is_logged: Watch, status: int) -> None:
    outcome, server = attempt(case, no_secret_is_logged, Reply(status, b"", {"location": "/elsewhere"}))
    assert (outcome.ok, outcome.retry, outcome.reason) == (False, False, "redirected")
    assert len(server.requests) == 1


@pytest.mark.parametrize("location", ["http://[::bad", "http://\x00/", "//", "https://h:99999999/", "\xff"])
def test_a_redirect_to_nowhere_raises_nothing(case: Case, no_secret_is_logged: Watch, location: str) -> None:
    outcome, server = attempt(case, no_secret_is_logged, Reply(302, b"", {"location": location}))
    assert not outcome.ok
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "reason", "ambiguous"),
    [
        (408, "server_timeout", False),
        (425, "server_timeout", False),
        (500, "server_error", True),
        (501, "server_error", False),
        (502, "server_error", True),
        (503, "server_error", False),
        (504, "server_error", True),
        (529, "server_error", False),
    ],
)
def test_a_passing_failure_is_retried(
    case: Case, no_secret_is_logged: Watch, status: int, reason: str, ambiguous: bool
) -> None:
    outcome, _ = attempt(case, no_secret_is_logged, Reply(status, b"upstream"))
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, reason, ambiguous)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("30", 30.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("1.5", 1.5),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("9" * 400, None),
        ("Wed, 99 Foo 2026", None),
    ],
)
def test_retry_after_is_understood(
    case: Case, no_secret_is_logged: Watch, status: int, header: str, seconds: float | None
) -> None:
    outcome, _ = attempt(case, no_secret_is_logged, Reply(status, b"", {"retry-after": header}))
    assert (outcome.ok, outcome.retry, outcome.ambiguous) == (False, True, False)
    assert outcome.retry_after == seconds


def test_429_without_a_time(case: Case, no_secret_is_logged: Watch) -> None:
    outcome, _ = attempt(case, no_secret_is_logged, Reply(429))
    assert (outcome.retry, outcome.reason, outcome.retry_after) == (True, "rate_limited", None)


def test_200_with_an_error_body(case: Case, no_secret_is_logged: Watch) -> None:
    for reply, reason, retry in case.error_bodies:
        outcome, _ = attempt(case, no_secret_is_logged, reply)
        assert (outcome.ok, outcome.reason, outcome.retry) == (False, reason, retry), reply
        assert outcome.ambiguous == (reason == "bad_answer" or b"internal_error" in reply.body)
        if "retry-after" in reply.headers:
            assert outcome.retry_after == 7.0


def test_an_answer_that_echoes_the_secret_is_quoted_without_it(case: Case, no_secret_is_logged: Watch) -> None:
    outcome, server = attempt(case, no_secret_is_logged, Reply(403, echo=True))
    assert "[redacted]" in outcome.detail
    assert leaks(repr(server.requests))  # the request did hold it


@pytest.mark.parametrize(
    "behaviour",
    [
        Raw(b"", reset=True),
        Raw(b""),
        Raw(b"\x00\x01\x02 this is no HTTP\r\n\r\n"),
        Raw(b"HTTP/1.1 200"),
        Raw(b"HTTP/1.1 999999 what\r\n\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n"),
    ],
    ids=["reset", "end", "garbage", "half a line", "no status", "endless headers"],
)
def test_an_attempt_without_an_answer_may_have_arrived(case: Case, no_secret_is_logged: Watch, behaviour: Raw) -> None:
    outcome, _ = attempt(case, no_secret_is_logged, behaviour)
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "connection_lost", True)


def test_a_reset_in_the_middle_of_the_answer(case: Case, no_secret_is_logged: Watch) -> None:
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nok"
    outcome, _ = attempt(case, no_secret_is_logged, Raw(half))
    if case.body_matters:
        assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "bad_answer", True)
    else:
        assert outcome.ok


def test_a_connection_reset_before_the_request_was_read(case: Case, no_secret_is_logged: Watch) -> None:
    outcome, _ = attempt(case, no_secret_is_logged, Refuse())
    assert (outcome.ok, outcome.retry) == (False, True)
    assert outcome.reason == ("connection_lost" if outcome.ambiguous else "unreachable")  # a race decides how far we came


def test_a_server_that_hangs(case: Case, no_secret_is_logged: Watch) -> None:
    outcome, _ = attempt(case, no_secret_is_logged, Hang(), more="timeout: 0.2")
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "timeout", True)


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 90000\r\n\r\n"])
def test_an_answer_that_comes_byte_by_byte_is_cut_off(case: Case, no_secret_is_logged: Watch, begin: bytes) -> None:
    # Each byte is in time; were there only timeouts of single reads, this would take half an hour.
    outcome, _ = attempt(case, no_secret_is_logged, Drip(begin), more="timeout: 0.3\nconnect_timeout: 0.3")
    if b"\r\n\r\n" not in begin:
        assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "timeout", True)
    elif case.body_matters:
        assert (outcome.ok, outcome.retry, outcome.ambiguous) == (False, True, True)
    else:
        assert outcome.ok


def test_an_endless_answer_is_not_read_to_its_end(case: Case, no_secret_is_logged: Watch) -> None:
    size = 3 * 1024 * 1024
    whole = f"HTTP/1.1 403 No\r\ncontent-length: {size}\r\n\r\n".encode() + b"x" * size
    outcome, _ = attempt(case, no_secret_is_logged, Raw(whole))
    assert (outcome.reason, outcome.retry) == ("rejected", False)
    assert len(outcome.detail) < 300


def test_nobody_listens(case: Case, no_secret_is_logged: Watch, unreachable: str) -> None:
    receiver, given = build(case, f"http://{unreachable}")
    no_secret_is_logged(given)
    outcome = receiver.send(delivery())
    receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "unreachable", False)


def test_the_name_is_unknown(case: Case, no_secret_is_logged: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    receiver, given = build(case, "http://127.0.0.1:9")
    no_secret_is_logged(given)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    outcome = receiver.send(delivery())
    receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "dns_error", False)


def test_the_server_does_not_speak_tls(case: Case, no_secret_is_logged: Watch) -> None:
    with FakeServer([Blurt(b"HTTP/1.1 400 Bad Request\r\n\r\n")]) as server:
        receiver, given = build(case, server.url.replace("http://", "https://"))
        no_secret_is_logged(given)
        outcome = receiver.send(delivery())
        receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "tls_error", False)


def test_a_secret_that_is_gone_is_retried(case: Case) -> None:
    with FakeServer() as server:
        receiver, given = build(case, server.url)
        environ = given.secrets._environ
        assert isinstance(environ, dict)
        environ.clear()
        outcome = receiver.send(delivery())
        receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "no_secret", False)


def test_text_of_a_run_breaks_no_request(case: Case, no_secret_is_logged: Watch) -> None:
    nasty = "\x00\x1b[31m\ud800<!channel> & \u202e\"'\\ \r\nHost: evil\n" + "🔔" * 5_000
    row = delivery(
        event(
            run=nasty,
            alert=nasty,
            summary=nasty,
            reason=nasty,
            next=(nasty,) * 50,
            explains=(nasty,) * 50,
            labels={nasty: nasty},
            run_labels={f"{n}{nasty}": nasty for n in range(50)},
            links={"a": "javascript:alert(1)", "b": "https://host/" + "x" * 5_000, nasty: nasty},
            value=float("nan"),
            limit=float("-inf"),
            event_time=float("inf"),
        )
    )
    outcome, server = attempt(case, no_secret_is_logged, case.success, row=row)
    assert outcome.ok
    request = server.requests[0]
    assert request.method == "POST"
    assert "host: evil" not in str(request.headers).lower()
    request.json()


FORM = {
    "slack_webhook": [Reply(400, b"invalid_blocks"), Reply(200, b"ok")],
    "slack_bot": [Reply(200, b'{"ok": false, "error": "msg_blocks_too_long"}'), Reply(200, b'{"ok": true, "ts": "1.1"}')],
    "pagerduty": [Reply(400, b'{"status": "invalid event"}'), Reply(202, b'{"status": "success"}')],
}


@pytest.mark.parametrize("kind", FORM)
def test_a_page_does_not_fail_because_of_its_looks(kind: str, no_secret_is_logged: Watch) -> None:
    (case,) = [case for case in CASES if case.kind == kind]
    outcome, server = attempt(case, no_secret_is_logged, *FORM[kind], row=delivery(dedup_key="k"))
    assert outcome.ok
    first, second = (request.json() for request in server.requests)
    if kind == "pagerduty":
        assert set(second) == {"routing_key", "dedup_key", "event_action", "payload"}
        assert (second["dedup_key"], set(second["payload"])) == ("k", {"summary", "source", "severity"})
        assert second["payload"]["severity"] == first["payload"]["severity"]
    else:
        assert "blocks" in first and "blocks" not in second
        assert second["text"] == "PAGE grpo-7b-042: LogprobGapStop at step 1234\nEngines disagree"
        assert second.get("metadata") == first.get("metadata")


def test_metadata_that_slack_refuses_is_left_out(no_secret_is_logged: Watch) -> None:
    (case,) = [case for case in CASES if case.kind == "slack_bot"]
    refusal = Reply(200, b'{"ok": false, "error": "metadata_must_be_sent_from_app"}')
    outcome, server = attempt(case, no_secret_is_logged, refusal, case.success)
    assert outcome.ok and "metadata" not in server.requests[1].json()


def test_a_bare_message_that_is_refused_too_is_final(no_secret_is_logged: Watch) -> None:
    for kind in FORM:
        (case,) = [case for case in CASES if case.kind == kind]
        outcome, _ = attempt(case, no_secret_is_logged, FORM[kind][0], FORM[kind][0])
        assert (outcome.ok, outcome.retry, outcome.reason) == (False, False, "rejected")


# ------------------------------------------------------------------------------------------------ TLS and proxies


def test_over_tls_with_an_authority_of_ones_own(case: Case, no_secret_is_logged: Watch) -> None:
    with FakeServer([case.success], tls=True) as server:
        receiver, given = build(case, server.url, more=f'ca_file: "{CERTIFICATE}"')
        no_secret_is_logged(given)
        outcome = receiver.send(delivery())
        receiver.close()
    assert outcome.ok, outcome


def test_a_certificate_that_nobody_vouches_for(case: Case, no_secret_is_logged: Watch) -> None:
    with FakeServer(tls=True) as server:
        receiver, given = build(case, server.url)
        no_secret_is_logged(given)
        outcome = receiver.send(delivery())
        receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "tls_error", False)
    assert "self-signed certificate" in outcome.detail
    assert server.requests == []


def test_a_certificate_of_another_name(case: Case, no_secret_is_logged: Watch) -> None:
    with FakeServer(tls=True) as server:
        receiver, given = build(case, server.url.replace("127.0.0.1", "localhost"), more=f'ca_file: "{CERTIFICATE}"')
        no_secret_is_logged(given)
        outcome = receiver.send(delivery())
        receiver.close()
    assert (outcome.reason, outcome.retry) == ("tls_error", True)
    assert "mismatch" in outcome.detail and server.requests == []


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nx: "])
def test_the_deadline_holds_under_tls_too(case: Case, no_secret_is_logged: Watch, begin: bytes) -> None:
    with FakeServer([Drip(begin)], tls=True) as server:
        more = f'ca_file: "{CERTIFICATE}"\ntimeout: 0.5\nconnect_timeout: 0.5'
        receiver, given = build(case, server.url, more=more)
        no_secret_is_logged(given)
        outcome = receiver.send(delivery())
        receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "timeout", True)


def test_through_a_proxy(case: Case, no_secret_is_logged: Watch) -> None:
    target = "http://127.0.0.1:9"
    with FakeServer([case.success]) as proxy:
        receiver, given = build(case, target, more=f'proxy: "{proxy.url}"')
        no_secret_is_logged(given)
        outcome = receiver.send(delivery())
        receiver.close()
    assert outcome.ok
    assert proxy.requests[0].target.startswith(target)


def test_variables_of_the_environment_send_nothing_elsewhere(
    case: Case, no_secret_is_logged: Watch, monkeypatch: pytest.MonkeyPatch, unreachable: str
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://{unreachable}")
    outcome, _ = attempt(case, no_secret_is_logged, case.success)
    assert outcome.ok

"""Every HTTP receiver against every status that a server can answer with. No sound answer: test_receivers_answers."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from alerts.model import Action, Outcome
from tests.kit.receiver_cases import CASES, NOW, Case, Watch, attempt, build, leaks
from tests.kit.receivers import (
    FakeServer,
    Reply,
    delivery,
    event,
)


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

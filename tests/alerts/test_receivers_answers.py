"""Receivers whose server answers oddly or not at all: cut off, reset, endless, silent, unknown, or without TLS."""

from __future__ import annotations

import socket

import pytest

from tests.kit.receiver_cases import Case, Watch, attempt, build
from tests.kit.receivers import (
    Blurt,
    Drip,
    FakeServer,
    Hang,
    Raw,
    Refuse,
    delivery,
)


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

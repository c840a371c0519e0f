"""Every HTTP receiver under TLS and behind a proxy: certificates, deadlines, what the environment must not change."""

from __future__ import annotations

import pytest

from tests.kit.receiver_cases import Case, Watch, attempt, build
from tests.kit.receivers import (
    CERTIFICATE,
    Drip,
    FakeServer,
    delivery,
)


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

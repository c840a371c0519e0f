"""The sign of life on its way to a dead-man service."""

from __future__ import annotations

import logging

import pytest

from alerts.config import AlertsConfig, parse_config
from alerts.heartbeat import Heartbeat, HeartbeatEntry
from rules.config_errors import ConfigErrors
from tests.kit.receivers import Behaviour, FakeServer, Hang, Raw, Reply, tools

SECRET = "ping-0123456789-secret"


def beats(*script: Behaviour) -> tuple[list[tuple[bool, str]], FakeServer]:
    with FakeServer(script) as server:
        given = tools({"URL": f"{server.url}/ping/{SECRET}?status=up"})
        heart = Heartbeat(HeartbeatEntry(url="env:URL", timeout=2.0), given)
        outcomes = [heart.beat() for _ in script]
        heart.close()
    assert SECRET not in repr(outcomes)
    return [(outcome.ok, outcome.reason) for outcome in outcomes], server


def test_a_beat_is_one_request_to_the_whole_address() -> None:
    outcomes, server = beats(Reply(200, b"OK"), Reply(204))
    assert outcomes == [(True, "ok")] * 2
    assert [(request.method, request.target) for request in server.requests] == [("GET", f"/ping/{SECRET}?status=up")] * 2


def test_failures_are_outcomes_and_the_first_of_a_row_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "alerts.heartbeat")
    outcomes, _ = beats(Reply(503), Hang(), Raw(b"", reset=True), Reply(200), Reply(404))
    assert [reason for _, reason in outcomes] == ["server_error", "timeout", "connection_lost", "ok", "rejected"]
    assert [record.getMessage() for record in caplog.records] == [
        "the heartbeat does not get through: server_error: HTTP 503",
        "the heartbeat does not get through: rejected: HTTP 404",
    ]


def test_a_secret_that_is_gone(unreachable: str) -> None:
    given = tools({"URL": f"http://{unreachable}/ping"})
    heart = Heartbeat(HeartbeatEntry(url="env:URL"), given)
    assert heart.beat().reason == "unreachable"
    environ = given.secrets._environ
    assert isinstance(environ, dict)
    environ.clear()
    assert heart.beat().reason == "no_secret"
    heart.close()


def parsed(entry: str, **environ: str) -> AlertsConfig:
    return parse_config(f"receivers:\n  c: {{kind: console}}\ndefault: c\nheartbeat: {entry}", "alerts.yaml", tools(environ))


def test_it_is_part_of_the_file() -> None:
    config = parsed("{url: env:URL, every: 2m}", URL="https://dms.example/abc")
    assert config.heartbeat is not None and Heartbeat(config.heartbeat, tools({"URL": "https://h/abcd"})).every == 120.0
    assert parsed("{url: env:URL}", URL="https://dms.example/abc").heartbeat == HeartbeatEntry(url="env:URL")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{url: 'https://dms.example/secret-token'}", "given by reference"),
        ("{url: env:GONE}", "no such environment variable"),
        ("{url: env:CLEAR}", "in clear"),
        ("{url: env:URL, every: 1s}", "every 5 s"),
        ("{url: env:URL, every: often}", "does not match"),
        ("{url: env:URL, ca_file: /nowhere.pem}", "cannot be read"),
    ],
)
def test_faults_are_found_at_load(entry: str, said: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        parsed(entry, URL="https://dms.example/secret-token", CLEAR="http://dms.example/secret-token")
    (error,) = refused.value.errors
    assert said in str(error) and str(error).startswith("alerts.yaml:4:") and "secret-token" not in str(error)

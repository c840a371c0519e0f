"""No secret in any log, store, page, metric or file: a whole `tocsin collect` at log level debug, with every kind of receiver
that holds a secret, all of which misbehave, some by sending the secret back; then all bytes that it left are searched."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.kit.asking import http_client
from tests.kit.collecting import Process, collecting, spooled, until
from tests.kit.pipelines import RULES, steps
from tests.kit.receivers import FakeServer, Reply, Request

SECRETS = {
    "SLACK_TOKEN": "xoxb-planted-slack-bot-token-01",
    "SLACK_URL": "{echo}/services/T0PLANTED/B0PLANTED/plantedwebhook02",
    "PAGERDUTY": "R0PLANTEDROUTINGKEY03ABCDEFGHIJ",
    "AM_BEARER": "planted-alertmanager-bearer-04",
    "SIGNING": "planted-signing-secret-05/+==",
    "HOOK_BEARER": "planted-webhook-bearer-06",
    "APPRISE_URL": "json://planted-user-07:planted-password-08@127.0.0.1:{port}/planted-path-09",
    "KAFKA_PASSWORD": "planted-kafka-password-10",
    "DEAD_MAN": "{echo}/ping/planted-dead-man-11",
    "VIEWER": "planted-viewer-token-12",
    "ADMIN": "planted-admin-token-13",
}
"""By environment variable; what is secret of an address is its path."""
NEEDLES = [
    "xoxb-planted-slack-bot-token-01",
    "plantedwebhook02",
    "R0PLANTEDROUTINGKEY03ABCDEFGHIJ",
    "planted-alertmanager-bearer-04",
    "planted-signing-secret-05",
    "planted-webhook-bearer-06",
    "planted-password-08",
    "planted-kafka-password-10",
    "planted-dead-man-11",
    "planted-viewer-token-12",
    "planted-admin-token-13",
]
ALERTS = """
receivers:
  bot: {{kind: slack_bot, token: env:SLACK_TOKEN, channel: C0123456789, api: "{echo}/api"}}
  hook: {{kind: slack_webhook, url: env:SLACK_URL}}
  oncall: {{kind: pagerduty, routing_key: env:PAGERDUTY, api: "{echo}/v2/enqueue"}}
  am: {{kind: alertmanager, urls: ["{echo}"], bearer: env:AM_BEARER}}
  signed: {{kind: webhook, url: "{echo}/hook", signing_secret: env:SIGNING, bearer: file:bearer.txt}}
  anything: {{kind: apprise, url: env:APPRISE_URL}}
  bus:
    kind: kafka
    bootstrap: ["127.0.0.1:1"]
    connect_timeout: 1
    security: {{security_protocol: SASL_PLAINTEXT, sasl_mechanism: PLAIN, sasl_plain_username: u,
                sasl_plain_password: env:KAFKA_PASSWORD}}
default: [bot, hook, oncall, am, signed, anything, bus]
group_wait: 0s
heartbeat: {{url: env:DEAD_MAN, every: 10s}}
"""
CONFIG = """
http:
  port: 0
  tokens:
    - {name: vera, role: viewer, token: env:VIEWER}
    - {name: adam, role: admin, token: env:ADMIN}
clock: event
rules: {shipped: false, dirs: [rules]}
alerts: alerts.yaml
"""


class Echo(FakeServer):
    """Refuses everything, now for good and now for a while, and says back all that it was told."""

    def serve(self, request: Request) -> Reply:
        status = (400, 500, 401, 503, 302)[len(self.requests) % 5]
        body = json.dumps({"ok": False, "error": str(request.headers), "target": request.target}).encode() + request.body[:4000]
        return Reply(status, body, {"location": request.target, "x-echo": request.headers.get("authorization", "")})


@contextmanager
def running(folder: Path) -> Iterator[tuple[Process, Echo]]:
    (folder / "rules").mkdir()
    (folder / "rules" / "test.yaml").write_text(RULES)
    (folder / "bearer.txt").write_text(SECRETS["HOOK_BEARER"] + "\n")
    with ExitStack() as stack:
        echo = stack.enter_context(Echo())
        port = echo.url.rpartition(":")[2]
        (folder / "alerts.yaml").write_text(ALERTS.format(echo=echo.url))
        environ = {name: value.format(echo=echo.url, port=port) for name, value in SECRETS.items()}
        yield stack.enter_context(collecting(folder, CONFIG, ["--log-level", "debug"], environ)), echo


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All bytes that a collector left in files and said over HTTP, by where they were."""
    folder = tmp_path_factory.mktemp("secrets")
    found: dict[str, bytes] = {}
    with running(folder) as (process, echo):
        spooled(folder, "r", steps("r", [1.0, 20.0, 20.0]))
        until(lambda: len(echo.requests) > 15 and _asked(echo) >= 6, "all receivers were told")
        headers = {"authorization": f"Bearer {SECRETS['ADMIN']}"}
        with http_client(base_url=process.url, headers=headers) as client:
            (folder / "alerts.yaml").write_text((folder / "alerts.yaml").read_text().replace("env:SIGNING", SECRETS["SIGNING"]))
            found["refused reload"] = client.post("/api/v1/reload").content
            (incident,) = [each["id"] for each in client.get("/api/v1/incidents").json()["incidents"] if each["run"] == "r"]
            places = ["/", "/runs/r", f"/incidents/{quote(incident, safe='')}", "/metrics", "/healthz", "/readyz", "/nowhere"]
            places += ["/api/v1/runs", "/api/v1/alerts", "/api/v1/incidents", f"/api/v1/incidents/{quote(incident, safe='')}"]
            for place in places:
                answer = client.get(place)
                found[f"GET {place}"] = repr(answer.headers).replace(SECRETS["ADMIN"], "").encode() + answer.content
            wrong = client.get("/api/v1/runs", headers={"authorization": f"Bearer {SECRETS['VIEWER']}x"})
            assert wrong.status_code == 401
            found["401"] = wrong.content
        spooled(folder, "r", steps("r", [1.0], first=4))
        process.end()
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("bearer.txt", "alerts.yaml"):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def _asked(echo: Echo) -> int:
    return len({request.target.split("?")[0] for request in echo.requests})


def test_the_fixture_saw_what_it_should(left: dict[str, bytes]) -> None:
    assert {"stderr", "stdout"} <= set(left)
    assert re.search(rb"tocsin\.db", b" ".join(name.encode() for name in left))
    assert sum(content.count(b"[redacted]") for content in left.values()) > 5, "it had occasion to"
    assert b"400" in left["stderr"] and b"DEBUG" in left["stderr"]
    assert b"High" in left["GET /api/v1/incidents"]
    assert b"a secret is given by reference" in left["refused reload"]


@pytest.mark.parametrize("needle", NEEDLES)
def test_no_secret_is_left_anywhere(left: dict[str, bytes], needle: str) -> None:
    raw = needle.encode()
    spellings = {raw, quote(needle, safe="").encode(), base64.b64encode(raw)[:-4], raw.hex().encode(), raw[::-1]}
    for where, content in left.items():
        for spelling in spellings:
            assert spelling not in content, f"{where}: {_around(content, spelling)!r}"


def _around(content: bytes, spelling: bytes) -> Any:
    at = content.index(spelling)
    return content[max(0, at - 120) : at + 20]

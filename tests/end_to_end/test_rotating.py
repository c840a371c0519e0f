"""Each secret of a running collector is replaced by the command of docs/operate/secrets.md; what a lost one costs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.asking import http_client
from tests.kit.collecting import Process, collecting, spooled, until
from tests.kit.pagerduty import FakePagerDuty
from tests.kit.pipelines import RULES, steps
from tests.kit.receivers import FakeServer, Reply, Request
from tests.kit.services import ROOT

PAGE = ROOT / "docs" / "operate" / "secrets.md"
KEYS = ("R-first-0123456789ABCDEF01234567", "R-second-123456789ABCDEF01234567")
TOKENS = ("operator-token-the-first", "operator-token-the-second")


class DeadMan(FakeServer):
    """Is told of life under any path."""

    def serve(self, request: Request) -> Reply:
        return Reply(200, b"ok")

    def paths(self) -> list[str]:
        return [request.target for request in self.requests]


@pytest.fixture
def pagerduty() -> Iterator[FakePagerDuty]:
    with FakePagerDuty() as server:
        yield server


@pytest.fixture
def dead_man() -> Iterator[DeadMan]:
    with DeadMan() as server:
        yield server


@pytest.fixture
def collector(tmp_path: Path, pagerduty: FakePagerDuty, dead_man: DeadMan) -> Iterator[Process]:
    for name, value in (("key", KEYS[0]), ("life", f"{dead_man.url}/first"), ("token", TOKENS[0])):
        (tmp_path / name).write_text(value, encoding="utf-8")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test.yaml").write_text(RULES, encoding="utf-8")
    (tmp_path / "alerts.yaml").write_text(
        f"receivers: {{oncall: {{kind: pagerduty, routing_key: 'file:key', api: '{pagerduty.url}/v2/enqueue'}}}}\n"
        "default: oncall\nheartbeat: {url: 'file:life', every: 5s}\n",
        encoding="utf-8",
    )
    config = (
        "clock: event\nalerts: alerts.yaml\nrules: {shipped: false, dirs: [rules]}\n"
        "http: {port: 0, tokens: [{name: olga, role: operator, token: 'file:token'}]}\n"
    )
    with collecting(tmp_path, config) as process:
        yield process


def rotate(file: Path, value: str) -> None:
    """By the command of the page."""
    (command,) = re.findall(r"`(umask 077; printf %s \"\$NEW\" > key\.new; mv key\.new key)`", PAGE.read_text(encoding="utf-8"))
    script = command.replace("key", shlex.quote(file.name))
    subprocess.run(["sh", "-ec", script], cwd=file.parent, env={**os.environ, "NEW": value}, check=True)
    assert file.stat().st_mode & 0o777 == 0o600


def paged(collector: Process, pagerduty: FakePagerDuty, run: str) -> str:
    """The key with which a run that falls ill now pages."""
    spooled(collector.folder, run, steps(run, [1.0, 20.0, 20.0]))
    event = until(lambda: next((each for each in list(pagerduty.events) if run in each["dedup_key"]), None), f"{run} pages")
    return str(event["routing_key"])


def status(collector: Process, token: str) -> int:
    with http_client() as asking:
        return asking.get(f"{collector.url}/api/v1/runs", headers={"authorization": f"Bearer {token}"}).status_code


def test_each_is_replaced_without_a_restart(collector: Process, pagerduty: FakePagerDuty, dead_man: DeadMan) -> None:
    assert paged(collector, pagerduty, "before") == KEYS[0]
    until(lambda: "/first" in dead_man.paths(), "a sign of life")
    with http_client(collector.url, headers={"accept": "text/html"}, follow_redirects=True) as browser:
        browser.post("/login", data={"token": TOKENS[0]})
        assert browser.get("/").status_code == 200, "a session is open"

        rotate(collector.folder / "key", KEYS[1])
        assert paged(collector, pagerduty, "after") == KEYS[1]

        rotate(collector.folder / "life", f"{dead_man.url}/second")
        until(lambda: "/second" in dead_man.paths(), "a sign of life at the new address")
        assert "/first" not in dead_man.paths()[dead_man.paths().index("/second") :]

        rotate(collector.folder / "token", TOKENS[1])
        assert (status(collector, TOKENS[0]), status(collector, TOKENS[1])) == (401, 200)
        answer = browser.get("/")
        assert answer.status_code == 401 and 'action="/login"' in answer.text, "its session is over"
    assert collector.end() == 0


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "empty"])
def test_one_that_is_lost_is_waited_for_and_no_message_with_it(
    gone: bool, collector: Process, pagerduty: FakePagerDuty
) -> None:
    key = collector.folder / "key"
    if gone:
        key.unlink()
    else:
        key.write_text("", encoding="utf-8")
    spooled(collector.folder, "r", steps("r", [1.0, 20.0, 20.0]))
    attempt = 'tocsin_deliveries_total{outcome="no_secret",receiver="oncall"}'
    until(lambda: attempt in collector.get("/metrics").text, "an attempt without a secret")
    assert pagerduty.events == []
    rotate(key, KEYS[1])
    until(lambda: list(pagerduty.events), "it is sent after all")
    collector.settled()
    assert [(event["dedup_key"], event["routing_key"]) for event in pagerduty.events] == [("tocsin:r#1", KEYS[1])]
    assert collector.end() == 0

"""What people say of incidents over HTTP, on a running collector: committed, told to receivers, refused with a reason."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from alerts.redaction import Redactor
from service import config
from service.asking import Busy, NotThere, ask
from service.consume import Processed
from service.running import Running
from tests.kit.asking import http_client
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import RULES, steps
from tests.kit.running import ALERTS, CONFIG

TOKENS = """http:
  port: 0
  tokens:
    - {name: vera, role: viewer, token: env:VERA}
    - {name: olga, role: operator, token: env:OLGA}
"""
SECRETS = {"VERA": "vera-secret-token", "OLGA": "olga-secret-token"}
RUN = "team/abl #1"
"""A run's name is a trainer's: it holds what an address gives a meaning to."""
INCIDENT = f"/api/v1/incidents/{quote(f'{RUN}#1', safe='')}"


class Collector:
    """A running collector with two tokens, and what its console wrote."""

    def __init__(self, folder: Path) -> None:
        (folder / "rules").mkdir(exist_ok=True)
        (folder / "rules" / "test.yaml").write_text(RULES)
        (folder / "alerts.yaml").write_text(ALERTS)
        self.folder = folder
        self.written: list[str] = []
        text = CONFIG.replace("http: {port: 0}\n", TOKENS)
        self.running = Running(
            config.parse(text, "tocsin.yaml", folder), environ=SECRETS, redactor=Redactor(), write=self.written.append
        )
        self.running.start()

    def as_(self, name: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {SECRETS[name]}"}
        return http_client(base_url=self.running.http.url, headers=headers)

    def fires(self) -> None:
        spooled(self.folder, RUN, steps(RUN, [1.0, 20.0, 20.0]))
        self.told("High at step 3")

    def told(self, text: str) -> None:
        until(lambda: any(text in message for message in self.written), text)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path)
    yield made
    assert made.running.stop()


def test_an_incident_is_acknowledged_and_that_outlives_a_restart(collector: Collector) -> None:
    collector.fires()
    with collector.as_("OLGA") as olga:
        (found,) = olga.get("/api/v1/incidents").json()["incidents"]
        assert (found["id"], found["acknowledged"]) == (f"{RUN}#1", None)
        said = olga.post(f"{INCIDENT}/acknowledge", json={"for": "2h"})
        assert said.status_code == 200
        acknowledged = said.json()["acknowledged"]
        assert (acknowledged["owner"], acknowledged["door"]) == ("olga", "http")
        assert acknowledged["until"] - acknowledged["at"] == pytest.approx(7200.0, abs=1.0)
        assert olga.get(INCIDENT).json() == said.json()
        again = olga.post(f"{INCIDENT}/acknowledge", json={"for": "1d", "owner": "ada"})
        assert again.json()["acknowledged"]["owner"] == "ada"
    assert collector.running.stop()
    collector.running = Collector(collector.folder).running
    with collector.as_("VERA") as vera:
        assert vera.get(INCIDENT).json()["acknowledged"]["owner"] == "ada"


def test_an_incident_is_closed_by_hand_and_its_receivers_are_told(collector: Collector) -> None:
    collector.fires()
    with collector.as_("OLGA") as olga:
        assert olga.post(f"{INCIDENT}/close", json={}).status_code == 200
        collector.told("closed by olga")
        spooled(collector.folder, RUN, steps(RUN, [1.0], first=4))
        until(lambda: olga.get(INCIDENT).json()["closed_at"] is not None, "the run is well")
        assert olga.get("/api/v1/incidents").json()["incidents"] == []
        late = olga.post(f"{INCIDENT}/acknowledge", json={"for": "2h"})
        assert late.status_code == 404 and "is over" in late.json()["error"]


@pytest.mark.parametrize(
    ("name", "what", "body", "status", "why"),
    [
        ("VERA", "acknowledge", {"for": "2h"}, 403, "this needs operator"),
        ("VERA", "close", {}, 403, "this needs operator"),
        ("OLGA", "acknowledge", {}, 400, "for"),
        ("OLGA", "acknowledge", {"for": "0s"}, 400, "more than nothing"),
        ("OLGA", "acknowledge", {"for": "8d"}, 400, "at most 7d"),
        ("OLGA", "acknowledge", {"for": "2h", "ownr": "ada"}, 400, "did you mean 'owner'"),
        ("OLGA", "close", {"reason": "x"}, 400, "unknown key 'reason'"),
        ("OLGA", "acknowledge", {"for": "2h"}, 404, "there is no incident"),
        ("OLGA", "close", {}, 404, "there is no incident"),
    ],
)
def test_what_is_refused_says_why(
    collector: Collector, name: str, what: str, body: dict[str, Any], status: int, why: str
) -> None:
    with collector.as_(name) as asking:
        refused = asking.post(f"{INCIDENT}/{what}", json=body)
        assert refused.status_code == status
        assert why in refused.json()["error"]


def test_an_incident_that_is_not_there(collector: Collector) -> None:
    with collector.as_("VERA") as vera:
        missing = vera.get("/api/v1/incidents/nothing")
        assert missing.status_code == 404 and "%23" in missing.json()["error"]


def test_the_log_says_who_did_what_and_no_token(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.fires()
    with caplog.at_level(logging.INFO), collector.as_("OLGA") as olga:
        olga.post(f"{INCIDENT}/acknowledge", json={"for": "2h"})
        olga.post(f"{INCIDENT}/close", json={})
    assert f"olga acknowledged incident {RUN}#1 for 2h" in caplog.text
    assert f"olga closed incident {RUN}#1" in caplog.text
    assert "secret-token" not in caplog.text


def test_what_cannot_be_committed_has_not_happened(collector: Collector) -> None:
    """Somebody else holds the database: the word is refused, the loop begins anew from the store, and then takes it."""
    collector.fires()
    lock = sqlite3.connect(collector.folder / "tocsin.db", isolation_level=None)
    lock.execute("begin immediate")
    try:
        with collector.as_("OLGA") as olga:
            refused = olga.post(f"{INCIDENT}/close", json={})
            assert refused.status_code == 503
    finally:
        lock.execute("rollback")
        lock.close()
    with collector.as_("OLGA") as olga:
        until(lambda: olga.post(f"{INCIDENT}/acknowledge", json={"for": "2h"}).status_code == 200, "it is taken")
        assert not any("closed by" in message for message in collector.written)


def test_a_refusal_is_harmless_and_an_error_is_the_loops_too() -> None:
    def refuse() -> tuple[None, None]:
        raise NotThere("nothing")

    def fail() -> tuple[None, None]:
        raise RuntimeError("broken")

    done: list[Processed | None] = []
    with pytest.raises(NotThere):
        ask(lambda job: done.append(job()), refuse)
    assert done == [None]

    raised: list[BaseException] = []

    def loop(job: Any) -> None:
        try:
            job()
        except RuntimeError as error:
            raised.append(error)

    with pytest.raises(RuntimeError, match="broken"):
        ask(loop, fail)
    assert [str(error) for error in raised] == ["broken"]


def test_what_comes_too_late_is_not_done() -> None:
    jobs: list[Any] = []
    with pytest.raises(Busy, match="nothing was changed"):
        ask(jobs.append, lambda: pytest.fail("done all the same"), patience=0.0)
    (job,) = jobs
    assert job() is None

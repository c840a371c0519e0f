"""Silences and windows over HTTP, on a running collector: who may, what is refused and how, and that the book goes by it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from alerts.muting.muting import Muting
from alerts.redaction import Redactor
from alerts.secrets import SecretError
from rules.config_errors import ConfigErrors
from service import config
from service.asking import Busy
from service.consume import Processed
from service.mute_desk import MuteDesk
from service.running import Running
from service.store.store import Store
from tests.kit.asking import http_client
from tests.kit.pipelines import RULES
from tests.kit.running import ALERTS, CONFIG

TOKENS = """http:
  port: 0
  tokens:
    - {name: vera, role: viewer, token: env:VERA}
    - {name: olga, role: operator, token: env:OLGA}
    - {name: adam, role: admin, token: env:ADAM}
"""
SECRETS = {"VERA": "vera-secret-token", "OLGA": "olga-secret-token", "ADAM": "adam-secret-token"}
SILENCES = 'silences:\n  - {id: filed, match: {run: "a-*"}, owner: ada, reason: known, expires: "2999-01-01T00:00Z"}\n'
WANTED = {"match": {"alert": "High", "labels": {"team": ["a", "b"]}}, "reason": "known", "for": "2h"}


def started(folder: Path, text: str, environ: dict[str, str]) -> Running:
    (folder / "rules").mkdir(exist_ok=True)
    (folder / "rules" / "test.yaml").write_text(RULES)
    (folder / "alerts.yaml").write_text(ALERTS + "silences: silences.yaml\n")
    (folder / "silences.yaml").write_text(SILENCES)
    running = Running(config.parse(text, "tocsin.yaml", folder), environ=environ, redactor=Redactor(), write=lambda _: None)
    running.start()
    return running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    opened = started(tmp_path, CONFIG.replace("http: {port: 0}\n", TOKENS), SECRETS)
    yield opened
    assert opened.stop()


def client(running: Running, name: str | None) -> httpx.Client:
    headers = {} if name is None else {"authorization": f"Bearer {SECRETS.get(name, name)}"}
    return http_client(base_url=running.http.url, headers=headers)


def test_a_silence_is_made_listed_ended_and_outlives_a_restart(running: Running, tmp_path: Path) -> None:
    with client(running, "OLGA") as olga:
        made = olga.post("/api/v1/silences", json=WANTED)
        assert made.status_code == 201
        body = made.json()
        assert (body["match"], body["owner"], body["state"]) == (WANTED["match"], "olga", "active")
        assert body["expires_at"] - body["starts_at"] == 7200.0
        assert [each["id"] for each in olga.get("/api/v1/silences").json()["silences"]] == ["filed", body["id"]]
        assert [each.id for each in running.store.mutes.declared().silences] == [body["id"]]
        assert running.stop()
        again = started(tmp_path, CONFIG.replace("http: {port: 0}\n", TOKENS), SECRETS)
    try:
        with client(again, "OLGA") as olga:
            assert len(olga.get("/api/v1/silences").json()["silences"]) == 2
            assert olga.delete(f"/api/v1/silences/{body['id']}").status_code == 200
            assert [each["id"] for each in olga.get("/api/v1/silences").json()["silences"]] == ["filed"]
            assert [each["id"] for each in olga.get("/api/v1/silences?state=expired").json()["silences"]] == [body["id"]]
            refused = olga.delete("/api/v1/silences/filed")
            assert refused.status_code == 409 and "silences.yaml:2:5: remove it there" in refused.json()["error"]
            assert olga.delete("/api/v1/silences/nothing").status_code == 404
            assert olga.get("/api/v1/silences?state=odd").status_code == 400
    finally:
        again.stop()


def test_windows(running: Running) -> None:
    wanted = {
        "name": "drain",
        "match": {"run": "*"},
        "reason": "nodes",
        "from": "22:00",
        "to": "07:00",
        "zone": "Europe/Berlin",
    }
    with client(running, "OLGA") as olga:
        assert olga.post("/api/v1/windows", json=wanted).status_code == 201
        assert olga.post("/api/v1/windows", json=wanted).status_code == 409
        (found,) = olga.get("/api/v1/windows").json()["windows"]
        assert (found["name"], found["hours"], found["owner"]) == ("drain", "22:00-07:00 Europe/Berlin", "olga")
        assert found["state"] in ("active", "pending") and 0.0 < found["ends_at"] - found["begins_at"] <= 10 * 3600.0
        assert olga.delete("/api/v1/windows/drain").status_code == 200
        assert olga.delete("/api/v1/windows/drain").status_code == 404
        refused = olga.post("/api/v1/windows", json=wanted | {"zone": "Europe/Berln"})
        assert refused.status_code == 400 and "did you mean 'Europe/Berlin'" in refused.json()["error"]


@pytest.mark.parametrize(
    ("name", "read", "change", "reload"),
    [
        (None, 401, 401, 401),
        ("wrong-token-of-nobody", 401, 401, 401),
        ("VERA", 200, 403, 403),
        ("OLGA", 200, 201, 403),
        ("ADAM", 200, 201, 202),
    ],
)
def test_roles(running: Running, name: str | None, read: int, change: int, reload: int) -> None:
    with client(running, name) as asking:
        for path in ("/", "/api/v1/runs", "/api/v1/alerts", "/api/v1/incidents", "/api/v1/silences", "/api/v1/windows"):
            assert asking.get(path).status_code == read, path
        assert asking.post("/api/v1/silences", json=WANTED).status_code == change
        assert asking.delete("/api/v1/silences/nothing").status_code == (404 if change == 201 else change)
        assert asking.post("/api/v1/reload").status_code == reload
        for path in ("/metrics", "/healthz"):
            assert asking.get(path).status_code == 200, path


def test_without_tokens_nobody_changes_anything(tmp_path: Path) -> None:
    running = started(tmp_path, CONFIG, {})
    try:
        with client(running, "OLGA") as asking:
            assert asking.get("/api/v1/silences").status_code == 200
            refused = asking.post("/api/v1/silences", json=WANTED)
            assert refused.status_code == 403 and "configure http.tokens" in refused.json()["error"]
            assert asking.post("/api/v1/reload").status_code == 202
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"match": {"sevrity": "page"}}, "$.match: unknown key 'sevrity' (did you mean 'severity'?)"),
        ({"match": {}}, "it would hold for every alert"),
        ({"reason": ""}, "$.reason: expected text"),
        ({"reason": None}, "$.reason is null"),
        ({"for": None}, "$.for is null"),
        ({"expires": "2999-01-01T00:00Z"}, "write one of `for`"),
        ({"for": "2 hours"}, "does not match"),
        ({"for": "365d"}, "put it into a file of silences"),
        ({"for": "0s"}, "over before it begins"),
        ({"starts": "tomorrow"}, "is no moment"),
        ({"match": {"layer": "3"}}, "$.match.layer"),
    ],
)
def test_what_is_refused_says_what_to_write(running: Running, change: dict[str, Any], why: str) -> None:
    with client(running, "OLGA") as olga:
        refused = olga.post("/api/v1/silences", json=WANTED | change)
        assert refused.status_code == 400
        assert why in refused.json()["error"]
        assert running.store.mutes.declared().silences == ()


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 30_000, "application/json", 400),
        (b'{"reason": "a", "reason": "b"}', "application/json", 400),
        (b'{"reason": NaN}', "application/json", 400),
    ],
)
def test_what_is_no_body(running: Running, content: bytes, kind: str, status: int) -> None:
    with client(running, "OLGA") as olga:
        assert olga.post("/api/v1/silences", content=content, headers={"content-type": kind}).status_code == status


def test_the_log_says_who_did_what_and_no_token(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), client(running, "OLGA") as olga:
        made = olga.post("/api/v1/silences", json=WANTED).json()["id"]
    assert f"olga made silence {made} of alert High, label team = a or b for 7200 s" in caplog.text
    assert "secret-token" not in caplog.text


def test_tokens_are_references_and_differ(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as refused:
        config.parse("http: {tokens: [{name: a, role: viewer, token: plain-text-secret}]}", "x.yaml")
    assert "write a reference" in str(refused.value) and "plain-text" not in str(refused.value)
    with pytest.raises(SecretError, match="the same token"):
        started(tmp_path, CONFIG.replace("http: {port: 0}\n", TOKENS), SECRETS | {"ADAM": SECRETS["OLGA"]})


def test_a_collector_that_does_not_come_to_it_changes_nothing() -> None:
    with Store() as store:
        jobs: list[Any] = []
        desk = MuteDesk(store.mutes, Muting(), jobs.append, Processed, lambda: 0.0, patience=0.0)
        with pytest.raises(Busy, match="nothing was changed"):
            desk.close_window("w")
        (job,) = jobs
        assert job() is None
        assert store.mutes.declared() == ((), ())

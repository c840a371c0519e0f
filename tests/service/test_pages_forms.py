"""What is said of an incident through its page, on a running collector: done once and told, or refused with a reason."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from alerts.matching import compiled
from alerts.model import Incident, Storm, Told
from rules.model import Severity
from service.http.pages import incident_forms
from service.store.model import Commit
from tests.kit.asking import http_client
from tests.kit.collecting import until
from tests.kit.commits import event
from tests.kit.pages import INCIDENT, INCIDENT_PATH, RUN, SECRETS, Collector, sick, sound
from tests.kit.pipelines import begin
from tests.kit.running import ALERTS

SILENCES = 'silences:\n  - {id: kept, match: {run: "other"}, owner: ada, reason: known, expires: "2999-01-01T00:00Z"}\n'


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    started = Collector(tmp_path_factory.mktemp("collector"))
    started.fires()
    yield started
    assert started.running.stop()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Collector]:
    """One that a test may change for good."""
    started = Collector(tmp_path)
    started.fires()
    yield started
    assert started.running.stop()


@contextmanager
def session(collector: Collector, name: str) -> Iterator[httpx.Client]:
    """A browser that is logged in."""
    with http_client(base_url=collector.url, headers={"accept": "text/html"}) as client:
        assert client.post("/login", data={"token": SECRETS[name]}).status_code == 303
        yield client


def proof(client: httpx.Client) -> str:
    found = re.search(r'name="proof" value="([^"]+)"', client.get("/").text)
    assert found is not None
    return found[1]


def test_said_done_and_shown(fresh: Collector, caplog: pytest.LogCaptureFixture) -> None:
    with session(fresh, "OLGA") as olga, caplog.at_level(logging.INFO):
        of_session = proof(olga)
        done = olga.post(f"{INCIDENT_PATH}/acknowledge", data={"proof": of_session, "for": "4h"})
        assert (done.status_code, done.headers["location"]) == (303, f"{INCIDENT_PATH}?said=acknowledged")
        page = olga.get(done.headers["location"]).text
        assert "Acknowledged. Reminders and escalation wait until then." in page
        assert "Acknowledged by <strong>olga</strong>" in page
        reason = {"reason": " known\n<b> ", "what": "high", "for": "1d"}
        done = olga.post(f"{INCIDENT_PATH}/silence", data={"proof": of_session, **reason})
        assert done.headers["location"] == f"{INCIDENT_PATH}?said=silenced"
        assert "known &lt;b&gt;" in olga.get("/").text
        done = olga.post(f"{INCIDENT_PATH}/silence", data={"proof": of_session, **reason, "what": ""})
        assert done.status_code == 303
        one, whole = sorted(fresh.running.store.mutes.declared().silences, key=lambda each: each.match.rule is None)
        assert (one.match.rule, one.match.run, one.owner, one.reason) == ("high", RUN, "olga", "known <b>")
        assert (whole.match.rule, whole.match.run) == (None, RUN)
        assert one.expires_at - one.starts_at == 86_400.0
        done = olga.post(f"{INCIDENT_PATH}/close", data={"proof": of_session})
        assert done.headers["location"] == f"{INCIDENT_PATH}?said=closed"
        fresh.told("closed by olga")
        page = olga.get(INCIDENT_PATH).text
        assert "<strong>Resolved by hand</strong> by <strong>olga</strong>" in page and "and fires on" in page
        assert f'action="{INCIDENT_PATH}/close"' not in page and f'action="{INCIDENT_PATH}/silence"' in page
        page = olga.get("/").text
        assert "resolved by hand by olga, fires on" in page
        assert "<title>1 open incident – Tocsin</title>" in page, "it waits for nobody"
    for line in (f"olga acknowledged incident {INCIDENT} for 14400 s", "olga silenced", f"olga closed incident {INCIDENT}"):
        assert line in caplog.text
    assert "secret-token" not in caplog.text and of_session not in caplog.text


@pytest.mark.parametrize(
    ("name", "what", "fields", "status", "why"),
    [
        ("VERA", "acknowledge", {"for": "2h"}, 403, "this needs operator"),
        ("VERA", "silence", {"for": "2h", "reason": "x"}, 403, "this needs operator"),
        ("VERA", "close", {}, 403, "this needs operator"),
        ("OLGA", "acknowledge", {}, 400, "no length of time"),
        ("OLGA", "acknowledge", {"for": "99d"}, 400, "no length of time"),
        ("OLGA", "silence", {"for": "2h", "reason": " \n"}, 400, "Say why"),
        ("OLGA", "silence", {"for": "2h", "reason": "x" * 501}, 400, "Say why"),
        ("OLGA", "silence", {"for": "2h", "reason": "x", "what": "*"}, 400, "no alert of the incident"),
        ("OLGA", "silence", {"for": "x", "reason": "x"}, 400, "no length of time"),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(
    collector: Collector, name: str, what: str, fields: dict[str, str], status: int, why: str
) -> None:
    with session(collector, name) as client:
        refused = client.post(f"{INCIDENT_PATH}/{what}", data={"proof": proof(client), **fields})
        assert (refused.status_code, why in refused.text) == (status, True)
        assert f'href="{INCIDENT_PATH}"' in refused.text, "and leads back"
    _is_as_it_was(collector)


@pytest.mark.parametrize("what", ["acknowledge", "silence", "close"])
@pytest.mark.parametrize("given", ["", "x", "of another session"])
def test_a_form_that_is_not_of_this_session(collector: Collector, what: str, given: str) -> None:
    with session(collector, "OLGA") as olga, session(collector, "OLGA") as other:
        text = proof(other) if given == "of another session" else given
        refused = olga.post(f"{INCIDENT_PATH}/{what}", data={"proof": text, "for": "2h", "reason": "x"})
        assert refused.status_code == 403 and "not of your session" in refused.text
    _is_as_it_was(collector)


@pytest.mark.parametrize("what", ["acknowledge", "silence", "close"])
def test_without_a_session_there_is_the_login_and_a_bearer_token_is_none(collector: Collector, what: str) -> None:
    bearer = {"authorization": f"Bearer {SECRETS['OLGA']}"}
    for headers in ({}, bearer):
        with http_client(collector.url) as anybody:
            answer = anybody.post(f"{INCIDENT_PATH}/{what}", data={"for": "2h", "reason": "x"}, headers=headers)
        assert answer.status_code == 401
        assert f'name="next" value="{INCIDENT_PATH}"' in answer.text
    _is_as_it_was(collector)


@pytest.mark.parametrize("what", ["acknowledge", "silence", "close"])
def test_of_an_incident_that_is_not_there_or_over_nothing_can_be_said(collector: Collector, what: str) -> None:
    over = "/incidents/brief%231"
    collector.sends(begin("brief"), *sound(1, 40, "brief"), *sick(41, 42, "brief"), *sound(43, 44, "brief"), run="brief")
    with session(collector, "OLGA") as olga:
        until(lambda: "<strong>Over</strong>" in olga.get(over).text, "it is over")
        assert "there is nothing to do" in olga.get(over).text
        fields = {"proof": proof(olga), "for": "2h", "reason": "x"}
        for path in ("/incidents/nothing%3Cb%3E", over):
            answer = olga.post(f"{path}/{what}", data=fields)
            if what == "silence" and path == over:
                assert answer.status_code == 303, "its run may fall ill again"
                continue
            assert answer.status_code == 404 and "There is no such open incident" in answer.text
            assert "nothing&lt;b" not in answer.text, "what was asked for is not repeated"


def test_a_storm_is_not_silenced_as_it_stands_for_other_runs(collector: Collector) -> None:
    alert = Told(alert="TocsinStorm", id="tocsin-storm", severity=Severity.PAGE, layer=0)
    storm = Incident(
        id="x.storm#1", run="x.storm", number=1, opened_at=1.0, opened_step=0, alerts={"s": alert}, kind="storm", storm=Storm()
    )
    collector.running.store.commit(Commit([], 5.0, incidents=[storm]))
    with session(collector, "OLGA") as olga:
        page = olga.get("/incidents/x.storm%231").text
        assert "A storm cannot be silenced" in page and "/silence" not in page
        fields = {"proof": proof(olga), "for": "2h", "reason": "x", "what": ""}
        assert olga.post("/incidents/x.storm%231/silence", data=fields).status_code == 400


@pytest.mark.parametrize("rule", ["", "ru[le]*"])
def test_a_silence_is_for_this_run_alone_whatever_signs_are_in_its_name(rule: str) -> None:
    told = Told(alert="High", id="ru[le]*", severity=Severity.PAGE, layer=1)
    found = Incident(id="abl-*[1]?#1", run="abl-*[1]?", number=1, opened_at=1.0, opened_step=0, alerts={"f": told})
    holds = compiled(incident_forms._match(found, rule)).holds
    assert holds(event("abl-*[1]?", "High", id="ru[le]*"))
    assert not holds(event("abl-x1y", "High", id="ru[le]*")), "the signs of patterns are signs of the name"
    assert holds(event("abl-*[1]?", "Other", id="rule")) == (rule == "")


# ---- links


def test_the_page_has_the_links_of_the_messages(tmp_path: Path) -> None:
    links = """links:
  incident: "https://tocsin.example/incidents/{incident}"
  runbook: "https://runbooks.example/{runbook}"
  panel: "https://grafana.example/d/run?var-run={run}&step={step}&alert={alert}"
"""
    collector = Collector(tmp_path, alerts=ALERTS + links)
    own = {"panel": "https://evil.example/", "wandb": "https://wandb.example/x"}
    first = json.dumps({"v": 1, "kind": "run", "run": RUN, "time": 0.0, "links": own}).encode()
    collector.sends(first, *sound(1, 40), *sick(41, 42))
    collector.told("High at step 42")
    with session(collector, "VERA") as vera:
        page = vera.get(INCIDENT_PATH).text
        panel = "https://grafana.example/d/run?var-run=team%2Fabl%20%231&amp;step=42&amp;alert=High"
        assert f'<a href="{panel}"' in page and '<a href="https://wandb.example/x"' in page
        assert "evil.example" not in page, "a run does not take the place of what operators have named"
        assert "tocsin.example" not in page, "that is this page"
        assert "runbooks.example" not in page, "the rule names none"
        (tmp_path / "alerts.yaml").write_text(ALERTS + links.replace("grafana.example", "moved.example"))
        assert collector.running.reload() == []
        assert "https://moved.example/d/run" in vera.get(INCIDENT_PATH).text
    assert collector.running.stop()


# ---- lifting


def lifted(client: httpx.Client, **fields: str) -> httpx.Response:
    return client.post("/mutes/lift", data={"proof": proof(client), **fields})


def test_what_was_made_here_is_lifted_from_every_page_that_shows_it(fresh: Collector, caplog: pytest.LogCaptureFixture) -> None:
    with session(fresh, "OLGA") as olga, session(fresh, "VERA") as vera, caplog.at_level(logging.INFO):
        of_session = proof(olga)
        olga.post(f"{INCIDENT_PATH}/silence", data={"proof": of_session, "reason": "known", "what": "high", "for": "1d"})
        window = {"name": "drain", "match": {"run": "*"}, "reason": "x", "from": "00:00", "to": "24:00", "zone": "UTC"}
        bearer = {"authorization": f"Bearer {SECRETS['OLGA']}"}
        with http_client(fresh.url, headers=bearer) as program:
            assert program.post("/api/v1/windows", json=window).status_code == 201
        (made,) = fresh.running.store.mutes.declared().silences
        for path in ("/", INCIDENT_PATH):
            assert olga.get(path).text.count('action="/mutes/lift"') == 2, path
            page = vera.get(path).text
            assert "/mutes/lift" not in page, path
            assert path != "/" or (made.id in page and "maintenance drain" in page), "who may not lift it may read of it"
        done = lifted(olga, kind="silence", key=made.id, back=INCIDENT_PATH)
        assert (done.status_code, done.headers["location"]) == (303, f"{INCIDENT_PATH}?said=lifted")
        assert "Lifted. What still fires is told now." in olga.get(done.headers["location"]).text
        done = lifted(olga, kind="window", key="drain", back="//elsewhere.example/")
        assert (done.status_code, done.headers["location"]) == (303, "/?said=lifted")
        declared = fresh.running.store.mutes.declared()
        assert declared.silences[0].expires_at < made.expires_at and not declared.windows
        assert "/mutes/lift" not in olga.get("/").text
    assert f"olga lifted silence {made.id}" in caplog.text and "olga lifted window drain" in caplog.text


@pytest.mark.parametrize(
    ("name", "fields", "status", "why"),
    [
        ("VERA", {"kind": "silence"}, 403, "this needs operator"),
        ("OLGA", {"kind": "silence", "key": "nothing<b>"}, 404, "It is not there"),
        ("OLGA", {"kind": "window", "key": "nothing<b>"}, 404, "It is not there"),
        ("OLGA", {"kind": "silence"}, 404, "It is not there"),
        ("OLGA", {"kind": "receiver"}, 400, "nothing that could be lifted"),
        ("OLGA", {}, 400, "nothing that could be lifted"),
        ("OLGA", {"kind": "silence", "key": "kept"}, 409, "remove it there"),
        ("OLGA", {"kind": "silence", "proof": "x"}, 403, "not of your session"),
    ],
)
def test_what_cannot_be_lifted_says_why(tmp_path: Path, name: str, fields: dict[str, str], status: int, why: str) -> None:
    (tmp_path / "silences.yaml").write_text(SILENCES)
    collector = Collector(tmp_path, alerts=f"{ALERTS}silences: silences.yaml\n")
    with session(collector, name) as client:
        before = collector.running.store.mutes.declared()
        assert "silences.yaml" in client.get("/").text and 'value="kept"' not in client.get("/").text
        refused = lifted(client, **fields)
        assert (refused.status_code, why in refused.text) == (status, True)
        assert "nothing&lt;b" not in refused.text, "what was asked for is not repeated"
        assert collector.running.store.mutes.declared() == before
    with http_client(collector.url) as anybody:
        answer = anybody.post("/mutes/lift", data={"x": "y", **fields}, headers={"authorization": f"Bearer {SECRETS['OLGA']}"})
        assert answer.status_code == 401, "a form is for sessions"
    assert collector.running.stop()


def _is_as_it_was(collector: Collector) -> None:
    found = collector.running.store.incident(INCIDENT)
    assert found is not None and found.acknowledged is None and found.closed_at is None
    assert not any(told.closed_by for told in found.alerts.values())
    assert all(each.match.run != RUN for each in collector.running.store.mutes.declared().silences)

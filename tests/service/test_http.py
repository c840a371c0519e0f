"""The HTTP service over a real socket and a store in memory."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from msgspec.structs import replace

from collector.model import RunStatus
from rules.model import EventState, Severity
from service.http import guard
from service.http.app import build
from service.http.server import CannotListen, HttpServer
from service.stop_requests import STATE, Stop, encode
from service.store import schema
from service.store.model import Advance, Commit, StateRow
from service.store.store import Store
from tests.kit.asking import http_client
from tests.kit.commits import event, incident, run_row
from tests.kit.watched import Watched
from tocsin.control import StopRequest


@pytest.fixture
def server(store: Store, watched: Watched) -> Iterator[HttpServer]:
    started = HttpServer("127.0.0.1", 0)
    started.start(build(store, watched))
    yield started
    started.stop()


@pytest.fixture
def client(server: HttpServer) -> Iterator[httpx.Client]:
    with http_client(base_url=server.url) as opened:
        yield opened


@pytest.fixture
def filled(store: Store) -> Store:
    rows = [run_row("r", 7), run_row("<b>", 3, labels={"team": "<script>"}), run_row("done", 9, status=RunStatus.FINISHED)]
    events = [
        event("r", value=float("nan"), summary="grad norm & more"),
        event("r", "Late", severity=Severity.WARNING, state=EventState.EXPLAINED, explained_by="GradNormTenfold"),
        event(
            "<b>", "Odd", severity=Severity.STOP, layer=1, labels={"component": "<img>"}, summary="<script>alert(1)</script>"
        ),
        event("done", state=EventState.FIRING),
        event("done", state=EventState.RESOLVED, step=9),
        event("tocsin", "TocsinRejected", severity=Severity.WARNING),
    ]
    store.commit(Commit([Advance("p/0", None, 1)], 5.0, runs=rows, events=events, incidents=[incident()]))
    return store


def test_metrics_pass_through(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert (answer.status_code, answer.text) == (200, "tocsin_build_info 1\n")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_health_and_readiness_say_why(client: httpx.Client, watched: Watched) -> None:
    assert client.get("/healthz").json() == {"ok": True, "reasons": []}
    watched.waiting = ["kafka: no broker answers"]
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["kafka: no broker answers"])
    watched.bad = ["the evaluation thread is dead"]
    assert client.get("/healthz").status_code == 503
    assert len(client.get("/readyz").json()["reasons"]) == 2


def test_runs(client: httpx.Client, filled: Store) -> None:
    runs = {run["run"]: run for run in client.get("/api/v1/runs").json()["runs"]}
    assert runs["r"] == {
        "run": "r",
        "state": "running",
        "attempt": 1,
        "step": 7,
        "record": 7,
        "last_record_at": 7.0,
        "labels": {"team": "a"},
        "firing": 2,
        "stop": None,
    }
    assert [run["run"] for run in client.get("/api/v1/runs?state=finished").json()["runs"]] == ["done"]
    assert len(client.get("/api/v1/runs?limit=1").json()["runs"]) == 1


def test_what_became_of_a_request_to_stop_is_with_its_run_and_its_incident(client: httpx.Client, filled: Store) -> None:
    request = StopRequest(
        run="r", id="s1", rule="bad", step=7, reason="Bad: it is", action="pause", requested_at=50.0, expires_at=3_650.0
    )
    open_ = {found.run: found.id for found in filled.open_incidents()}
    waiting = Stop(request=request, incident=open_["r"], fingerprint="f", attempt=1, unanswered=2)
    done = replace(waiting, acknowledged_at=60.0, acknowledged_step=9, over="the job acknowledged at step 9")
    expected = {
        "id": "s1",
        "rule": "bad",
        "step": 7,
        "reason": "Bad: it is",
        "action": "pause",
        "requested_at": 50.0,
        "expires_at": 3_650.0,
        "acknowledged_at": None,
        "acknowledged_step": None,
        "void": False,
        "over": "",
        "unanswered": 2,
        "earlier": [],
    }
    more = {"acknowledged_at": 60.0, "acknowledged_step": 9, "over": "the job acknowledged at step 9"}
    for stop, shown in ((waiting, expected), (done, expected | more)):
        filled.commit(Commit([], 60.0, states=[StateRow("r", STATE, "", encode(stop))]))
        runs = {run["run"]: run["stop"] for run in client.get("/api/v1/runs").json()["runs"]}
        assert runs == {name: shown if name == "r" else None for name in runs} and "r" in runs
        incidents = {found["run"]: found["stop"] for found in client.get("/api/v1/incidents").json()["incidents"]}
        assert incidents == {name: shown if name == "r" else None for name in incidents} and "r" in incidents
    other = replace(waiting, incident="r#0")
    filled.commit(Commit([], 60.0, states=[StateRow("r", STATE, "", encode(other))]))
    assert client.get(f"/api/v1/incidents/{quote(open_['r'])}").json()["stop"] is None, "made in another incident"


def test_alerts_firing_and_history(client: httpx.Client, filled: Store) -> None:
    answer = client.get("/api/v1/alerts").json()
    assert len(answer["firing"]) == 4
    assert [line["sequence"] for line in answer["history"]] == [6, 5, 4, 3, 2, 1]
    of_run = client.get("/api/v1/alerts?run=r&severity=page").json()
    assert [(line["alert"], line["value"]) for line in of_run["firing"]] == [("GradNormTenfold", "nan")]
    assert [line["state"] for line in client.get("/api/v1/alerts?state=resolved").json()["history"]] == ["resolved"]
    assert [line["sequence"] for line in client.get("/api/v1/alerts?before=3&limit=1").json()["history"]] == [2]
    json.loads(client.get("/api/v1/alerts").text, parse_constant=pytest.fail)


def test_incidents(client: httpx.Client, filled: Store) -> None:
    (found,) = client.get("/api/v1/incidents").json()["incidents"]
    assert (found["id"], found["alerts"][0]["alert"]) == ("r#1", "GradNormTenfold")


@pytest.mark.parametrize(
    "query",
    [
        "runs?state=odd",
        "runs?limit=0",
        "runs?limit=x",
        "runs?limit=100000",
        "runs?limit=" + "9" * 4000,
        "alerts?severity=loud",
        "alerts?before=-1",
        "alerts?limit=²",
    ],
)
def test_bad_parameters_are_told(client: httpx.Client, query: str) -> None:
    answer = client.get(f"/api/v1/{query}")
    assert answer.status_code == 400
    assert "expected" in answer.json()["error"]


def test_what_is_not_there_and_what_is_not_allowed(client: httpx.Client) -> None:
    assert client.get("/api/v2/").status_code == 404
    assert client.post("/api/v1/runs").status_code == 405
    assert "error" in client.get("/nothing").json()


def test_requests_have_limits(client: httpx.Client) -> None:
    assert client.post("/", content=b"x" * (guard.MAX_BODY_BYTES + 1)).status_code == 413
    assert client.post("/", content=iter([b"x"])).status_code == 413
    assert client.get("/?" + "x" * guard.MAX_TARGET_BYTES).status_code == 414


def test_a_failure_tells_nothing_of_the_inside(client: httpx.Client, watched: Watched) -> None:
    watched.fails = True
    answer = client.get("/metrics")
    assert (answer.status_code, answer.text) == (500, "internal error")


def test_the_socket_is_ours_alone_and_closed_at_the_end(server: HttpServer, client: httpx.Client) -> None:
    assert "server" not in client.get("/healthz").headers
    with pytest.raises(CannotListen, match="cannot listen on"):
        HttpServer("127.0.0.1", server.port)
    assert server.alive
    server.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


def test_a_reload_says_every_fault(client: httpx.Client, watched: Watched) -> None:
    answer = client.post("/api/v1/reload")
    assert (answer.status_code, answer.json()) == (202, {"reloaded": True, "errors": [], "waits_for_restart": ""})
    watched.faults, watched.stale = ["rules.yaml:3:5: one", "rules.yaml:4:5: two"], "rules in tocsin.yaml changed"
    answer = client.post("/api/v1/reload")
    said = {"reloaded": False, "errors": watched.faults, "waits_for_restart": watched.stale}
    assert (answer.status_code, answer.json()) == (422, said)
    assert watched.reloads == 2


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:9464"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-origin"},
    ],
)
def test_a_web_page_cannot_reload(client: httpx.Client, watched: Watched, headers: dict[str, str]) -> None:
    assert client.post("/api/v1/reload", headers=headers).status_code == 403
    assert client.get("/api/v1/reload").status_code == 405
    assert watched.reloads == 0
    assert client.get("/metrics", headers=headers).status_code == 200, "reading is no change"


def test_a_store_that_cannot_be_read_is_503(client: httpx.Client, filled: Store) -> None:
    with filled.database.write() as connection:
        schema.metadata.drop_all(connection)
    for path in ("/", "/api/v1/runs", "/api/v1/alerts", "/api/v1/incidents", "/api/v1/incidents/r%231"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (503, {"error": "the store cannot be read now"}), path
    assert client.get("/healthz").status_code == 200

"""The pages of runs, and what they say of requests to stop."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from collector.runs import Runs
from service.http.pages.run_reader import AT_LEAST_SECONDS, RunReader
from service.stop_requests import STATE, Earlier, Stop, encode
from service.store import reading
from service.store.model import Advance, Commit, StateRow
from service.store.store import Store
from tests.kit import pipelines
from tests.kit.commits import run_row
from tests.kit.page_clients import EVIL, fill, reader
from tests.kit.watched import Watched
from tocsin.control import StopRequest


@pytest.fixture
def client(store: Store, watched: Watched) -> TestClient:
    return reader(store, watched)


# ---- runs


def test_a_run_is_shown_from_what_the_store_holds_of_it(watched: Watched) -> None:
    bench = pipelines.Bench()
    declared = {
        "v": 1,
        "kind": "run",
        "run": "a/b #1",
        "time": 0.0,
        "labels": {"team": EVIL},
        "config": {"lr": 0.1, "hub": {"api_key": "the-secret", "name": "<x>"}},
        "links": {"board": "https://wandb.example/run?a=1", "trap": "javascript:alert(1)"},
    }
    values = [1.0] * 30 + [20.0, 21.0, float("nan")]
    bench.push(json.dumps(declared).encode(), *pipelines.steps("a/b #1", values), every=1.0)
    bench.read()
    now = [100.0]
    shown = RunReader(bench.store, Runs(), "received", lambda: now[0])
    client = reader(bench.store, watched, runs_shown=shown)
    page = client.get("/runs/a%2Fb%20%231").text
    assert "Run a/b #1</h1>" in page
    assert 'href="/incidents/a%2Fb%20%231%231"' in page and "High" in page
    assert "grad_norm: steps 1 to 33, newest nan" in page and "1 value not finite (crosses)" in page
    assert '<a href="https://wandb.example/run?a=1" rel="noopener noreferrer nofollow">board</a>' in page
    assert "trap: javascript:alert(1)" in page and 'href="javascript' not in page
    assert "<dt>lr</dt><dd>0.1</dd>" in page and "&lt;x&gt;" in page
    assert "the-secret" not in page and "<dt>hub.api_key</dt><dd>***</dd>" in page
    assert EVIL not in page and "<x>" not in page
    row = reading.run(bench.store.database, "a/b #1")
    assert row is not None and shown.read(row) is shown.read(row), "made once per record"
    bench.push(*pipelines.steps("a/b #1", [1.0], first=34), every=1.0)
    bench.read()
    now[0] += AT_LEAST_SECONDS - 1.0
    assert "grad_norm: steps 1 to 33" in client.get("/runs/a%2Fb%20%231").text, "not more often than every few seconds"
    now[0] += 1.0
    assert "grad_norm: steps 1 to 34" in client.get("/runs/a%2Fb%20%231").text
    bench.shut()


def test_a_run_that_is_not_there_is_told_without_its_name(client: TestClient) -> None:
    answer = client.get("/runs/%3Cscript%3Enobody")
    assert answer.status_code == 404
    assert "There is no such run" in answer.text and "nobody" not in answer.text


def test_a_run_without_a_reader_or_a_readable_checkpoint_has_a_page(store: Store, watched: Watched) -> None:
    fill(store)
    store.commit(Commit([Advance("p/0", 1, 2)], 6.0, runs=[run_row("r", 8, checkpoint=b"no checkpoint")]))
    for shown in (None, RunReader(store, Runs(), "received")):
        page = reader(store, watched, runs_shown=shown).get("/runs/r").text
        assert "There is nothing to draw" in page and "GradNormTenfold" in page


def test_of_many_runs_the_last_ones_are_kept() -> None:
    with Store() as opened:
        rows = [run_row(f"r{n}", 1) for n in range(12)]
        opened.commit(Commit([Advance("p/0", None, 1)], 6.0, runs=rows))
        shown = RunReader(opened, Runs(), "received")
        first = shown.read(rows[0])
        assert shown.read(rows[0]) is first
        for row in rows[1:]:
            shown.read(row)
        assert shown.read(rows[0]) is not first
        assert shown.read(run_row("nobody", 1)) is None


# ---- requests to stop


def test_the_pages_say_what_became_of_a_request_to_stop(client: TestClient, store: Store) -> None:
    fill(store)
    request = StopRequest(
        run="r", id="s1", rule="<b>", step=7, reason="", action="pause", requested_at=0.0, expires_at=3_600.0
    )  # fmt: skip
    waiting = Stop(request=request, incident="r#1", fingerprint="f", attempt=1)
    answered = replace(waiting, acknowledged_at=5.0, acknowledged_step=9, over="the job acknowledged at step 9")
    checkpoint = replace(request, action="checkpoint_and_stop")
    said = {
        "<strong>It has not acknowledged</strong>; the request is good until": waiting,
        "It acknowledged at step 9.": answered,
        "nobody waits for it any more: run &lt;failed&gt;.": replace(waiting, void=True, over="run <failed>"),
        "asked to write a checkpoint and stop at step 7 (rule &lt;b&gt;).": replace(waiting, request=checkpoint),
    }
    for text, stop in said.items():
        store.commit(Commit([], 6.0, states=[StateRow("r", STATE, "", encode(stop))]))
        for path in ("/runs/r", "/incidents/r%231"):
            page = client.get(path).text
            assert "The job was asked to " in page and text in page, (path, text)
    store.commit(Commit([], 6.0, states=[StateRow("r", STATE, "", encode(replace(waiting, incident="r#0")))]))
    assert "The job was asked to" not in client.get("/incidents/r%231").text, "made in another incident"
    assert "The job was asked to" not in client.get("/runs/done").text


def test_the_pages_and_the_api_remember_the_requests_before_the_newest(client: TestClient, store: Store) -> None:
    fill(store)
    request = StopRequest(run="r", id="s3", rule="x", step=70, reason="", action="pause", requested_at=9.0, expires_at=3_600.0)
    one = Earlier(id="s1", incident="r#0", rule="<b>", step=7, action="pause", requested_at=0.0, over="it expired <i>")
    two = replace(one, id="s2", incident="r#1", step=8, action="checkpoint_and_stop", over="the job acknowledged at step 9")
    stop = Stop(request=request, incident="r#1", fingerprint="f", attempt=1, earlier=(one, two))
    store.commit(Commit([], 6.0, states=[StateRow("r", STATE, "", encode(stop))]))
    page = client.get("/runs/r").text
    first, second = page.index("asked to write a checkpoint and stop at step 8"), page.index("asked to pause at step 7 ")
    assert page.index("at step 70") < first < second, "the newest first"
    assert "(rule &lt;b&gt;)" in page and "it expired &lt;i&gt;" in page and 'href="/incidents/r%230"' in page
    page = client.get("/incidents/r%231").text
    assert "the job acknowledged at step 9" in page and "at step 7 " not in page, "that was made in another incident"
    (run,) = [each for each in client.get("/api/v1/runs").json()["runs"] if each["run"] == "r"]
    assert [each["id"] for each in run["stop"]["earlier"]] == ["s1", "s2"]

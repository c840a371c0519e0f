"""From a stop rule to a job that stops: real collector, real jobs, through Kafka and through a spool."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from alerts.delivery import RetryPolicy
from alerts.pool import DeliveryPool
from alerts.redaction import Redactor
from alerts.secrets import Secrets
from service import config, stop_requests
from service import control as publishing
from service.store.model import Commit, StateRow
from service.store.store import Store
from tests.kit.collecting import Process, collecting, until
from tests.kit.commits import delivery, event
from tests.kit.kafka import Broker
from tests.kit.stopping_job import Job
from tocsin import control, spool

RULE = "logprob-gap-stop"


class Place:
    """Where records and requests go: a cluster's topics, or a folder."""

    def __init__(self, folder: Path, broker: Broker | None = None, control_topic: str = "") -> None:
        self.folder = folder
        self._broker = broker
        self.config = ""
        self.where = {"spool": str(folder / "spool")}
        if broker is not None:
            self.topic = broker.topic("records")
            self.control = control_topic or broker.topic("control")
            names = f"topic: {self.topic}, group: {self.topic}, control_topic: {self.control}"
            self.config = f"source: {{kafka: {{bootstrap: ['{broker.bootstrap}'], {names}}}}}\n"
            self.where = {"kafka": broker.bootstrap, "topic": self.topic, "control": self.control}

    def requests(self, run: str) -> list[control.StopRequest]:
        """What lies there for a run."""
        if self._broker is None:
            found = spool.read_control(self.folder / "spool", run)
            return [] if found is None else [found]
        return [control.decode(message.value) for message in self._broker.read(self.control) if message.key == run.encode()]


@pytest.fixture(params=["spool", pytest.param("kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.getfixturevalue("kafka_broker") if request.param == "kafka" else None)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Starts jobs; none outlives the test."""
    started: list[Job] = []

    def start(place: Place, run: str, **arguments: Any) -> Job:
        started.append(Job(tmp_path / f"job-{len(started)}", place.where, run=run, **arguments))
        return started[-1]

    yield start
    for job in started:
        job.end()


def asked(collector: Process, run: str) -> dict[str, Any]:
    """The request to a run as the API shows it; empty for none."""
    return collector.run(run).get("stop") or {}


def history(collector: Process, run: str, alert: str) -> list[dict[str, Any]]:
    """Oldest first."""
    found = json.loads(collector.get(f"/api/v1/alerts?run={run}&limit=1000").text)["history"]
    return [event for event in reversed(found) if event["alert"] == alert]


def rows(folder: Path) -> list[tuple[str, str, int]]:
    """Id, status and attempts of the requests' deliveries."""
    with closing(sqlite3.connect(f"file:{folder / 'tocsin.db'}?mode=ro", uri=True)) as connection:
        query = "select id, status, attempts from deliveries where receiver = 'tocsin:control' order by sequence"
        return connection.execute(query).fetchall()


def test_a_job_that_opted_in_stops_with_a_checkpoint(place: Place, jobs: Callable[..., Job], tmp_path: Path) -> None:
    with collecting(tmp_path, place.config) as collector:
        job = jobs(place, "sick", on_stop="checkpoint_and_stop")
        heard = job.heard()
        ended = job.wait()
        (fired, *_) = history(collector, "sick", "LogprobGapStop")
        assert (heard["rule"], heard["action"]) == (RULE, "checkpoint_and_stop")
        assert heard["reason"].startswith("LogprobGapStop: ") and fired["summary"] in heard["reason"]
        assert fired["step"] == 5 < heard["step"] == ended["step"]
        assert (job.folder / "checkpoint").read_text() == str(heard["step"])
        until(lambda: collector.run("sick").get("state") == "stopped", "the end of the run")
        request = asked(collector, "sick")
        assert (request["id"], request["acknowledged_step"], request["void"]) == (heard["id"], heard["step"], True)
        assert request["over"] == f"the job acknowledged at step {heard['step']}"
        incident = json.loads(collector.get("/api/v1/incidents/sick%231").text)
        assert incident["stop"] == request and incident["closed_at"] is not None
        assert [found.id for found in place.requests("sick")] == [heard["id"]]
        collector.settled()
        assert rows(tmp_path) == [(heard["id"], "sent", 1)]
        assert history(collector, "sick", "StopUnacknowledged") == []


def test_a_job_that_pauses_goes_on_and_is_not_asked_again_after_a_restart_of_the_collector(
    place: Place, jobs: Callable[..., Job], tmp_path: Path
) -> None:
    with collecting(tmp_path, place.config) as collector:
        job = jobs(place, "sick", on_stop="pause")
        heard = job.heard()
        assert heard["action"] == "pause"
        until(lambda: asked(collector, "sick").get("acknowledged_step") == heard["step"], "the acknowledgement")
        collector.settled()
        collector.end(signal.SIGKILL)
    with collecting(tmp_path, place.config) as collector:
        job.go_on()
        collector.wait_for_step("sick", heard["step"] + 20)
        job.end()
        assert asked(collector, "sick")["id"] == heard["id"]
        assert [event["state"] for event in history(collector, "sick", "LogprobGapStop")] == ["firing", "resolved"]
        assert history(collector, "sick", "StopUnacknowledged") == []
        assert [found.id for found in place.requests("sick")] == [heard["id"]]
        assert rows(tmp_path) == [(heard["id"], "sent", 1)]


def test_a_job_that_did_not_opt_in_is_left_alone(place: Place, jobs: Callable[..., Job], tmp_path: Path) -> None:
    with collecting(tmp_path, place.config) as collector:
        job = jobs(place, "free", steps=25, pause=0.1)
        assert job.wait() == {"said": "ended", "step": 25, "status": "finished"}
        until(lambda: collector.run("free").get("state") == "finished", "the end of the run")
        assert [event["step"] for event in history(collector, "free", "LogprobGapStop")] == [5, 25]
        assert asked(collector, "free") == {} and place.requests("free") == [] and rows(tmp_path) == []


def test_a_job_that_never_answers_is_a_page_until_it_ends(place: Place, jobs: Callable[..., Job], tmp_path: Path) -> None:
    with collecting(tmp_path, place.config) as collector:
        job = jobs(place, "deaf", on_stop="pause", deaf=True)
        (fired, *_) = until(lambda: history(collector, "deaf", "StopUnacknowledged"), "the page")
        collector.settled()
        collector.end(signal.SIGKILL)
    with collecting(tmp_path, place.config) as collector:
        request = asked(collector, "deaf")
        assert fired["severity"] == "page" and fired["step"] > request["step"] + 3 and request["acknowledged_at"] is None
        assert [found.id for found in place.requests("deaf")] == [request["id"]]
        collector.wait_for_step("deaf", fired["step"] + 10)
        assert len(history(collector, "deaf", "StopUnacknowledged")) == 1
        job.end()
        (successor := jobs(place, "deaf", attempt=2, first=1000, sick_from=10_000, steps=5)).wait()
        until(lambda: len(history(collector, "deaf", "StopUnacknowledged")) == 2, "the end of the page")
        assert history(collector, "deaf", "StopUnacknowledged")[1]["reason"] == "the run was started again"
        assert successor.said("heard") is None


def test_the_next_start_of_a_job_that_died_is_asked_on_its_own_account(
    place: Place, jobs: Callable[..., Job], tmp_path: Path
) -> None:
    with collecting(tmp_path, place.config) as collector:
        first = jobs(place, "again", on_stop="checkpoint_and_stop", deaf=True)
        until(lambda: rows(tmp_path)[0:1] and rows(tmp_path)[0][1] == "sent", "the request has left")
        first.end()
        old = asked(collector, "again")["id"]
        # Well at first: windows begin anew with the attempt, and what fired through the restart has to clear before it asks.
        second = jobs(place, "again", on_stop="checkpoint_and_stop", attempt=2, first=100, sick_from=112)
        heard = second.heard()
        assert heard["id"] != old and heard["step"] > 112
        assert second.wait()["status"] == "stopped"
        until(lambda: asked(collector, "again")["acknowledged_at"] is not None, "the acknowledgement")
        collector.settled()
        assert {found.id for found in place.requests("again")} >= {heard["id"]}
        assert [row[1] for row in rows(tmp_path)] == ["sent", "sent"]


@pytest.mark.kafka
def test_a_request_outlives_a_collector_that_is_killed_and_a_broker_that_is_away_before_it_can_leave(
    private_broker: Broker, jobs: Callable[..., Job], tmp_path: Path
) -> None:
    """The control topic is not there when the request is to leave; then the collector dies, then the broker."""
    place = Place(tmp_path, private_broker, control_topic="later-2")  # the name that the second topic gets
    with collecting(tmp_path, place.config) as collector:
        job = jobs(place, "sick", on_stop="checkpoint_and_stop", pause=0.5)
        until(lambda: asked(collector, "sick"), "the request is committed")
        planned = asked(collector, "sick")
        until(lambda: rows(tmp_path)[0][2] > 0, "it was tried")
        collector.end(signal.SIGKILL)
    assert rows(tmp_path)[0][:2] in [(planned["id"], "pending"), (planned["id"], "sending")]
    private_broker.stop()
    private_broker.start()
    assert private_broker.topic("later") == place.control
    with collecting(tmp_path, place.config) as collector:
        heard = job.heard()
        assert (heard["id"], heard["rule"]) == (planned["id"], RULE)
        job.wait()
        until(lambda: asked(collector, "sick")["acknowledged_at"] is not None, "the acknowledgement")
        assert {found.id for found in place.requests("sick")} == {planned["id"]}
        collector.settled()
        assert [row[:2] for row in rows(tmp_path)] == [(planned["id"], "sent")]


@pytest.mark.kafka
def test_a_broker_that_is_away_when_the_request_is_to_leave_gets_it_when_it_is_back(
    private_broker: Broker, tmp_path: Path
) -> None:
    place = Place(tmp_path, private_broker)
    settings = config.parse(place.config, "tocsin.yaml", tmp_path)
    now = time.time()
    request = control.StopRequest(
        run="r", id="s1", rule=RULE, step=7, reason="why", action="pause", requested_at=now, expires_at=now + 600.0
    )
    stop = stop_requests.Stop(request=request, incident="r#1", fingerprint="r/x", attempt=1)
    with Store(f"sqlite:///{tmp_path / 'tocsin.db'}") as store:
        lane = publishing.lane(settings, Secrets(Redactor(), {}, tmp_path), store, time.time)
        pool = DeliveryPool([lane], store.deliveries, clock=time.time, policy=RetryPolicy(cap=1.0))
        private_broker.stop()
        pool.start()
        states = [StateRow("r", stop_requests.STATE, "", stop_requests.encode(stop))]
        waiting = delivery("s1", receiver=stop_requests.RECEIVER, of=event(run="r", event_time=now))
        store.commit(Commit([], now, states=states, deliveries=[waiting]))
        pool.notify([stop_requests.RECEIVER])
        until(lambda: rows(tmp_path)[0][2] > 1, "it is tried again and again")
        assert rows(tmp_path)[0][1] in ("pending", "sending")
        private_broker.start()
        until(lambda: rows(tmp_path)[0][1] == "sent", "it has left")
        assert pool.stop(30.0)
        assert [found.id for found in place.requests("r")] == ["s1"]

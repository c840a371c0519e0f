"""How a stop request leaves: as the store holds it at that moment, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from alerts.model import Delivery, DeliveryStatus, Outcome
from alerts.pool import DeliveryPool
from alerts.redaction import Redactor
from alerts.secrets import Secrets
from service import config, control, stop_requests
from service.control import Control, KafkaControl, SpoolControl
from service.stop_requests import RECEIVER, STATE, Stop
from service.store.model import Commit, StateRow
from service.store.store import Store
from tests.kit.collecting import until
from tests.kit.commits import delivery, event
from tests.kit.services import PATIENCE
from tocsin import spool
from tocsin.control import StopRequest

NOW = 1_000.0
REQUEST = StopRequest(
    run="r", id="s1", rule="bad", step=7, reason="Bad: it is", action="pause", requested_at=NOW, expires_at=NOW + 60.0
)
STOP = Stop(request=REQUEST, incident="r#1", fingerprint="f", attempt=1)


class Wire:
    """Takes what is published."""

    def __init__(self) -> None:
        self.sent: list[StopRequest] = []
        self.closed = False

    def send(self, request: StopRequest) -> Outcome:
        self.sent.append(request)
        return Outcome(ok=True, reason="ok", remote="0:1")

    def close(self) -> None:
        self.closed = True


def _row(id_: str = "s1") -> Delivery:
    return delivery(id_, receiver=RECEIVER, of=event(run="r"))


def _send(stop: Stop | None, now: float = NOW) -> tuple[Outcome, list[StopRequest]]:
    wire = Wire()
    asked: list[str] = []

    def newest(run: str) -> Stop | None:
        asked.append(run)
        return stop

    receiver = Control(wire, newest, lambda: now)
    outcome = receiver.send(_row())
    assert asked == ["r"] and receiver.reconcile(_row()) is None
    receiver.close()
    assert wire.closed
    return outcome, wire.sent


def test_it_is_sent_as_it_is_kept() -> None:
    outcome, sent = _send(STOP)
    assert outcome.ok and outcome.remote == "0:1" and sent == [REQUEST]


@pytest.mark.parametrize(
    ("stop", "detail"),
    [
        (None, "there is a newer request, or none any more"),
        (replace(STOP, request=replace(REQUEST, id="s2")), "there is a newer request, or none any more"),
        (replace(STOP, void=True, over="run finished"), "run finished"),
        (replace(STOP, acknowledged_at=5.0, over="the job acknowledged at step 8"), "the job acknowledged at step 8"),
    ],
)
def test_what_is_over_is_not_sent(stop: Stop | None, detail: str) -> None:
    outcome, sent = _send(stop)
    assert (outcome.ok, outcome.needless, outcome.retry, outcome.detail) == (False, True, False, detail)
    assert sent == []


def test_what_expired_first_is_a_failure() -> None:
    assert _send(STOP, NOW + 59.9)[0].ok
    outcome, sent = _send(STOP, NOW + 60.0)
    assert (outcome.ok, outcome.needless, outcome.retry, outcome.reason) == (False, False, False, "expired")
    assert sent == []


def test_a_file_for_the_job(tmp_path: Path) -> None:
    publish = SpoolControl(tmp_path)
    assert publish.send(REQUEST).ok and publish.send(REQUEST).ok
    assert spool.read_control(tmp_path, "r") == REQUEST
    publish.close()


def test_a_folder_that_refuses_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / spool.CONTROL).write_text("no folder")
    outcome = SpoolControl(tmp_path).send(REQUEST)
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.detail) == (False, True, "not_written", os.strerror(17))


def test_a_cluster_that_is_away_and_a_secret_that_is_gone_are_tried_again(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2hunter2")
    security: dict[str, str | bool | int] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "tocsin",
        "sasl_plain_password": "file:password",
    }
    kafka = config.Kafka(bootstrap=["127.0.0.1:1"], security=security)
    publish = KafkaControl(kafka, Secrets(Redactor(), {}, tmp_path))
    outcome = publish.send(REQUEST)
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "unreachable", False)
    (tmp_path / "password").unlink()
    outcome = publish.send(REQUEST)
    assert (outcome.retry, outcome.reason) == (True, "no_secret")
    assert "hunter2" not in outcome.detail and "source.kafka.security.sasl_plain_password" in outcome.detail
    publish.close()


def test_the_lane_reads_the_store(tmp_path: Path) -> None:
    settings = config.parse("source: {spool: {dir: waiting}}", "tocsin.yaml", tmp_path)
    with Store(f"sqlite:///{tmp_path / 'tocsin.db'}") as store:
        rows = [StateRow("r", STATE, "", stop_requests.encode(STOP)), StateRow("s", STATE, "", b"\xc1")]
        store.commit(Commit([], NOW, states=rows, deliveries=[_row(), _row("gone")]))
        assert control.newest(store, ["r", "s", "t"]) == {"r": STOP}
        lane = control.lane(settings, Secrets(Redactor(), {}, tmp_path), store, lambda: NOW)
        pool = DeliveryPool([lane], store.deliveries, clock=lambda: NOW)
        pool.start()
        until(lambda: not store.deliveries.waiting(), "both rows are final")
        assert pool.stop(PATIENCE)
        assert spool.read_control(tmp_path / "waiting", "r") == REQUEST
        assert store.deliveries.status(RECEIVER, "r#1", "r/gradnormtenfold", 1) is DeliveryStatus.SKIPPED


def test_the_lane_of_a_cluster_connects_with_the_first_request(tmp_path: Path) -> None:
    settings = config.parse("source: {kafka: {bootstrap: ['127.0.0.1:1']}}", "tocsin.yaml", tmp_path)
    with Store() as store:
        lane = control.lane(settings, Secrets(Redactor(), {}, tmp_path), store, lambda: NOW)
        assert lane.receiver.name == RECEIVER
        lane.receiver.close()

"""Kafka over TLS with a password, in and out: records come in and alerts go out by it, and nothing goes to whom one does not
trust."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.redaction import Redactor
from service import config
from service.running import Running
from tests.kit import kafka
from tests.kit.collecting import collecting, until
from tests.kit.pipelines import RULES, steps
from tests.kit.receivers import CERTIFICATE

pytestmark = pytest.mark.kafka

PASSWORD = "planted-kafka-password"
SECURITY = (
    "{{security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_plain_username: tocsin, sasl_plain_password: env:KAFKA, "
    'ssl_cafile: "{cafile}"}}'
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    made = kafka.Broker(tmp_path_factory.mktemp("kafka"), f"tocsin:{PASSWORD}", CERTIFICATE)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def configured(folder: Path, broker: kafka.Broker, records: str, alerts: str, cafile: Path) -> str:
    """tocsin.yaml, with the files that it names in place."""
    security = SECURITY.format(cafile=cafile)
    (folder / "rules").mkdir()
    (folder / "rules" / "test.yaml").write_text(RULES)
    receiver = f"{{kind: kafka, bootstrap: ['{broker.sasl_bootstrap}'], topic: {alerts}, security: {security}}}"
    (folder / "alerts.yaml").write_text(f"receivers: {{bus: {receiver}}}\ndefault: bus\ngroup_wait: 0s\n")
    source = f"{{kafka: {{bootstrap: ['{broker.sasl_bootstrap}'], topic: {records}, group: {records}, security: {security}}}}}"
    rest = "http: {port: 0}\nclock: event\nrules: {shipped: false, dirs: [rules]}\nalerts: alerts.yaml\n"
    return f"source: {source}\n{rest}"


def test_records_in_and_alerts_out(broker: kafka.Broker, tmp_path: Path) -> None:
    records, alerts = broker.topic("records"), broker.topic("alerts")
    text = configured(tmp_path, broker, records, alerts, CERTIFICATE)
    running = Running(
        config.parse(text, "tocsin.yaml", tmp_path), environ={"KAFKA": PASSWORD}, redactor=Redactor(), write=lambda _: None
    )
    running.start()
    try:
        broker.produce(records, steps("r", [1.0, 20.0, 20.0]), key=b"r")
        (told,) = until(lambda: _read(broker, alerts), "the alert")
        assert (told["action"], told["event"]["alert"], told["event"]["run"]) == ("trigger", "High", "r")
    finally:
        assert running.stop()


def test_who_is_not_trusted_is_sent_nothing(broker: kafka.Broker, tmp_path: Path) -> None:
    records, alerts = broker.topic("records"), broker.topic("alerts")
    text = configured(tmp_path, broker, records, alerts, CERTIFICATE.with_name("loopback_renewed.pem"))
    with collecting(tmp_path, text, environ={"KAFKA": PASSWORD}) as process:
        # Not at the first look on a busy machine: a handshake may also be too late.
        until(
            lambda: "certificate" in process.log().lower() + process.get("/readyz").text.lower(), "it says why it cannot read"
        )
        until(lambda: "cannot be" in process.get("/readyz").text, "it says that it cannot read")
        broker.produce(records, steps("r", [1.0, 20.0, 20.0]), key=b"r")
        assert process.get("/api/v1/runs").json() == {"runs": []} and _read(broker, alerts) == []
        said = process.get("/readyz").text + process.log()
    assert "certificate" in said.lower() and PASSWORD not in said


def _read(broker: kafka.Broker, topic: str) -> list[dict[str, Any]]:
    """All values of a topic, by the listener that is open to everybody on this machine."""
    return [json.loads(message.value) for message in broker.read(topic)]

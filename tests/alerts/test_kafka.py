"""The Kafka receiver against a real broker: what is written, that it is acknowledged, and what becomes of failures."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from alerts.config import parse_config
from alerts.model import Action, Outcome
from alerts.receivers.kafka import KafkaReceiver, KafkaSettings
from alerts.redaction import RedactingFilter
from rules.config_errors import ConfigErrors
from tests.kit import kafka
from tests.kit.receivers import delivery, event, tools

PASSWORD = "kafka-password-0123"


def receiver(bootstrap: str, topic: str = "tocsin.alerts", **more: Any) -> KafkaReceiver:
    settings = KafkaSettings(kind="kafka", bootstrap=[bootstrap], topic=topic, **more)
    return KafkaReceiver("bus", settings, tools({"P": PASSWORD}, links={"incident": "https://h/{incident}"}))


@pytest.mark.kafka
def test_a_message_per_delivery_keyed_by_run(kafka_broker: kafka.Broker) -> None:
    topic = kafka_broker.topic("alerts")
    bus = receiver(kafka_broker.bootstrap, topic)
    about = event(value=float("nan"), summary="<!channel> läuft \ud800")
    outcomes = [bus.send(delivery(about)), bus.send(delivery(action=Action.RESOLVE)), bus.send(delivery(ambiguous=True))]
    bus.close()
    assert outcomes == [Outcome(ok=True, reason="ok", remote=f"0:{offset}") for offset in range(3)]
    first, second, third = kafka_broker.read(topic)
    assert {message.key for message in (first, second, third)} == {b"grpo-7b-042"}
    assert dict(first.headers) == {
        "content-type": b"application/json",
        "delivery": delivery(about).id.encode(),
        "action": b"trigger",
        "severity": b"page",
    }
    body = msgspec.json.decode(first.value)
    assert (body["version"], body["action"], body["incident"]) == (1, "trigger", "grpo-7b-042#1")
    assert body["event"]["value"] == "nan" and body["event"]["alert"] == "LogprobGapStop"
    assert body["links"] == {"incident": "https://h/grpo-7b-042%231"}
    assert msgspec.json.decode(second.value)["action"] == "resolve"
    assert msgspec.json.decode(third.value)["may_repeat"] is True
    assert dict(third.headers)["delivery"] == dict(first.headers)["delivery"], "a repeat can be told by its id"


@pytest.mark.kafka
def test_a_topic_that_is_not_there_is_waited_for(kafka_broker: kafka.Broker) -> None:
    bus = receiver(kafka_broker.bootstrap, "never.made", connect_timeout=1.0)
    outcome = bus.send(delivery())
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "no_topic", False)
    assert "never.made" in outcome.detail
    bus.close()


@pytest.mark.kafka
def test_a_message_that_the_broker_takes_never_is_final(kafka_broker: kafka.Broker) -> None:
    topic = kafka_broker.topic("small", configs={"max.message.bytes": "100"})
    bus = receiver(kafka_broker.bootstrap, topic)
    outcome = bus.send(delivery())
    bus.close()
    assert (outcome.ok, outcome.retry, outcome.reason) == (False, False, "rejected")
    assert "MessageSizeTooLarge" in outcome.detail


@pytest.mark.kafka
def test_a_broker_that_goes_away_and_comes_back(private_broker: kafka.Broker) -> None:
    topic = private_broker.topic("alerts")
    bus = receiver(private_broker.bootstrap, topic, timeout=2.0, connect_timeout=2.0)
    assert bus.send(delivery()).ok
    private_broker.stop()
    lost = bus.send(delivery(event(step=2)))
    assert (lost.ok, lost.retry) == (False, True)
    away = bus.send(delivery(event(step=2)))
    assert (away.retry, away.reason, away.ambiguous) == (True, "unreachable", False)
    private_broker.start()
    assert bus.send(delivery(event(step=2), ambiguous=True)).ok
    bus.close()
    assert [msgspec.json.decode(message.value)["event"]["step"] for message in private_broker.read(topic)[:2]] == [1234, 2]


@pytest.mark.kafka
def test_the_password_is_taken_from_its_reference_and_shown_nowhere(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    broker = kafka.Broker(tmp_path_factory.mktemp("sasl"), f"ada:{PASSWORD}")
    try:
        broker.start()
        topic = broker.topic("alerts")
        security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "ada"}
        bus = receiver(broker.sasl_bootstrap, topic, security={**security, "sasl_plain_password": "env:P"})
        caplog.set_level(logging.DEBUG)
        caplog.handler.addFilter(redacting := RedactingFilter(bus._secrets.redactor))
        good = bus.send(delivery())
        environ = bus._secrets._environ
        assert isinstance(environ, dict)
        environ["P"] = "another-password-0123"  # rotated here, and not there
        bad = bus.send(delivery())
        environ.clear()
        gone = bus.send(delivery())
        bus.close()
        caplog.handler.removeFilter(redacting)
    finally:
        broker.stop()
    assert good.ok
    assert (bad.ok, bad.retry, bad.reason) == (False, True, "unreachable")
    assert (gone.retry, gone.reason) == (True, "no_secret")
    said = caplog.text + repr([vars(record) for record in caplog.records]) + repr((bad, gone))
    assert PASSWORD not in said and "another-password" not in said


def test_nobody_listens(unreachable: str) -> None:
    bus = receiver(unreachable, connect_timeout=0.5)
    outcome = bus.send(delivery())
    bus.close()
    assert (outcome.ok, outcome.retry, outcome.reason, outcome.ambiguous) == (False, True, "unreachable", False)
    assert unreachable in outcome.detail
    assert bus.reconcile(delivery()) is None


def faults(entry: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigErrors) as refused:
        parse_config(f"receivers:\n  bus: {{kind: kafka, {entry}}}\ndefault: bus", "alerts.yaml", tools(environ))
    return [str(error) for error in refused.value.errors]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("bootstrap: [broker]", "host:port"),
        ("bootstrap: []", "at least 1"),
        ("bootstrap: ['b:9092'], topic: 'a b'", "'a b' does not match"),
        ("bootstrap: ['b:9092'], security: {sasl_plain_pasword: env:P}", "sasl_plain_pasword"),
        ("bootstrap: ['b:9092'], security: {bogus: true}", "does not know: bogus"),
        ("bootstrap: ['b:9092'], security: {ssl_password: env:GONE}", "env:GONE: no such environment variable"),
    ],
)
def test_settings_that_cannot_work_are_found_at_load(entry: str, said: str) -> None:
    (found,) = faults(entry, P=PASSWORD)
    assert said in found


def test_a_password_in_the_file_is_an_error_that_does_not_show_it() -> None:
    found = faults(f"bootstrap: ['b:9092'], security: {{sasl_plain_password: {PASSWORD}}}")
    assert len(found) == 1 and "by reference" in found[0] and PASSWORD not in str(found)

"""Passwords and topics on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from collector.dead_letters import decode
from collector.ports import SourceUnavailable
from collector.sources.kafka.dead_letters import KafkaDeadLetters
from collector.sources.kafka.source import KafkaSource
from collector.sources.kafka.topics import DEAD_LETTERS, Outcome, TopicPlan, create_topics, plan
from collector.sources.memory import MemoryPositions
from tests.kit import kafka, services

pytestmark = pytest.mark.kafka


def test_settings_that_would_break_the_source_are_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="cannot be set here: auto_offset_reset, value_deserializer"):
        KafkaSource("127.0.0.1:1", ["t"], "g", value_deserializer=bytes.decode, auto_offset_reset="latest")
    with pytest.raises(ValueError, match="does not know: sasl_mechanismus"):
        KafkaSource("127.0.0.1:1", ["t"], "g", sasl_mechanismus="PLAIN")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """A broker with a second listener that asks for a password."""
    broker = kafka.Broker(tmp_path_factory.mktemp("kafka"), credentials="tocsin:hunter2")
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


class TestSecurity:
    @staticmethod
    def settings(password: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "tocsin",
            "sasl_plain_password": password,
        }

    def test_the_right_password_reaches_topics_records_and_dead_letters(self, secured: kafka.Broker) -> None:
        settings = self.settings("hunter2")
        made = create_topics(secured.sasl_bootstrap, **settings)
        assert {result.outcome for result in made} == {Outcome.CREATED}
        letters = KafkaDeadLetters(secured.sasl_bootstrap, **settings)
        letters.put(partition="t/0", offset=7, reason="not_json", detail="", value=b"?", rejected_at=0.0)
        letters.close()
        assert (letters.kept, letters.dropped) == (1, 0)
        source = KafkaSource(secured.sasl_bootstrap, [DEAD_LETTERS], "g", **settings)
        source.open(MemoryPositions())
        try:
            (record,) = services.until(lambda: source.poll(0.2).records, "the dead letter")
        finally:
            source.close()
        assert decode(record.value).offset == 7

    def test_the_wrong_password_is_unavailable_and_is_not_told(self, secured: kafka.Broker) -> None:
        settings = self.settings("wrong-hunter")
        source = KafkaSource(secured.sasl_bootstrap, ["t"], "g", connect_seconds=1.0, **settings)
        source.open(MemoryPositions())
        with pytest.raises(SourceUnavailable) as refused:
            source.poll(0.1)
        assert "wrong-hunter" not in str(refused.value)
        with pytest.raises(SourceUnavailable):
            create_topics(secured.sasl_bootstrap, timeout_seconds=1.0, **settings)


class TestCreateTopics:
    def test_what_is_missing_is_created_and_what_exists_is_reported(self, private_broker: kafka.Broker) -> None:
        first = create_topics(private_broker.bootstrap)
        assert [(result.name, result.outcome) for result in first] == [(topic.name, Outcome.CREATED) for topic in plan()]
        again = create_topics(private_broker.bootstrap, plan(partitions=24))
        assert {result.outcome for result in again} == {Outcome.EXISTS}
        assert again[0].detail == "it has 12 partitions, planned are 24; left as it is"
        large = b"x" * (4 * 1024 * 1024)
        assert private_broker.produce("tocsin.records", [large], partition=11) == [0]

    def test_a_refusal_of_one_topic_is_told_and_costs_the_others_nothing(self, kafka_broker: kafka.Broker) -> None:
        bad, good = TopicPlan("refused", 1, {"retention.ms": "soon"}), TopicPlan("accepted", 1, {})
        results = create_topics(kafka_broker.bootstrap, [bad, good])
        assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.CREATED]
        assert "retention.ms" in results[0].detail

    def test_no_broker_is_an_error_that_says_so(self, unreachable: str) -> None:
        with pytest.raises(SourceUnavailable, match=r"no connection to Kafka at 127\.0\.0\.1"):
            create_topics(unreachable, timeout_seconds=0.2)

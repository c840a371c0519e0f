"""What of the Kafka source needs no broker: settings, the text of errors, and what the rebalance listener notes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    CorruptRecordError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)

from collector.ports import SourceUnavailable
from collector.sources.kafka import connecting, damage
from collector.sources.kafka.connecting import DEFAULTS, OURS, RebalanceNotes, checked, connect, reach, reason, security
from collector.sources.kafka.source import KafkaSource
from collector.sources.memory import MemoryPositions

SECURE = {
    "security_protocol": "SASL_SSL",
    "ssl_cafile": "ca.pem",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "tocsin",
    "sasl_plain_password": "hunter2",
}


class TestSettings:
    def test_security_passes_through_and_our_rules_stay(self) -> None:
        config = checked({**SECURE, "max_poll_records": 50})
        assert config.items() >= {**SECURE, **OURS, "max_poll_records": 50, "fetch_min_bytes": 1}.items()

    def test_every_setting_of_ours_is_known_to_the_installed_kafka_python(self) -> None:
        assert KafkaConsumer.DEFAULT_CONFIG.keys() >= OURS.keys() | DEFAULTS.keys()

    @pytest.mark.parametrize("name", [*sorted(OURS), "bootstrap_servers", "group_id"])
    def test_what_is_ours_cannot_be_set(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"cannot be set here: {name}"):
            checked({name: "x"})

    def test_security_is_what_a_producer_and_an_admin_client_need_as_well(self) -> None:
        assert security({**SECURE, "max_poll_records": 50, "session_timeout_ms": 1}) == SECURE
        with pytest.raises(ValueError, match="does not know: max_poll_records"):
            reach(KafkaAdminClient, "127.0.0.1:1", {"max_poll_records": 50}, 0.1)


class TestOutOfReach:
    @pytest.fixture(params=["consumer", "admin"])
    def attempt(self, request: pytest.FixtureRequest, unreachable: str) -> Callable[[], Any]:
        if request.param == "consumer":
            return lambda: connect(unreachable, "g", checked({}), 0.1)
        return lambda: reach(KafkaAdminClient, [unreachable], {}, 0.1)

    def test_says_where_and_leaves_no_thread_behind(self, attempt: Callable[[], Any]) -> None:
        before = threading.active_count()
        for _ in range(3):
            with pytest.raises(SourceUnavailable, match=r"no connection to Kafka at 127\.0\.0\.1:\d+: KafkaTimeoutError"):
                attempt()
        assert threading.active_count() == before

    def test_no_error_names_a_secret(self, unreachable: str) -> None:
        source = KafkaSource(unreachable, ["t"], "g", connect_seconds=0.1, **{**SECURE, "ssl_cafile": None})  # type: ignore[arg-type]  # values of several types
        source.open(MemoryPositions())
        with pytest.raises(SourceUnavailable) as caught:
            source.poll(0.0)
        assert "hunter2" not in str(caught.value)
        assert source.lag() == {}
        assert not source.finished
        source.close()

    def test_polled_before_open_or_after_close_is_a_bug_of_the_caller(self, unreachable: str) -> None:
        source = KafkaSource(unreachable, ["t"], "g")
        with pytest.raises(RuntimeError, match="not open"):
            source.poll(0.0)
        source.open(MemoryPositions())
        source.close()
        with pytest.raises(RuntimeError, match="not open"):
            source.poll(0.0)


class TestDamage:
    @given(
        topic=st.from_regex(r"[A-Za-z0-9._-]{1,80}", fullmatch=True),
        partition=st.integers(0, 10_000),
        offset=st.integers(0, 2**62),
    )
    def test_the_place_is_read_from_the_errors_text(self, topic: str, partition: int, offset: int) -> None:
        tp = TopicPartition(topic, partition)
        for what in ("Record batch", "Record"):
            error = CorruptRecordError(f"{what} for partition {tp} at offset {offset} failed crc check")
            assert damage.named(error) == damage.Damage(tp, offset, "the checksum is wrong", first=True)

    def test_other_texts_name_no_place(self) -> None:
        assert damage.named(CorruptRecordError("Unexpected error while fetching data")) is None
        assert damage.named(ValueError("unknown codec")) is None

    @pytest.mark.parametrize(
        ("error", "outage"),
        [
            (KafkaTimeoutError(), True),
            (KafkaConnectionError(), True),
            (NotLeaderForPartitionError(), True),
            (TopicAuthorizationFailedError(), True),
            (SaslAuthenticationFailedError(), True),
            (ConnectionResetError(), True),
            (CorruptRecordError(), False),
            (UnsupportedCodecError(), False),
            (KafkaError(), False),
            (RuntimeError(), False),
        ],
    )
    def test_an_outage_is_no_damage(self, error: Exception, outage: bool) -> None:
        assert damage.is_outage(error) == outage

    def test_a_batch_is_told_once_however_often_it_comes(self) -> None:
        tp = TopicPartition("t", 0)
        named = damage.Damage(tp, 40, "the checksum is wrong", first=True)
        assert named.continues(named)
        assert not named._replace(offset=80).continues(named)
        tried = damage.Damage(tp, 41, "RuntimeError", first=False)
        assert tried._replace(offset=42).continues(tried)
        assert not named.continues(tried)


class TestRebalanceNotes:
    class Pausing:
        def __init__(self) -> None:
            self.paused: list[TopicPartition] = []

        def pause(self, *partitions: TopicPartition) -> None:
            self.paused += partitions

    def test_new_partitions_are_paused_until_they_are_placed(self) -> None:
        consumer = self.Pausing()
        notes = RebalanceNotes(consumer)
        assert notes.joining
        notes.on_partitions_assigned([TopicPartition("t", 1)])
        assert (notes.joining, notes.changed, consumer.paused) == (False, True, [TopicPartition("t", 1)])

    def test_lost_partitions_are_remembered_until_they_are_dealt_with(self) -> None:
        notes = RebalanceNotes(self.Pausing())
        notes.on_partitions_lost([TopicPartition("t", 0)])
        notes.on_partitions_assigned([TopicPartition("t", 0)])
        assert notes.lost == {"t/0"}
        notes.on_partitions_revoked([TopicPartition("t", 0)])
        assert notes.joining


class TestForgetting:
    def test_a_fetcher_without_a_close_is_left_alone(self) -> None:
        connecting.forget_fetched(object())

    def test_the_installed_kafka_python_has_what_is_called(self) -> None:
        from kafka.consumer.fetcher import Fetcher

        assert callable(Fetcher.close)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KafkaTimeoutError(), "KafkaTimeoutError"),
        (KafkaTimeoutError("after\n 5 s"), "KafkaTimeoutError: after 5 s"),
        (ValueError("x"), "ValueError: x"),
    ],
)
def test_an_error_is_told_in_one_line(error: Exception, text: str) -> None:
    assert reason(error) == text

"""The topics of Tocsin and how they are made: explicitly, once, by `tocsin kafka init`. Existing ones are never altered."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import kafka.errors
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from collector.ports import SourceUnavailable
from collector.sources.kafka.connecting import reach, reason

RECORDS: Final = "tocsin.records"
CONTROL: Final = "tocsin.control"
DEAD_LETTERS: Final = "tocsin.dead-letters"
ALERTS: Final = "tocsin.alerts"

_DAY_MS: Final = 24 * 3600 * 1000


class TopicPlan(NamedTuple):
    """A topic as it is to be."""

    name: str
    partitions: int
    config: Mapping[str, str]


def plan(partitions: int = 12) -> tuple[TopicPlan, ...]:
    """The four topics. `partitions` is how many collectors can share the records; adding some later moves runs."""
    return (
        # received_at is the broker's clock; a record of 4 MiB fits with its headers; a week lets a broken collector catch up.
        TopicPlan(
            RECORDS,
            partitions,
            {
                "message.timestamp.type": "LogAppendTime",
                "max.message.bytes": str(5 * 1024 * 1024),
                "retention.ms": str(7 * _DAY_MS),
            },
        ),
        # The latest stop request per run; the client checks its expiry.
        TopicPlan(CONTROL, 1, {"cleanup.policy": "compact,delete", "retention.ms": str(7 * _DAY_MS)}),
        TopicPlan(DEAD_LETTERS, 1, {"retention.ms": str(14 * _DAY_MS)}),
        TopicPlan(ALERTS, 1, {"retention.ms": str(30 * _DAY_MS)}),
    )


class Outcome(enum.StrEnum):
    """What happened to a topic."""

    CREATED = "created"
    EXISTS = "exists"
    FAILED = "failed"


class TopicResult(NamedTuple):
    """One topic's outcome; `detail` says why it failed, or in what an existing one differs from the plan."""

    name: str
    outcome: Outcome
    detail: str = ""


def create_topics(
    bootstrap: Sequence[str] | str,
    topics: Sequence[TopicPlan] | None = None,
    *,
    replication: int = -1,
    timeout_seconds: float = 10.0,
    **settings: Any,
) -> list[TopicResult]:
    """Create what is missing, in the order of `topics` (default: `plan()`); returns one result per topic.

    `replication` -1 takes the broker's default. `settings` go to KafkaAdminClient (security_protocol, sasl_mechanism ...).
    Raises SourceUnavailable when the cluster cannot be reached, ValueError for a setting that kafka-python does not know.
    """
    wanted = list(plan() if topics is None else topics)
    admin = reach(KafkaAdminClient, bootstrap, settings, timeout_seconds)
    try:
        present = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
        results = {name: _compare(topic, present[name]) for topic in wanted if (name := topic.name) in present}
        missing = [topic for topic in wanted if topic.name not in present]
        if missing:
            results |= _create(admin, missing, replication, timeout_seconds)
    except (KafkaError, OSError) as error:
        raise SourceUnavailable(f"Kafka did not answer: {reason(error)}") from error
    finally:
        admin.close()
    return [results[topic.name] for topic in wanted]


def _compare(topic: TopicPlan, partitions: int) -> TopicResult:
    differs = f"it has {partitions} partitions, planned are {topic.partitions}; left as it is"
    return TopicResult(topic.name, Outcome.EXISTS, "" if partitions == topic.partitions else differs)


def _create(admin: KafkaAdminClient, missing: list[TopicPlan], replication: int, seconds: float) -> dict[str, TopicResult]:
    request = {
        topic.name: {"num_partitions": topic.partitions, "replication_factor": replication, "configs": dict(topic.config)}
        for topic in missing
    }
    answer = admin.create_topics(request, timeout_ms=int(seconds * 1000), raise_errors=False)
    results = {}
    for topic in answer["topics"]:
        error = kafka.errors.for_code(topic["error_code"])
        name, detail = topic["name"], topic.get("error_message") or ""
        if error is kafka.errors.NoError:
            results[name] = TopicResult(name, Outcome.CREATED)
        elif error is kafka.errors.TopicAlreadyExistsError:  # somebody else was faster
            results[name] = TopicResult(name, Outcome.EXISTS)
        else:
            results[name] = TopicResult(name, Outcome.FAILED, f"{error.__name__}: {detail}".rstrip(": "))
    admin.wait_for_topics([name for name, result in results.items() if result.outcome is Outcome.CREATED])
    return results

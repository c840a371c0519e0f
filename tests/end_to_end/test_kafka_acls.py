"""deploy/kafka/acls.sh on a real broker with an authorizer: it gives enough, and each line of it is needed; nobody gets more.

The program that it calls comes with the Kafka distribution and is in no Maven artefact that a broker needs. Here a stand-in
writes down how it is called, and kafka-python's administrator does what was asked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit import kafka
from tests.kit.collecting import collecting, until
from tests.kit.deploying import DEPLOY, checked
from tests.kit.pipelines import step
from tocsin.transports import Message, from_url

pytestmark = pytest.mark.kafka

SCRIPT = DEPLOY / "kafka" / "acls.sh"
PASSWORDS = {"tocsin": "collector-password", "trainer": "trainer-password"}
PROPERTIES = f"""
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
listener.name.secured.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  {" ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())};
"""
"""The plain listener is the administrator's; who comes by the other one may do what ACLs say."""


class Line(NamedTuple):
    """One call of kafka-acls.sh."""

    principal: str
    operations: tuple[str, ...]
    kind: str
    """topic or group"""
    name: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    folder = tmp_path_factory.mktemp("kafka")
    properties = folder / "acl.properties"
    properties.write_text(PROPERTIES, encoding="utf-8")
    made = kafka.Broker(folder / "broker", credentials="nobody:nobody", properties=properties)
    try:
        made.start()
        checked(sys.executable, "-m", "service.cli", "kafka", "init", "--bootstrap", made.bootstrap, "--partitions", "2")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """What the script asks for."""
    folder = tmp_path_factory.mktemp("acls")
    stand_in = folder / "kafka-acls.sh"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n', encoding="utf-8")
    stand_in.chmod(0o755)
    checked(
        "env", f"KAFKA_ACLS={stand_in}", SCRIPT, "--bootstrap-server", "broker:9093", "--command-config", "admin.properties"
    )
    found = []
    for call in (folder / "calls").read_text(encoding="utf-8").splitlines():
        words = call.split()
        assert words[:6] == "--bootstrap-server broker:9093 --command-config admin.properties --add --force".split()
        pairs = list(zip(words[6::2], words[7::2], strict=True))
        options = dict(pairs)
        operations = tuple(value for name, value in pairs if name == "--operation")
        (kind,) = {"--topic", "--group"} & set(options)
        assert set(options) == {"--allow-principal", "--operation", kind}
        found.append(Line(options["--allow-principal"], operations, kind.removeprefix("--"), options[kind]))
    return found


class Cluster:
    """What the principals can do, tried."""

    def __init__(self, broker: kafka.Broker) -> None:
        self.broker = broker

    def security(self, user: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORDS[user],
        }

    def change(self, line: Line, *, allowed: bool) -> None:
        from kafka.admin import (
            ACL,
            ACLFilter,
            ACLOperation,
            ACLPermissionType,
            ACLResourcePatternType,
            KafkaAdminClient,
            ResourcePattern,
            ResourcePatternFilter,
            ResourceType,
        )

        kind = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}[line.kind]
        with closing(KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)) as admin:
            for operation in line.operations:
                who = (line.principal, "*", ACLOperation[operation.upper()], ACLPermissionType.ALLOW)
                if allowed:
                    admin.create_acls([ACL(*who, ResourcePattern(kind, line.name))])
                else:
                    named = ResourcePatternFilter(kind, line.name, ACLResourcePatternType.LITERAL)
                    admin.delete_acls([ACLFilter(*who, named)])

    def writes(self, user: str, topic: str) -> bool:
        """Whether a message of this user is acknowledged."""
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        servers = self.broker.sasl_bootstrap
        producer = KafkaProducer(bootstrap_servers=servers, max_block_ms=4_000, retries=0, **self.security(user))
        try:
            producer.send(topic, b"tried", key=b"k", partition=0).get(timeout=5)
        except KafkaError:
            return False
        finally:
            producer.close(timeout=2)
        return True

    def reads(self, user: str, topic: str) -> bool:
        """Whether this user, without a group, gets a message that lies there."""
        from kafka import KafkaConsumer, TopicPartition
        from kafka.errors import KafkaError

        self.broker.produce(topic, [b"to be read"], key=b"k")
        place = TopicPartition(topic, 0)
        with closing(
            KafkaConsumer(bootstrap_servers=self.broker.sasl_bootstrap, group_id=None, **self.security(user))
        ) as consumer:
            consumer.assign([place])
            try:
                consumer.seek_to_beginning(place)
                return bool(consumer.poll(timeout_ms=4_000))
            except KafkaError:
                return False

    def commits(self, user: str, group: str) -> bool:
        """Whether this user may keep an offset of a group."""
        from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
        from kafka.errors import KafkaError

        place = TopicPartition("tocsin.records", 1)
        servers = self.broker.sasl_bootstrap
        with closing(
            KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False, **self.security(user))
        ) as at:
            at.assign([place])
            try:
                at.commit({place: OffsetAndMetadata(0, "", -1)}, timeout_ms=4_000)
            except KafkaError:
                return False
        return True

    def can(self, line: Line) -> bool:
        """Whether the principal of a line can do what the line is for."""
        user = line.principal.removeprefix("User:")
        if line.kind == "group":
            return self.commits(user, line.name)
        return self.writes(user, line.name) if "Write" in line.operations else self.reads(user, line.name)

    def cannot(self, line: Line) -> bool:
        return not self.can(line)


@pytest.fixture
def cluster(broker: kafka.Broker, lines: list[Line]) -> Cluster:
    """All of the script is carried out."""
    made = Cluster(broker)
    for line in lines:
        made.change(line, allowed=True)
    return made


def test_each_line_is_needed(cluster: Cluster, lines: list[Line]) -> None:
    assert len(lines) == 7
    for line in lines:
        until(partial(cluster.can, line), f"{line} is in force")
        cluster.change(line, allowed=False)
        until(partial(cluster.cannot, line), f"{line} is taken away")
        cluster.change(line, allowed=True)


def test_nobody_may_do_more(cluster: Cluster, lines: list[Line]) -> None:
    for line in lines:
        until(partial(cluster.can, line), f"{line} is in force")
    assert not cluster.reads("trainer", "tocsin.records"), "a job reads other jobs' records"
    assert not cluster.writes("trainer", "tocsin.control"), "a job stops other jobs"
    assert not cluster.writes("trainer", "tocsin.alerts")
    assert not cluster.writes("tocsin", "tocsin.records"), "the collector invents records"
    for user in PASSWORDS:
        assert not cluster.writes(user, "tocsin.recrods"), "a misspelled topic comes to life"


def test_a_collector_and_a_job_need_no_more(cluster: Cluster, lines: list[Line], tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORDS["tocsin"], encoding="utf-8")
    settings = cluster.security("tocsin") | {"sasl_plain_password": "file:password"}
    security = "{" + ", ".join(f"{name}: '{value}'" for name, value in settings.items()) + "}"
    servers = cluster.broker.sasl_bootstrap
    (tmp_path / "alerts.yaml").write_text(
        f"receivers:\n  bus: {{kind: kafka, bootstrap: ['{servers}'], security: {security}}}\ndefault: bus\ngroup_wait: 0s\n",
        encoding="utf-8",
    )
    config = (
        f"source: {{kafka: {{bootstrap: ['{servers}'], dead_letter_topic: tocsin.dead-letters, security: {security}}}}}\n"
        "alerts: alerts.yaml\nclock: event\n"
    )
    with collecting(tmp_path, config) as collector:
        transport = from_url(f"kafka://{servers}", fallback=tmp_path / "fallback", settings=cluster.security("trainer"))
        try:
            values = [step("r", number, grad_norm="nan" if number > 3 else 1.0) for number in range(1, 8)]
            transport.watch("r")
            transport.send([Message("r", value, float(number)) for number, value in enumerate([*values, b"no record"])])
            until(lambda: transport.counts().delivered == len(values) + 1, "the job's records are taken")
        finally:
            transport.close(timeout=10)
        collector.wait_for_step("r", 7)
        until(
            lambda: 'tocsin_deliveries_total{outcome="ok",receiver="bus"}' in _metrics(collector), "an alert reaches its topic"
        )
        until(lambda: _end(cluster.broker, "tocsin.dead-letters") >= 1, "the dead letter reaches its topic")
        # What the Kubernetes manifests do before each start: it sees that there is nothing to do, and needs no right to create.
        made = checked(
            sys.executable, "-m", "service.cli", "kafka", "init", "--config", tmp_path / "tocsin.yaml", "--partitions", "2"
        )
        assert [line.split()[0] for line in made.splitlines()] == ["exists"] * 4


def _metrics(collector: Any) -> str:
    text: str = collector.get("/metrics").text
    return text


def _end(broker: kafka.Broker, topic: str) -> int:
    from kafka import KafkaConsumer, TopicPartition

    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as consumer:
        return int(consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)])

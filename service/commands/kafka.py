"""`tocsin kafka`: what has to be done once on a Kafka cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from alerts.redaction import Redactor
from alerts.secrets import SecretError, Secrets
from collector.ports import SourceUnavailable
from service import config, inputs
from service.commands.terminal import config_errors_are_shown, fail


@click.group(short_help="Prepare a Kafka cluster.")
def kafka() -> None:
    """Work with the Kafka cluster that records come through.

    \b
    Example:
      tocsin kafka init --bootstrap 127.0.0.1:9092
    """


@kafka.command(short_help="Create the topics.")
@click.option(
    "--config", "file", type=click.Path(path_type=Path), help="Take brokers, topic and security from this tocsin.yaml."
)
@click.option("--bootstrap", metavar="HOST:PORT[,HOST:PORT]", help="Brokers, when there is no configuration yet.")
@click.option(
    "--partitions", type=click.IntRange(1, 10_000), default=12, show_default=True, help="How many collectors may share."
)
@click.option(
    "--replication", type=click.IntRange(-1, 100), default=-1, help="Copies of each partition; -1: the broker's default."
)
def init(file: Path | None, bootstrap: str | None, partitions: int, replication: int) -> None:
    """Create the topics of Tocsin; those that exist are left as they are.

    \b
    Examples:
      tocsin kafka init --bootstrap 127.0.0.1:9092
      tocsin kafka init --config tocsin.yaml --partitions 24 --replication 3
    """
    from collector.sources.kafka import topics

    brokers, names, security = _cluster(file, bootstrap)
    wanted = [topic._replace(name=names.get(topic.name, topic.name)) for topic in topics.plan(partitions)]
    try:
        results = topics.create_topics(brokers, wanted, replication=replication, **security)
    except SourceUnavailable as error:
        fail(f"cannot create topics: {error} (expected host:port of a broker that is running)")
    except ValueError as error:
        fail(f"cannot create topics: {error}")
    for result in results:
        click.echo(f"{result.outcome.value:8} {result.name}" + (f"  ({result.detail})" if result.detail else ""))
    if any(result.outcome is topics.Outcome.FAILED for result in results):
        raise SystemExit(1)


def _cluster(file: Path | None, bootstrap: str | None) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Brokers, topic names that differ from the usual ones, and security settings."""
    if file is None:
        if bootstrap is None:
            fail("say which cluster: --bootstrap HOST:PORT or --config tocsin.yaml")
        return [broker.strip() for broker in bootstrap.split(",")], {}, {}
    with config_errors_are_shown():
        settings = config.load(file)
    found = settings.config.source.kafka
    if found is None:
        fail(f"{file} has no Kafka source (add `source: kafka: bootstrap: [...]`, or use --bootstrap)")
    try:
        security = inputs.security(found, Secrets(Redactor(), os.environ, settings.base))
    except SecretError as error:
        fail(str(error))
    names = {"tocsin.records": found.topic, "tocsin.control": found.control_topic}
    if found.dead_letter_topic is not None:
        names["tocsin.dead-letters"] = found.dead_letter_topic
    return list(bootstrap.split(",") if bootstrap else found.bootstrap), names, security

"""The source and the dead letters that a configuration means. Kafka is imported only where it is configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alerts.secrets import SecretError, Secrets, is_reference, parse_reference
from collector.dead_letters import FileDeadLetters
from collector.ports import DeadLetters, Source
from collector.sources.spool import SpoolSource
from service.config import Kafka, Settings, Spool, seconds

_DEAD_LETTER_FILES = 4


def source(settings: Settings, secrets: Secrets, clock: Callable[[], float]) -> Source:
    """The configured source, not opened and not connected.

    Raises ValueError for Kafka settings that are none, SecretError for a secret that is not there.
    """
    kafka = settings.config.source.kafka
    if kafka is None:
        assert settings.spool is not None
        keep = (settings.config.source.spool or Spool()).keep
        return SpoolSource(settings.spool, clock=clock, keep_seconds=None if keep is None else seconds(keep))
    from collector.sources.kafka.source import KafkaSource

    # A static member of the group: after a crash its restart has the partitions back at once, instead of after the session
    # time-out of a member that the broker still believes to live (and of one more for each restart in between).
    options = {"group_instance_id": settings.config.name, **security(kafka, secrets)}
    made: Source = KafkaSource(kafka.bootstrap, [kafka.topic], kafka.group, clock=clock, **options)
    return made


def dead_letters(settings: Settings, secrets: Secrets) -> DeadLetters:
    """Where rejected values go: the configured topic, else a rotated file."""
    kafka, config = settings.config.source.kafka, settings.config.dead_letters
    if kafka is not None and kafka.dead_letter_topic is not None:
        from collector.sources.kafka.dead_letters import KafkaDeadLetters

        return KafkaDeadLetters(kafka.bootstrap, kafka.dead_letter_topic, **security(kafka, secrets))
    each = config.max_megabytes * 1024 * 1024 // _DEAD_LETTER_FILES
    return FileDeadLetters(settings.path(config.dir), max_bytes=each, files=_DEAD_LETTER_FILES)


def security(kafka: Kafka, secrets: Secrets) -> dict[str, Any]:
    """The settings for kafka-python with the secrets looked up. Raises SecretError, naming the setting."""
    settings: dict[str, Any] = {}
    for name, value in kafka.security.items():
        try:
            is_secret = isinstance(value, str) and is_reference(value)
            settings[name] = secrets.value(parse_reference(str(value))) if is_secret else value
        except SecretError as error:
            raise SecretError(f"source.kafka.security.{name}: {error}") from None
    return settings

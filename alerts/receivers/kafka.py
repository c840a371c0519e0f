"""Alerts into a Kafka topic, for machines: key = run, value = the JSON of `alerts.envelope`, one message per delivery.

Headers: `delivery` is the delivery's id on every attempt, so whoever remembers it can drop repeats; `action`, `severity` and
`content-type` let a reader choose without decoding. Acknowledged by all replicas (acks=all) within `timeout`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final

import msgspec

from alerts.envelope import envelope
from alerts.model import Delivery, Outcome
from alerts.receivers.http import no_secret
from alerts.receivers.settings import Kind, Seconds, Settings, Tools
from alerts.secrets import SecretError, is_reference, parse_reference

_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


class KafkaSettings(Settings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_tables: ClassVar[tuple[str, ...]] = ("security",)
    place: ClassVar[tuple[str, ...]] = ("bootstrap", "topic")
    bootstrap: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Brokers, host:port each."""
    topic: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,249}$")] = "tocsin.alerts"
    """Has to exist; `tocsin kafka init` makes it."""
    security: dict[str, str | bool | int] = msgspec.field(default_factory=dict)
    """Settings of kafka-python by their own names (security_protocol, sasl_mechanism, ssl_cafile ...); secrets by reference."""
    connect_timeout: Seconds = 5.0
    timeout: Seconds = 10.0
    """Seconds until the acknowledgement of all replicas has to be there."""

    def __post_init__(self) -> None:
        if not all(_SERVER.fullmatch(server) for server in self.bootstrap):
            raise ValueError("a broker is written host:port")


class KafkaReceiver:
    """Another producer takes over when a secret was rotated or an attempt failed."""

    scope = "alert"

    def __init__(self, name: str, settings: KafkaSettings, tools: Tools) -> None:
        self.name = name
        self._settings = settings
        self._secrets = tools.secrets
        self._wording = tools.wording
        self._redact = tools.secrets.redactor.redact
        self._security = self._looked_up()
        self._writer = self._made()

    def send(self, delivery: Delivery) -> Outcome:
        from collector.sources.kafka.writer import NotWritten

        try:
            security = self._looked_up()
        except SecretError as error:
            return no_secret(error)
        if security != self._security:
            self._writer.close()
            self._security = security
            self._writer = self._made()
        event = delivery.event
        headers = {
            "content-type": b"application/json",
            "delivery": delivery.id.encode(),
            "action": delivery.action.value.encode(),
            "severity": event.severity.value.encode(),
        }
        key = event.run.encode("utf-8", "backslashreplace")
        value = msgspec.json.encode(envelope(delivery, self._wording))
        try:
            partition, offset = self._writer.write(self._settings.topic, key=key, value=value, headers=headers)
        except NotWritten as error:
            detail = self._redact(str(error))
            return Outcome(ok=False, retry=error.retry, reason=error.why, detail=detail, ambiguous=error.ambiguous)
        return Outcome(ok=True, reason="ok", remote=f"{partition}:{offset}")

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        self._writer.close()

    def _made(self) -> Any:
        # Imported where it is configured: it is large, and most have no Kafka.
        from collector.sources.kafka.writer import KafkaWriter

        settings = self._settings
        return KafkaWriter(
            settings.bootstrap, seconds=settings.timeout, connect_seconds=settings.connect_timeout, **self._security
        )

    def _looked_up(self) -> dict[str, Any]:
        """The security settings with their secrets. Raises SecretError."""
        return {
            name: self._secrets.value(parse_reference(value)) if isinstance(value, str) and is_reference(value) else value
            for name, value in self._settings.security.items()
        }


KIND = Kind(KafkaSettings, KafkaReceiver, KafkaReceiver.scope)

"""Carries stop requests to the jobs: to the control topic of the cluster that records come from, or into the spool folder.

A receiver like others, so that a request is durably begun, retried and never lost; but what it sends is not the row's event, it
is the request as the store holds it at that moment. One that was acknowledged, replaced or outlived by its attempt is not sent
any more, and one that expired before it could be sent is a failed delivery: nobody was asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from alerts.model import Delivery, Outcome
from alerts.pool import Lane
from alerts.secrets import SecretError, Secrets
from service import inputs, stop_requests
from service.config import Kafka, Settings
from service.stop_requests import RECEIVER, STATE, Stop
from service.store.store import Store
from tocsin import control, spool

log = logging.getLogger(__name__)

_HEADERS: Final = {"content-type": b"application/json"}


class Publish(Protocol):
    """One way to a job."""

    def send(self, request: control.StopRequest) -> Outcome:
        """One attempt, bounded in time; never raises."""

    def close(self) -> None: ...


class Control:
    """The receiver. `newest` gives the newest request of a run, from the store."""

    name = RECEIVER
    scope = "alert"

    def __init__(self, publish: Publish, newest: Callable[[str], Stop | None], clock: Callable[[], float]) -> None:
        self._publish = publish
        self._newest = newest
        self._clock = clock

    def send(self, delivery: Delivery) -> Outcome:
        stop = self._newest(delivery.event.run)
        if stop is None or stop.request.id != delivery.id:
            return Outcome(ok=False, needless=True, reason="replaced", detail="there is a newer request, or none any more")
        if stop.void or stop.acknowledged_at is not None:
            return Outcome(ok=False, needless=True, reason="over", detail=stop.over)
        if control.expired(stop.request, self._clock()):
            return Outcome(ok=False, reason="expired", detail="the job could not be asked before the request expired")
        outcome = self._publish.send(stop.request)
        if outcome.ok:
            log.info("run %r is asked to %s by rule %s", stop.request.run, stop.request.action, stop.request.rule)
        return outcome

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None  # sent a second time it is the same request

    def close(self) -> None:
        self._publish.close()


class SpoolControl:
    """A file in the spool folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, request: control.StopRequest) -> Outcome:
        try:
            path = spool.write_control(self._folder, request)
        except OSError as error:
            return Outcome(ok=False, retry=True, reason="not_written", detail=error.strerror or type(error).__name__)
        return Outcome(ok=True, reason="ok", remote=path.name)

    def close(self) -> None: ...


class KafkaControl:
    """A message on the control topic, key = run id, acknowledged by all replicas. Another producer takes over when a secret
    was rotated or an attempt failed."""

    def __init__(self, kafka: Kafka, secrets: Secrets) -> None:
        self._kafka = kafka
        self._secrets = secrets
        self._security: dict[str, Any] = {}
        self._writer: Any = None

    def send(self, request: control.StopRequest) -> Outcome:
        from collector.sources.kafka.writer import KafkaWriter, NotWritten

        try:
            security = inputs.security(self._kafka, self._secrets)
        except SecretError as error:
            return Outcome(ok=False, retry=True, reason="no_secret", detail=str(error))
        if self._writer is None or security != self._security:
            self.close()
            self._security = security
            self._writer = KafkaWriter(self._kafka.bootstrap, **security)
        key, topic = request.run.encode("utf-8", "backslashreplace"), self._kafka.control_topic
        try:
            partition, offset = self._writer.write(topic, key=key, value=control.encode(request), headers=_HEADERS)
        except NotWritten as error:
            detail = self._secrets.redactor.redact(str(error))
            return Outcome(ok=False, retry=error.retry, reason=error.why, detail=detail, ambiguous=error.ambiguous)
        return Outcome(ok=True, reason="ok", remote=f"{partition}:{offset}")

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def newest(store: Store, runs: Collection[str]) -> dict[str, Stop]:
    """The newest request of each of these runs that has one. One that cannot be read is logged and left out."""
    found = {}
    for run, value in store.kept(STATE, runs).items():
        try:
            found[run] = stop_requests.decode(value)
        except msgspec.MsgspecError:
            log.warning("run %s: the stored stop request cannot be read", run)
    return found


def lane(settings: Settings, secrets: Secrets, store: Store, clock: Callable[[], float]) -> Lane:
    """The receiver for the configured source; nothing is connected."""
    kafka = settings.config.source.kafka
    if kafka is not None:
        publish: Publish = KafkaControl(kafka, secrets)
    else:
        assert settings.spool is not None
        publish = SpoolControl(settings.spool)
    return Lane(Control(publish, lambda run: newest(store, [run]).get(run), clock))

"""A transport to Kafka: key = run id, value = JSON, message timestamp = the record's event time.

Delivery and outages are `forward`'s; here is only what speaks kafka-python. Its traps that matter in a training job:

- the constructor blocks until a broker answers and logs loudly meanwhile: so a plain TCP connect is tried first;
- `close` first waits for what can never be sent, and both `__del__` and an atexit hook call it, in forked children too;
- the producer retries for as long as it is told to; a confirmation that does not come in time ends the link instead.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tocsin import control
from tocsin.control import StopRequest
from tocsin.transports import RECORDS_TOPIC, Message
from tocsin.transports.backlog import DISK_BYTES, MEMORY_BYTES, Backlog
from tocsin.transports.forward import LinkDown, Outcome, StoreAndForward

with warnings.catch_warnings():
    # kafka-python 3.0.12 reads its schemas in a way that Python 3.11 deprecates; a job that runs with -W error must live.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import errors

DEFAULT_FALLBACK: Final = Path("tocsin-spool") / "kafka-fallback"
MAX_REQUEST_BYTES: Final = 5 * 1024 * 1024
"""Above the wire's limit of 4 MiB per record; what the broker takes (message.max.bytes) is the broker's decision."""
CONNECT_TIMEOUT: Final = 2.0
LOOK_INTERVAL: Final = 30.0
"""Seconds between two looks for a control topic that is not there."""
_LOOKED: Final = -1
"""The key in `marks` that says that the control topic was looked at before."""
_NO_TIMESTAMP: Final = -1
_FOR_GOOD: Final = (
    errors.InvalidTimestampError,
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidRecordError,
)


class KafkaTransport(StoreAndForward):
    """Sends to `bootstrap` ("host:port" each). While Kafka is away, records wait in `fallback` (bounded).

    `settings` go to kafka-python as they are (security_protocol, sasl_mechanism, ssl_cafile, compression_type ...).
    Nothing is connected here; the delivery thread does that at the first record.
    Raises ValueError for a server that is not host:port.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        topic: str = RECORDS_TOPIC,
        control_topic: str = control.TOPIC,
        fallback: Path | None = None,
        settings: Mapping[str, object] | None = None,
        memory_bytes: int = MEMORY_BYTES,
        disk_bytes: int = DISK_BYTES,
        patience: float = 5.0,
    ) -> None:
        folder = (fallback or DEFAULT_FALLBACK).absolute()  # a job may change its working directory
        addresses = [_address(server) for server in bootstrap]
        options: dict[str, Any] = dict(settings or {})
        memory = LinkMemory()
        self._arguments: dict[str, Any] = {
            "bootstrap": tuple(bootstrap),
            "topic": topic,
            "control_topic": control_topic,
            "fallback": folder,
            "settings": options,
            "memory_bytes": memory_bytes,
            "disk_bytes": disk_bytes,
            "patience": patience,
        }
        super().__init__(
            lambda: KafkaLink(addresses, topic, control_topic, options, memory),
            Backlog(folder, topic, memory_bytes=memory_bytes, disk_bytes=disk_bytes),
            patience=patience,
            name=f"Kafka at {','.join(bootstrap)}",
        )

    def fresh(self) -> KafkaTransport:
        self.drop_descriptors()
        return KafkaTransport(**self._arguments)


class LinkMemory:
    """What one link must tell the next."""

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        """Next offset of the control topic, by partition."""
        self.stamped = True
        """Messages carry their record's time. Off when the broker refuses it: this machine's clock is hours ahead."""


class KafkaLink:
    """One producer, and one consumer of the control topic if a run is watched. Raises LinkDown when no broker answers."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        topic: str,
        control_topic: str,
        options: Mapping[str, Any],
        memory: LinkMemory,
    ) -> None:
        if "proxy_url" not in options and "socks5_proxy" not in options:
            _knock(addresses)
        self._topic = topic
        self._memory = memory
        shared: dict[str, Any] = {
            "request_timeout_ms": 10_000,
            "reconnect_backoff_ms": 250,
            "reconnect_backoff_max_ms": 1_000,
            "bootstrap_timeout_ms": 5_000,
            "metrics_enabled": False,
            **options,
            "bootstrap_servers": [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses],
        }
        producing: dict[str, Any] = {
            "acks": "all",
            "enable_idempotence": True,
            "max_block_ms": 5_000,
            "max_request_size": MAX_REQUEST_BYTES,
            # Longer than any patience: a batch that expired on its own would let the next one overtake it.
            "delivery_timeout_ms": 120_000,
        }
        consuming: dict[str, Any] = {
            **{key: value for key, value in shared.items() if key in kafka.KafkaConsumer.DEFAULT_CONFIG},
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "latest",
            "allow_auto_create_topics": False,
        }
        self._control = ControlReader(control_topic, consuming, memory.marks)
        self._producer = _made(_Producer, {**producing, **shared})

    def deliver(self, messages: Sequence[Message], patience: float) -> Outcome:
        deadline = time.monotonic() + patience
        futures: list[Any] = []
        refused = down = ""
        for message in messages:
            try:
                futures.append(
                    self._producer.send(
                        self._topic,
                        key=message.run.encode(),
                        value=message.value,
                        timestamp_ms=int(min(message.time, time.time()) * 1000) if self._memory.stamped else _NO_TIMESTAMP,
                    )
                )
            except _FOR_GOOD as error:
                refused = _said(error)
                break
            except errors.KafkaTimeoutError:
                down = f"no answer about topic {self._topic}; does it exist?"
                break
            except Exception as error:
                down = _said(error)  # whatever the client library throws: this link is over
                break
        for index, future in enumerate(futures):
            try:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
            except _FOR_GOOD as error:
                if "imestamp" in _said(error) and self._memory.stamped:
                    self._memory.stamped = False
                    return Outcome(index, down=_said(error))
                return Outcome(index, refused=_said(error))
            except Exception as error:
                return Outcome(index, down=_said(error))
        return Outcome(len(futures), refused, down)

    def watch(self, run: str) -> None:
        self._control.run = run.encode()
        self._control.look()

    def stop_request(self) -> StopRequest | None:
        return self._control.newest()

    def close(self) -> None:
        self._producer.abandon()
        self._control.close()


class ControlReader:
    """Reads the control topic of one link. All partitions: who writes it may partition as it likes.

    `marks` holds the next offset by partition and outlives the link: a request written while the link was down is found.
    What was there before the first look belongs to an earlier start of the job and is passed over; a partition that
    appears later is read from its beginning.
    """

    def __init__(self, topic: str, settings: Mapping[str, Any], marks: dict[int, int]) -> None:
        self.run = b""
        self._topic = topic
        self._settings = settings
        self._marks = marks
        self._consumer: Any = None
        self._assigned = False
        self._look_at = 0.0

    def look(self) -> None:
        """Find the topic's partitions and begin to read them. Raises LinkDown."""
        self._look_at = time.monotonic() + LOOK_INTERVAL
        try:
            if self._consumer is None:
                self._consumer = _made(kafka.KafkaConsumer, self._settings)
            numbers = sorted(self._consumer.partitions_for_topic(self._topic) or ())
            partitions = {number: kafka.TopicPartition(self._topic, number) for number in numbers}
            if partitions:
                self._consumer.assign(list(partitions.values()))
                self._assigned = True
            for number, partition in partitions.items():
                if number in self._marks:
                    self._consumer.seek(partition, self._marks[number])
                elif _LOOKED in self._marks:
                    self._consumer.seek_to_beginning(partition)
                else:
                    self._consumer.seek_to_end(partition)
                    self._marks[number] = self._consumer.position(partition)  # "the end" of now, not of the first poll
            self._marks[_LOOKED] = 1
        except (errors.KafkaError, OSError) as error:
            raise LinkDown(f"control topic {self._topic}: {error}") from None

    def newest(self) -> StopRequest | None:
        """The last request to the run since the previous call. Raises LinkDown."""
        if self._consumer is None:
            return None
        if not self._assigned:
            if time.monotonic() < self._look_at:
                return None
            self.look()
        try:
            batches = self._consumer.poll(timeout_ms=0) if self._assigned else {}
        except (errors.KafkaError, OSError) as error:
            raise LinkDown(f"control topic {self._topic}: {error}") from None
        newest = None
        for partition, messages in batches.items():
            for message in messages:
                self._marks[partition.partition] = message.offset + 1
                if message.key == self.run and message.value is not None:
                    with contextlib.suppress(control.ControlError):  # of a newer version, or not for clients
                        newest = control.decode(message.value)
        return newest

    def close(self) -> None:
        """Let go of the consumer; the marks stay."""
        if self._consumer is not None:
            with contextlib.suppress(errors.KafkaError, OSError):  # it is let go of in any case
                self._consumer.close(autocommit=False, timeout_ms=1_000)
            self._consumer = None


class _Producer(kafka.KafkaProducer):  # type: ignore[misc]  # kafka-python ships no types
    """A producer that can be thrown away without waiting, and that a forked child never touches."""

    def __init__(self, **settings: Any) -> None:
        self._owner = os.getpid()
        super().__init__(**settings)
        # kafka's own exit hook would run before the Reporter's and close the producer under its last flush.
        self._unregister_cleanup()

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        if os.getpid() == self._owner:
            super().close(timeout, null_logger)

    def abandon(self) -> None:
        """Fail what is under way and close the sockets; wait a moment so that nothing of it is sent later."""
        self._sender.force_close()
        self._sender.join(2.0)
        with contextlib.suppress(errors.KafkaError):  # it is given up in any case
            self.close(timeout=0)


def _made(kind: Any, settings: Mapping[str, Any]) -> Any:
    """A kafka-python client. Raises LinkDown; then the sockets are closed that its constructor leaves open."""
    clients = []

    def client(**config: Any) -> Any:
        clients.append(kind.DEFAULT_CONFIG["kafka_client"](**config))
        return clients[-1]

    try:
        return kind(**{**settings, "kafka_client": client})
    except Exception as error:
        for left in clients:
            left.close()
        raise LinkDown(_said(error)) from error


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{server!r}: expected host:port")
    return host.strip("[]"), int(port)


def _knock(addresses: Sequence[tuple[str, int]]) -> None:
    """Return when any server accepts a connection, else raise LinkDown."""
    reasons = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT).close()
            return
        except OSError as error:
            reasons.append(f"{host}:{port}: {error}")
    raise LinkDown("; ".join(reasons))

"""Ways out of a training job: `memory`, `spool` (a folder), `kafka`. One protocol, one contract suite on all of them.

A transport takes custody of messages and never gives trouble back: what it cannot pass on now it keeps, within bounds;
what it cannot keep it drops, oldest step records first, and counts by reason. Within a run nothing is reordered.

Errors:

    ValueError    `from_url` and the constructors, for a setting that cannot be meant; nothing else is raised, ever
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tocsin.control import StopRequest

RECORDS_TOPIC: Final = "tocsin.records"


class Message(NamedTuple):
    """One encoded record on its way."""

    run: str
    """The run id; the message key in Kafka."""
    value: bytes
    """The record as JSON, no newline in it."""
    time: float
    """The record's event time, seconds since the epoch; the message timestamp in Kafka."""
    keep: bool = False
    """A run or end record: never dropped."""


class TransportCounts(NamedTuple):
    """What became of the messages so far. taken = delivered + waiting + sum(dropped), duplicates aside."""

    delivered: int = 0
    """Confirmed by the broker, or written to the spool."""
    waiting: int = 0
    """In custody: in memory, or in the fallback folder."""
    spooled: int = 0
    """Of all messages so far, those that went through the fallback folder."""
    dropped: Mapping[str, int] = {}
    """By reason: memory_full, spool_full, refused."""
    errors: int = 0
    """Failed attempts (connect, deliver, write, read control)."""


class Transport(Protocol):
    """What a Reporter sends through. All methods but `counts` are called on one thread (the Reporter's sender)."""

    def send(self, messages: Sequence[Message]) -> None:
        """Take custody of messages, in this order. Never raises, never waits for a network."""

    def watch(self, run: str) -> None:
        """Look for stop requests to this run from now on; those that are already there belong to an earlier start."""

    def stop_request(self) -> StopRequest | None:
        """The newest stop request to the watched run, expired or not. Cheap enough for once a second. Never raises."""

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until nothing is left in memory only. Returns whether that is so."""

    def close(self, timeout: float) -> None:
        """Flush, then let go of files, sockets and threads. Idempotent; `send` after `close` drops and counts."""

    def counts(self) -> TransportCounts:
        """Cheap and callable from any thread."""

    def fresh(self) -> Transport:
        """A new transport with the same settings, for a forked child; shares nothing with this one and sends nothing of it."""


def from_url(url: str, *, fallback: Path | None = None, settings: Mapping[str, object] | None = None) -> Transport:
    """The transport that a URL names: `kafka://host:port[,host:port][/topic]`, `spool:/path`, `memory:`.

    `fallback` is the folder for records while Kafka is away, `settings` are kafka-python's (SASL, TLS ...).
    Raises ValueError for any other text.
    """
    if url.startswith("kafka://"):
        servers, _, topic = url.removeprefix("kafka://").partition("/")
        bootstrap = [server for server in servers.split(",") if server]
        if not bootstrap or "/" in topic:
            raise ValueError(f"{url!r}: expected kafka://host:port[,host:port][/topic]")
        from tocsin.transports.kafka import KafkaTransport  # kafka-python is heavy: only who uses it pays for it

        return KafkaTransport(bootstrap, topic=topic or RECORDS_TOPIC, fallback=fallback, settings=settings)
    if url.startswith("spool:") and (path := url.removeprefix("spool:").removeprefix("//")):
        from tocsin.transports.spool import SpoolTransport

        return SpoolTransport(Path(path))
    if url == "memory:":
        from tocsin.transports.memory import MemoryTransport

        return MemoryTransport()
    raise ValueError(f"{url!r} is no transport: expected kafka://host:port/topic, spool:/path or memory:")

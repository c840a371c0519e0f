"""The seams to the outside world. Each has one contract suite in `tests/contracts/`, run on every implementation.

Errors:

    SourceUnavailable    the source cannot be read now (broker down); the caller is not ready and polls again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from collector.model import Batch


class SourceUnavailable(Exception):
    """The source cannot be reached. Never fatal: records wait in the client's spool."""


class Positions(Protocol):
    """Where to go on reading. The store's word is the authority, not the broker's committed offset."""

    def position(self, partition: str) -> int | None:
        """Offset of the next record of a partition; None when it was never read."""


class Source(Protocol):
    """Raw bytes with positions, from Kafka, a spool folder, a file, or memory.

    At least once and in order within a partition: after `poll` returned a record, a source that is opened anew with
    positions before it returns it again, byte for byte, with the same offset.
    """

    def open(self, positions: Positions) -> None:
        """Begin to read. Positions are looked up at each assignment."""

    def poll(self, timeout: float) -> Batch:
        """The next records, waiting up to `timeout` seconds for the first. An empty batch is no end.

        Raises SourceUnavailable while the source cannot be reached.
        """

    def committed(self, positions: Mapping[str, int]) -> None:
        """The store holds everything before these offsets. For display (consumer lag) and clean-up only."""

    def lag(self) -> Mapping[str, int]:
        """Records (Kafka) or bytes (files) known to wait, by partition."""

    @property
    def finished(self) -> bool:
        """True when nothing can ever come again (a file read to its end); a live source is never finished."""

    def close(self) -> None: ...


class DeadLetters(Protocol):
    """Where values go that are no records. Bounded; never raises into the loop."""

    def put(self, *, partition: str, offset: int, reason: str, detail: str, value: bytes, rejected_at: float) -> None:
        """Keep one rejected value with its position. What does not fit is counted, not kept."""

    def close(self) -> None: ...

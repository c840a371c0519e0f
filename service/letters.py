"""Values that are no records, on their way to the dead letters: each once, also when its batch comes a second time."""

from __future__ import annotations

from collector.ports import DeadLetters
from service.tally import Tally


class Letters:
    """Of one pipeline. Letters are not part of its transaction: a batch that was not committed is read again, and with it the
    values that have their letter already."""

    def __init__(self, sink: DeadLetters, tally: Tally) -> None:
        self._sink = sink
        self._tally = tally
        self._written: set[tuple[str, int]] = set()

    def put(self, partition: str, offset: int, reason: str, detail: str, value: bytes, now: float) -> None:
        """Count a value and keep it with its place."""
        self._tally.rejected(reason)
        if (partition, offset) not in self._written:
            self._written.add((partition, offset))
            self._sink.put(partition=partition, offset=offset, reason=reason, detail=detail, value=value, rejected_at=now)

    def committed(self) -> None:
        """The batch will not come again."""
        self._written.clear()

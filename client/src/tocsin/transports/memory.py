"""A transport into a list: for tests, for benchmarks, and for notebooks that only want to look."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin import wire
from tocsin.control import StopRequest
from tocsin.transports import Message, TransportCounts


class MemoryTransport:
    """Keeps the newest `max_messages` messages. Nothing leaves the process."""

    def __init__(self, max_messages: int = 100_000) -> None:
        self.messages: list[Message] = []
        self._max_messages = max_messages
        self._requests: dict[str, StopRequest] = {}
        self._watched = ""
        self._stale = ""
        self._delivered = 0
        self._dropped = 0
        self._closed = False

    @property
    def records(self) -> list[wire.Record]:
        """What was sent, decoded."""
        return [wire.decode(message.value).record for message in self.messages]

    def request_stop(self, request: StopRequest) -> None:
        """Play the collector: ask a run to stop."""
        self._requests[request.run] = request

    def send(self, messages: Sequence[Message]) -> None:
        if self._closed:
            self._dropped += len(messages)
            return
        self.messages.extend(messages)
        self._delivered += len(messages)
        surplus = len(self.messages) - self._max_messages
        if surplus > 0:
            kept = [message for message in self.messages[:surplus] if message.keep]
            self._dropped += surplus - len(kept)
            self._delivered -= surplus - len(kept)
            self.messages[:surplus] = kept

    def watch(self, run: str) -> None:
        self._watched = run
        stale = self._requests.get(run)
        self._stale = stale.id if stale is not None else ""

    def stop_request(self) -> StopRequest | None:
        request = self._requests.get(self._watched)
        return request if request is not None and request.id != self._stale else None

    def flush(self, timeout: float) -> bool:
        return True

    def close(self, timeout: float) -> None:
        self._closed = True

    def counts(self) -> TransportCounts:
        dropped = {"memory_full" if not self._closed else "closed": self._dropped} if self._dropped else {}
        return TransportCounts(delivered=self._delivered, dropped=dropped)

    def fresh(self) -> MemoryTransport:
        return MemoryTransport(self._max_messages)

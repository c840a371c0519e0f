"""The delivery queue in memory: the twin of the store's, for replays and tests. One contract suite runs on both."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from alerts.model import Action, Delivery, DeliveryStatus, Root

_OPEN: Final = (DeliveryStatus.PENDING, DeliveryStatus.SENDING)


class MemoryQueue:
    """DeliveryQueue on a dict. What it hands out are copies, as a database would."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, Delivery] = {}
        """By id, in order of commit."""
        self._sequence = 0

    def insert(self, deliveries: Iterable[Delivery]) -> None:
        """Commit new rows, all or none. Raises ValueError for an id that exists."""
        with self._lock:
            rows = {row.id: row for row in deliveries}
            if repeated := rows.keys() & self._rows.keys():
                raise ValueError(f"these deliveries exist already: {sorted(repeated)}")
            for row in rows.values():
                self._sequence += 1
                self._rows[row.id] = replace(row, sequence=self._sequence)

    def rows(self) -> list[Delivery]:
        """All rows, in order of commit."""
        with self._lock:
            return [replace(row) for row in self._rows.values()]

    def waiting(self) -> set[str]:
        """Receivers that have rows which are not final."""
        with self._lock:
            return {row.receiver for row in self._rows.values() if row.status in _OPEN}

    def due(self, receiver: str, now: float, limit: int) -> Sequence[Delivery]:
        """Rows that may be sent now, in order of commit; at most one per dedup key."""
        with self._lock:
            return [replace(row) for row in self._heads(receiver) if row.not_before <= now][:limit]

    def next_due_at(self, receiver: str) -> float | None:
        """The earliest `not_before` of the rows that wait for nothing but time."""
        with self._lock:
            return min((row.not_before for row in self._heads(receiver)), default=None)

    def begin(self, delivery: Delivery) -> None:
        """SENDING with one more attempt; the given delivery is changed accordingly."""
        delivery.status = DeliveryStatus.SENDING
        delivery.attempts += 1
        self._write(delivery)

    def finish(self, delivery: Delivery) -> None:
        """What became of the attempt, unless a later one has begun."""
        self._write(delivery)

    def delivered(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        """True when a trigger of that episode was sent, or an attempt at it may have arrived."""
        with self._lock:
            return any(
                row.ambiguous or row.status in (DeliveryStatus.SENT, DeliveryStatus.SENDING)
                for row in self._rows.values()
                if row.action is Action.TRIGGER
                and row.receiver == receiver
                and _episode(row) == (incident, fingerprint, episode)
            )

    def ending(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        """True when there is a resolve of that episode, in whatever state."""
        with self._lock:
            return any(
                row.action is Action.RESOLVE and row.receiver == receiver and _episode(row) == (incident, fingerprint, episode)
                for row in self._rows.values()
            )

    def beginning(self, receiver: str, incident: str, fingerprint: str, episode: int) -> Delivery | None:
        """The newest trigger of that episode that was sent."""
        with self._lock:
            for row in reversed(self._rows.values()):
                if row.action is Action.TRIGGER and row.status is DeliveryStatus.SENT:
                    if _episode(row) == (incident, fingerprint, episode) and row.receiver == receiver:
                        return replace(row)
        return None

    def root(self, receiver: str, dedup_key: str, incident: str) -> Root | None:
        """The first and the newest row that were sent."""
        with self._lock:
            sent = [
                row
                for row in self._rows.values()
                if (row.receiver, row.dedup_key, row.incident) == (receiver, dedup_key, incident)
                and row.status is DeliveryStatus.SENT
                and row.remote
            ]
            return Root(replace(sent[0]), sent[-1].remote) if sent else None

    def held(self, receiver: str) -> Sequence[Delivery]:
        """Sent triggers without a resolve, in order of commit."""
        with self._lock:
            rows = [row for row in self._rows.values() if row.receiver == receiver]
            ended = {_episode(row) for row in rows if row.action is Action.RESOLVE}
            return [
                replace(row)
                for row in rows
                if row.action is Action.TRIGGER and row.status is DeliveryStatus.SENT and _episode(row) not in ended
            ]

    def ended(self, receiver: str, since: float) -> Sequence[Delivery]:
        """Sent resolves that were planned since then, in order of commit."""
        with self._lock:
            return [
                replace(row)
                for row in self._rows.values()
                if row.receiver == receiver
                and (row.action, row.status) == (Action.RESOLVE, DeliveryStatus.SENT)
                and row.created_at >= since
            ]

    def interrupted(self, receiver: str) -> Sequence[Delivery]:
        """Rows found SENDING, in order of commit."""
        with self._lock:
            return [
                replace(row) for row in self._rows.values() if row.receiver == receiver and row.status is DeliveryStatus.SENDING
            ]

    def _heads(self, receiver: str) -> list[Delivery]:
        """Pending rows with nothing open before them under the same dedup key."""
        blocked: set[str] = set()
        heads = []
        for row in self._rows.values():
            if row.receiver != receiver or row.status not in _OPEN:
                continue
            if row.dedup_key not in blocked and row.status is DeliveryStatus.PENDING:
                heads.append(row)
            blocked.add(row.dedup_key)
        return heads

    def _write(self, delivery: Delivery) -> None:
        with self._lock:
            known = self._rows.get(delivery.id)
            if known is None:
                raise ValueError(f"no delivery has the id {delivery.id!r}")
            if known.attempts <= delivery.attempts:
                self._rows[delivery.id] = replace(delivery)


def _episode(row: Delivery) -> tuple[str, str, int]:
    """Which episode a row is about; the incident is part of it, for a rule that lost its state counts its episodes anew."""
    return row.incident, row.fingerprint, row.event.episode

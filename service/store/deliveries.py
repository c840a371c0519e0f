"""The delivery rows as the workers see them (`alerts.ports.DeliveryQueue`), safe to call from several threads."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row, Select, and_, exists, func, or_, select, update

from alerts.brief import Brief
from alerts.model import Action, BoardLine, Delivery, DeliveryStatus, Root
from rules.model import AlertEvent
from service.store import schema
from service.store.database import Database
from service.store.model import StoreError

log = logging.getLogger(__name__)

_event = msgspec.msgpack.Decoder(AlertEvent).decode
_brief = msgspec.msgpack.Decoder(Brief).decode
_board = msgspec.msgpack.Decoder(tuple[BoardLine, ...]).decode

_ROWS = schema.deliveries
_EARLIER = _ROWS.alias("earlier")
_PENDING = DeliveryStatus.PENDING.value
_SENDING = DeliveryStatus.SENDING.value

# A row waits while an earlier one of its (receiver, dedup_key) is open: a resolve never overtakes its trigger.
_HEAD = ~exists().where(
    and_(
        _EARLIER.c.receiver == _ROWS.c.receiver,
        _EARLIER.c.dedup_key == _ROWS.c.dedup_key,
        _EARLIER.c.sequence < _ROWS.c.sequence,
        _EARLIER.c.status.in_((_PENDING, _SENDING)),
    )
)

_END = _ROWS.alias("ending")
_NOT_ENDED = ~exists().where(
    and_(
        _END.c.receiver == _ROWS.c.receiver,
        _END.c.incident == _ROWS.c.incident,  # a rule that lost its state counts its episodes anew
        _END.c.fingerprint == _ROWS.c.fingerprint,
        _END.c.episode == _ROWS.c.episode,
        _END.c.action == Action.RESOLVE.value,
    )
)

_OF_OPEN = _ROWS.c.incident.in_(select(schema.incidents.c.id).where(schema.incidents.c.closed_at.is_(None)))


class Backlog(NamedTuple):
    """Deliveries of one receiver that are not final."""

    rows: int
    oldest: float
    """When the oldest of them was committed."""


class Deliveries:
    """DeliveryQueue on the store's tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def due(self, receiver: str, now: float, limit: int) -> Sequence[Delivery]:
        """Rows that may be sent now, in order of commit; at most one per dedup key."""
        rows = (
            select(_ROWS)
            .where(_ROWS.c.receiver == receiver, _ROWS.c.status == _PENDING, _ROWS.c.not_before <= now, _HEAD)
            .order_by(_ROWS.c.sequence)
            .limit(limit)
        )
        with self._database.read() as connection:
            return [_delivery(row) for row in connection.execute(rows)]

    def next_due_at(self, receiver: str) -> float | None:
        """The earliest `not_before` of the rows that wait for nothing but time."""
        earliest = select(func.min(_ROWS.c.not_before)).where(_ROWS.c.receiver == receiver, _ROWS.c.status == _PENDING, _HEAD)
        with self._database.read() as connection:
            found = connection.scalar(earliest)
        return None if found is None else float(found)

    def begin(self, delivery: Delivery) -> None:
        """Commit SENDING and one more attempt; the given delivery is changed accordingly."""
        delivery.status = DeliveryStatus.SENDING
        delivery.attempts += 1
        self._update(delivery)

    def finish(self, delivery: Delivery) -> None:
        """Commit what became of the attempt, unless a later one has begun."""
        self._update(delivery)

    def delivered(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        """True when the trigger of that episode was sent, or an attempt at it may have arrived."""
        arrived = or_(_ROWS.c.status.in_((DeliveryStatus.SENT.value, _SENDING)), _ROWS.c.ambiguous)
        return self._any(_of(receiver, incident, fingerprint, episode, Action.TRIGGER).where(arrived))

    def ending(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        """True when there is a resolve of that episode, in whatever state."""
        return self._any(_of(receiver, incident, fingerprint, episode, Action.RESOLVE))

    def beginning(self, receiver: str, incident: str, fingerprint: str, episode: int) -> Delivery | None:
        """The newest trigger of that episode that was sent."""
        sent = _of(receiver, incident, fingerprint, episode, Action.TRIGGER).where(_ROWS.c.status == DeliveryStatus.SENT.value)
        with self._database.read() as connection:
            row = connection.execute(sent.order_by(_ROWS.c.sequence.desc()).limit(1)).first()
        return None if row is None else _delivery(row)

    def root(self, receiver: str, dedup_key: str, incident: str) -> Root | None:
        """The first and the newest row that were sent."""
        sent = select(_ROWS).where(
            _ROWS.c.receiver == receiver,
            _ROWS.c.dedup_key == dedup_key,
            _ROWS.c.incident == incident,
            _ROWS.c.status == DeliveryStatus.SENT.value,
            _ROWS.c.remote != "",
        )
        with self._database.read() as connection:
            first = connection.execute(sent.order_by(_ROWS.c.sequence).limit(1)).first()
            newest = connection.execute(sent.order_by(_ROWS.c.sequence.desc()).limit(1)).first()
        return None if first is None or newest is None else Root(_delivery(first), newest.remote)

    def status(self, receiver: str, incident: str, fingerprint: str, episode: int) -> DeliveryStatus | None:
        """What became of the newest trigger of that episode; None when there is none."""
        found = _of(receiver, incident, fingerprint, episode, Action.TRIGGER).with_only_columns(_ROWS.c.status)
        with self._database.read() as connection:
            status = connection.scalar(found.order_by(_ROWS.c.sequence.desc()).limit(1))
        return None if status is None else DeliveryStatus(status)

    def held(self, receiver: str) -> Sequence[Delivery]:
        """Sent triggers without a resolve, of open incidents, in order of commit."""
        rows = select(_ROWS).where(
            _ROWS.c.receiver == receiver,
            _ROWS.c.action == Action.TRIGGER.value,
            _ROWS.c.status == DeliveryStatus.SENT.value,
            _NOT_ENDED,
            _OF_OPEN,
        )
        with self._database.read() as connection:
            return [_delivery(row) for row in connection.execute(rows.order_by(_ROWS.c.sequence))]

    def told_of_open(self) -> set[str]:
        """Receivers to which anything about an open incident was sent, also when all that they were told is over by now."""
        told = select(_ROWS.c.receiver).where(_ROWS.c.status == DeliveryStatus.SENT.value, _OF_OPEN).distinct()
        with self._database.read() as connection:
            return set(connection.execute(told).scalars())

    def ended(self, receiver: str, since: float) -> Sequence[Delivery]:
        """Sent resolves that were planned since then, in order of commit."""
        rows = select(_ROWS).where(
            _ROWS.c.receiver == receiver,
            _ROWS.c.action == Action.RESOLVE.value,
            _ROWS.c.status == DeliveryStatus.SENT.value,
            _ROWS.c.created_at >= since,
        )
        with self._database.read() as connection:
            return [_delivery(row) for row in connection.execute(rows.order_by(_ROWS.c.sequence))]

    def interrupted(self, receiver: str) -> Sequence[Delivery]:
        """Rows found SENDING: a crash fell between the attempt and its outcome."""
        rows = select(_ROWS).where(_ROWS.c.receiver == receiver, _ROWS.c.status == _SENDING).order_by(_ROWS.c.sequence)
        with self._database.read() as connection:
            return [_delivery(row) for row in connection.execute(rows)]

    def waiting(self) -> set[str]:
        """Receivers that have rows which are not final; `DeliveryPool` fails those of receivers that are gone."""
        open_rows = select(_ROWS.c.receiver).where(_ROWS.c.status.in_((_PENDING, _SENDING))).distinct()
        with self._database.read() as connection:
            return set(connection.execute(open_rows).scalars())

    def revive(self, receivers: Collection[str], now: float) -> int:
        """Let these receivers be told once more, from `now` on, of what fires and what they refused for good; of how many
        messages. A message of which an attempt may have arrived is none of them."""
        told = _ROWS.alias("told")
        elsewhere = exists().where(
            told.c.receiver == _ROWS.c.receiver,
            told.c.incident == _ROWS.c.incident,
            told.c.fingerprint == _ROWS.c.fingerprint,
            told.c.episode == _ROWS.c.episode,
            told.c.action == Action.TRIGGER.value,
            told.c.status == DeliveryStatus.SENT.value,
        )
        refused = select(_ROWS.c.id).where(
            _ROWS.c.receiver.in_(list(receivers)),
            _ROWS.c.action == Action.TRIGGER.value,
            _ROWS.c.status == DeliveryStatus.FAILED.value,
            _ROWS.c.ambiguous.is_(False),
            _NOT_ENDED,
            ~elsewhere,
            _OF_OPEN,
        )
        with self._database.write() as connection:
            ids = list(connection.execute(refused).scalars())
            for id_ in ids:
                again = update(_ROWS).where(_ROWS.c.id == id_).values(status=_PENDING, not_before=now)
                connection.execute(again)
        return len(ids)

    def backlog(self) -> dict[str, Backlog]:
        """What is not final, by receiver."""
        query = (
            select(_ROWS.c.receiver, func.count(), func.min(_ROWS.c.created_at))
            .where(_ROWS.c.status.in_((_PENDING, _SENDING)))
            .group_by(_ROWS.c.receiver)
        )
        with self._database.read() as connection:
            return {receiver: Backlog(count, oldest) for receiver, count, oldest in connection.execute(query)}

    def _any(self, query: Select[Any]) -> bool:
        with self._database.read() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def _update(self, delivery: Delivery) -> None:
        with self._database.write() as connection:
            changed = connection.execute(
                update(_ROWS)
                .where(_ROWS.c.id == delivery.id, _ROWS.c.attempts <= delivery.attempts)
                .values(
                    status=delivery.status.value,
                    attempts=delivery.attempts,
                    not_before=delivery.not_before,
                    error=delivery.error,
                    ambiguous=delivery.ambiguous,
                    remote=delivery.remote,
                )
            )
            if changed.rowcount != 1 and connection.scalar(select(_ROWS.c.id).where(_ROWS.c.id == delivery.id)) is None:
                raise StoreError(f"no delivery has the id {delivery.id!r}")


def _of(receiver: str, incident: str, fingerprint: str, episode: int, action: Action) -> Select[Any]:
    """Rows about one episode."""
    return select(_ROWS).where(
        _ROWS.c.receiver == receiver,
        _ROWS.c.fingerprint == fingerprint,
        _ROWS.c.episode == episode,
        _ROWS.c.incident == incident,
        _ROWS.c.action == action.value,
    )


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        id=row.id,
        receiver=row.receiver,
        action=Action(row.action),
        incident=row.incident,
        dedup_key=row.dedup_key,
        fingerprint=row.fingerprint,
        event=_event(row.event),
        status=DeliveryStatus(row.status),
        attempts=row.attempts,
        not_before=row.not_before,
        created_at=row.created_at,
        sequence=row.sequence,
        error=row.error,
        ambiguous=bool(row.ambiguous),
        remote=row.remote,
        note=row.note,
        board=_board(row.board),
        brief=_brief_of(row),
    )


def _brief_of(row: Row[Any]) -> Brief | None:
    """What is said beside the event is never the reason why a row cannot be read, and its queue stands still."""
    if row.brief is None:
        return None
    try:
        return _brief(row.brief)
    except msgspec.MsgspecError as error:
        log.warning("the brief of delivery %s cannot be read, it goes out without: %s", row.id, error)
        return None

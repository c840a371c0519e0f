"""What people look up about an incident beside its row: who was told, what happened meanwhile, what there was before.

Plain reading, beside the writer; every answer is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import func, select

from alerts.model import Action, DeliveryStatus, Incident
from rules.model import AlertEvent
from service.store import schema
from service.store.database import Database
from service.store.model import AlertRow, RunRow
from service.store.store import run_of

_event = msgspec.msgpack.Decoder(AlertEvent).decode
_incident = msgspec.msgpack.Decoder(Incident).decode


class Heard(NamedTuple):
    """One delivery row, as far as it is about people."""

    created_at: float
    receiver: str
    action: Action
    alert: str
    status: DeliveryStatus
    attempts: int
    not_before: float
    error: str
    """Redacted by the worker."""
    note: str


class Some(NamedTuple):
    """A bounded list, and how many there are in all."""

    rows: Sequence[Heard]
    total: int


def run(database: Database, name: str) -> RunRow | None:
    """One run, without its checkpoint; None when it never sent a record, or is forgotten."""
    table = schema.runs
    query = select(table).where(table.c.run == name)
    with database.read() as connection:
        row = connection.execute(query).first()
    return None if row is None else run_of(row)


def closed_incidents(database: Database, *, of_run: str | None = None, limit: int = 20) -> Sequence[Incident]:
    """Incidents that are over, those that ended last first."""
    table = schema.incidents
    query = select(table.c.incident).where(table.c.closed_at.is_not(None))
    query = query if of_run is None else query.where(table.c.run == of_run)
    with database.read() as connection:
        values = connection.execute(query.order_by(table.c.closed_at.desc(), table.c.id).limit(limit)).scalars()
        return [_incident(value) for value in values]


def events_between(database: Database, of_run: str, begin: float, end: float | None, limit: int = 200) -> Sequence[AlertRow]:
    """The event log of a run from `begin` to `end` (by the clock of its events, both included), newest first."""
    table = schema.alerts
    query = select(table.c.sequence, table.c.committed_at, table.c.event).where(
        table.c.run == of_run, table.c.event_time >= begin
    )
    query = query if end is None else query.where(table.c.event_time <= end)
    with database.read() as connection:
        rows = connection.execute(query.order_by(table.c.sequence.desc()).limit(limit))
        return [AlertRow(row.sequence, row.committed_at, _event(row.event)) for row in rows]


def heard(database: Database, incident: str, limit: int = 200) -> Some:
    """Who was told what of an incident, newest first."""
    table = schema.deliveries
    rows = select(table).where(table.c.incident == incident).order_by(table.c.sequence.desc()).limit(limit)
    count = select(func.count()).select_from(table).where(table.c.incident == incident)
    with database.read() as connection:
        total = int(connection.scalar(count) or 0)
        return Some(
            [
                Heard(
                    row.created_at,
                    row.receiver,
                    Action(row.action),
                    _event(row.event).alert,
                    DeliveryStatus(row.status),
                    row.attempts,
                    row.not_before,
                    row.error,
                    row.note,
                )
                for row in connection.execute(rows)
            ],
            total,
        )

"""What the store forgets: raw rows that no restart needs, old history, ended runs. Never an open incident or delivery."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from alerts.model import DeliveryStatus
from collector.model import RunStatus
from service.store import schema
from service.store.model import Retention, Swept

_OPEN = (DeliveryStatus.PENDING.value, DeliveryStatus.SENDING.value)


def sweep(connection: Connection, keep: Retention, now: float) -> Swept:
    """Delete what is over its bounds; `now` is the wall clock."""
    oldest = now - keep.history_age
    runs = _ended_runs(connection, oldest)
    records = _records(connection, keep, now)
    # A delivery is kept as long as its incident: who was told the beginning must be told the end.
    closed = select(schema.incidents.c.id).where(schema.incidents.c.closed_at < oldest)
    deliveries = connection.execute(
        delete(schema.deliveries).where(
            schema.deliveries.c.created_at < oldest,
            schema.deliveries.c.status.not_in(_OPEN),
            schema.deliveries.c.incident.in_(closed),
        )
    ).rowcount
    still_told = select(schema.deliveries.c.incident)
    incidents = connection.execute(
        delete(schema.incidents).where(schema.incidents.c.closed_at < oldest, schema.incidents.c.id.not_in(still_told))
    ).rowcount
    events = connection.execute(delete(schema.alerts).where(schema.alerts.c.committed_at < oldest)).rowcount
    return Swept(records=records, events=events, incidents=incidents, deliveries=deliveries, runs=runs)


def _records(connection: Connection, keep: Retention, now: float) -> int:
    """Rows of the log that the checkpoint holds already and that are over the bound by count or by age."""
    deleted = 0
    bounds = select(schema.runs.c.run, schema.runs.c.sequence, schema.runs.c.checkpoint_sequence)
    for run, sequence, checkpoint_sequence in connection.execute(bounds).all():
        of_run = schema.records.c.run == run
        spare = schema.records.c.sequence <= min(checkpoint_sequence, sequence - keep.records_per_run)
        deleted += connection.execute(delete(schema.records).where(of_run, spare)).rowcount
        aged = (schema.records.c.sequence <= checkpoint_sequence) & (schema.records.c.received_at < now - keep.record_age)
        deleted += connection.execute(delete(schema.records).where(of_run, aged)).rowcount
    return deleted


def _ended_runs(connection: Connection, oldest: float) -> int:
    """Forget runs that ended long ago, with their checkpoint, rows and rule states."""
    still_open = select(schema.incidents.c.run).where(schema.incidents.c.closed_at.is_(None))
    ended = (
        connection.execute(
            select(schema.runs.c.run).where(
                schema.runs.c.status != RunStatus.RUNNING.value,
                schema.runs.c.last_arrival < oldest,
                schema.runs.c.run.not_in(still_open),
            )
        )
        .scalars()
        .all()
    )
    for run in ended:
        for table in (schema.records, schema.rule_state, schema.active_alerts, schema.runs):
            connection.execute(delete(table).where(table.c.run == run))
    return len(ended)

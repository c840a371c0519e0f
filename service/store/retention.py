"""What the store forgets: raw rows that no restart needs, old history, ended runs. Never an open incident or delivery."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from alerts.model import DeliveryStatus
from collector.model import RunStatus
from service.store import schema
from service.store.database import Database
from service.store.model import Retention, Swept

_RUNS_AT_ONCE = 50
_OPEN = (DeliveryStatus.PENDING.value, DeliveryStatus.SENDING.value)


def sweep(database: Database, keep: Retention, now: float) -> Swept:
    """Delete what is over its bounds; `now` is the wall clock. Small transactions, so that the pipeline's get in between."""
    with database.read() as connection:
        bounds = connection.execute(select(schema.runs.c.run, schema.runs.c.sequence, schema.runs.c.checkpoint_sequence)).all()
    records = 0
    for first in range(0, len(bounds), _RUNS_AT_ONCE):
        with database.write() as connection:
            for run, sequence, saved in bounds[first : first + _RUNS_AT_ONCE]:
                records += _records(connection, run, sequence, saved, keep, now)
    with database.write() as connection:
        return _history(connection, now - keep.history_age)._replace(records=records)


def _records(connection: Connection, run: str, sequence: int, saved: int, keep: Retention, now: float) -> int:
    """Rows of a run's log that its checkpoint holds already and that are over the bound by count or by age.

    The bounds may be older than the transaction: checkpoints only grow, so what was spare still is.
    """
    log = schema.records.c
    over = log.sequence <= min(saved, sequence - keep.records_per_run)
    aged = (log.sequence <= saved) & (log.received_at < now - keep.record_age)
    return sum(connection.execute(delete(schema.records).where(log.run == run, spare)).rowcount for spare in (over, aged))


def _history(connection: Connection, oldest: float) -> Swept:
    runs = _ended_runs(connection, oldest)
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
    known = select(schema.incidents.c.id)
    connection.execute(delete(schema.evidence).where(schema.evidence.c.incident.not_in(known)))
    connection.execute(delete(schema.silences).where(schema.silences.c.expires_at < oldest))
    connection.execute(delete(schema.windows).where(schema.windows.c.over_at < oldest))
    events = connection.execute(delete(schema.alerts).where(schema.alerts.c.committed_at < oldest)).rowcount
    return Swept(records=0, events=events, incidents=incidents, deliveries=deliveries, runs=runs)


def _ended_runs(connection: Connection, oldest: float) -> int:
    """Forget runs that ended long ago, with their checkpoint, rows and rule states."""
    still_open = select(schema.incidents.c.run).where(schema.incidents.c.closed_at.is_(None))
    ended = (
        connection.execute(
            select(schema.runs.c.run).where(
                schema.runs.c.status != RunStatus.RUNNING.value,
                schema.runs.c.committed_at < oldest,
                schema.runs.c.run.not_in(still_open),
            )
        )
        .scalars()
        .all()
    )
    for run in ended:
        for table in (schema.records, schema.rule_state, schema.active_alerts, schema.checkpoints, schema.runs):
            connection.execute(delete(table).where(table.c.run == run))
    return len(ended)

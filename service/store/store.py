"""The store as the pipeline, the workers and the HTTP service see it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from sqlalchemy import Connection, Row, func, select

from alerts.model import Incident
from collector.model import RawRecord, RunStatus
from rules.model import AlertEvent, EventState, Severity
from service.store import schema
from service.store.database import Database, Durability
from service.store.deliveries import Deliveries
from service.store.evidence import Bundles
from service.store.model import AlertRow, Commit, Restored, Retention, RunRow, StateRow, StoredRecord, Swept
from service.store.mutes import Mutes
from service.store.remembered import Remembered
from service.store.retention import sweep
from service.store.write import write

IN_MEMORY = "sqlite://"

_event = msgspec.msgpack.Decoder(AlertEvent).decode
_incident = msgspec.msgpack.Decoder(Incident).decode


class Store:
    """One database. Satisfies `collector.ports.Positions`; `deliveries` is the workers' queue."""

    def __init__(self, url: str = IN_MEMORY, durability: Durability = "process") -> None:
        """Open or create. Raises StoreError (SchemaMismatch) with what to do about it."""
        self.database = Database(url, durability)
        self.deliveries = Deliveries(self.database)
        self.mutes = Mutes(self.database)
        self.remembered = Remembered(self.database)
        self.evidence = Bundles(self.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()

    def commit(self, commit: Commit) -> None:
        """All of it or nothing. Raises PositionLost, DuplicateDelivery, StoreError."""
        with self.database.write() as connection:
            write(connection, commit)

    def position(self, partition: str) -> int | None:
        """Offset of the next record of a partition; None when it was never read."""
        found = select(schema.positions.c.next_offset).where(schema.positions.c.partition_name == partition)
        with self.database.read() as connection:
            position = connection.scalar(found)
        return None if position is None else int(position)

    def restore(self, run: str, *, whole: bool = False) -> Restored | None:
        """What the store holds of a run; None when it never saw it. `whole`: all rows that are left, and no checkpoint."""
        table, log, dumps = schema.runs, schema.records, schema.checkpoints
        both = select(table, dumps.c.value).outerjoin_from(table, dumps, table.c.run == dumps.c.run)
        found = both.where(table.c.run == run)
        with self.database.read() as connection:
            row = connection.execute(found).first()
            if row is None:
                return None
            saved, checkpoint = (0, None) if whole else (row.checkpoint_sequence, row.value)
            since = select(log).where(log.c.run == run, log.c.sequence > saved).order_by(log.c.sequence)
            records = [_stored(each) for each in connection.execute(since)]
            states = _states(connection, run)
        return Restored(run, row.partition_name, checkpoint, saved, row.sequence, records, states)

    def states(self, run: str) -> Sequence[StateRow]:
        """The stored rule states of a run."""
        with self.database.read() as connection:
            return _states(connection, run)

    def runs(
        self, *, partition: str | None = None, status: RunStatus | None = None, limit: int | None = None
    ) -> Sequence[RunRow]:
        """Runs, the most recently heard first; without their checkpoints."""
        table = schema.runs
        query = select(table).order_by(table.c.last_arrival.desc(), table.c.run)
        if partition is not None:
            query = query.where(table.c.partition_name == partition)
        if status is not None:
            query = query.where(table.c.status == status.value)
        with self.database.read() as connection:
            return [run_of(row) for row in connection.execute(query.limit(limit))]

    def incidents(self, run: str) -> Sequence[Incident]:
        """The open incidents of a run and its newest one: all that the incident book has to know of the past."""
        table = schema.incidents
        newest = select(func.max(table.c.number)).where(table.c.run == run).scalar_subquery()
        query = (
            select(table.c.incident)
            .where(table.c.run == run, table.c.closed_at.is_(None) | (table.c.number == newest))
            .order_by(table.c.number)
        )
        with self.database.read() as connection:
            return [_incident(value) for value in connection.execute(query).scalars()]

    def kept(self, id_: str, runs: Collection[str]) -> dict[str, bytes]:
        """By run what these runs have under an id that is no rule's."""
        table = schema.rule_state
        query = select(table.c.run, table.c.state).where(table.c.run.in_(runs), table.c.rule_id == id_, table.c.labels == "")
        with self.database.read() as connection:
            return {row.run: row.state for row in connection.execute(query)}

    def open_incidents(self) -> Sequence[Incident]:
        """All incidents that are not closed, the newest first."""
        table = schema.incidents
        query = select(table.c.incident).where(table.c.closed_at.is_(None)).order_by(table.c.opened_at.desc())
        with self.database.read() as connection:
            return [_incident(value) for value in connection.execute(query).scalars()]

    def over(self, ids: Collection[str]) -> set[str]:
        """Which of these incidents are closed, or not there any more."""
        table = schema.incidents
        every = sorted(ids)
        still: set[str] = set()
        with self.database.read() as connection:
            for begin in range(0, len(every), 500):  # databases limit how many values one statement may carry
                some = table.c.id.in_(every[begin : begin + 500])
                still.update(connection.execute(select(table.c.id).where(some, table.c.closed_at.is_(None))).scalars())
        return set(every) - still

    def incident(self, id_: str) -> Incident | None:
        """One incident, open or closed; None when there is none of this id (any more)."""
        query = select(schema.incidents.c.incident).where(schema.incidents.c.id == id_)
        with self.database.read() as connection:
            value = connection.scalar(query)
        return None if value is None else _incident(value)

    def alerts(
        self,
        *,
        run: str | None = None,
        state: EventState | None = None,
        severity: Severity | None = None,
        before: int | None = None,
        limit: int = 200,
    ) -> Sequence[AlertRow]:
        """The event log, newest first; `before` is the sequence to continue behind."""
        table = schema.alerts
        query = select(table.c.sequence, table.c.committed_at, table.c.event).order_by(table.c.sequence.desc())
        for column, wanted in ((table.c.run, run), (table.c.state, state), (table.c.severity, severity)):
            if wanted is not None:
                query = query.where(column == str(wanted))
        if before is not None:
            query = query.where(table.c.sequence < before)
        with self.database.read() as connection:
            return [
                AlertRow(row.sequence, row.committed_at, _event(row.event)) for row in connection.execute(query.limit(limit))
            ]

    def firing(self, run: str | None = None) -> Sequence[AlertEvent]:
        """The last event of every alert that fires or is explained now, the newest first."""
        table = schema.active_alerts
        query = select(table.c.event).order_by(table.c.committed_at.desc(), table.c.identity)
        query = query.where(table.c.run == run) if run is not None else query
        with self.database.read() as connection:
            return [_event(value) for value in connection.execute(query).scalars()]

    def size(self) -> int:
        """Bytes of the database; 0 where the driver does not say."""
        with self.database.read() as connection:
            if connection.dialect.name != "sqlite":
                return 0
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())

    def sweep(self, keep: Retention, now: float) -> Swept:
        """Delete what is over its bounds. Safe beside the pipeline."""
        return sweep(self.database, keep, now)


def _states(connection: Connection, run: str) -> Sequence[StateRow]:
    table = schema.rule_state
    query = select(table.c.run, table.c.rule_id, table.c.labels, table.c.state).where(table.c.run == run)
    return [StateRow(*row) for row in connection.execute(query.order_by(table.c.rule_id, table.c.labels))]


def _stored(row: Row[Any]) -> StoredRecord:
    raw = RawRecord(row.value, row.partition_name, row.begin_offset, row.next_offset, row.received_at, row.content_type)
    return StoredRecord(row.run, row.sequence, raw, row.facts)


def run_of(row: Row[Any]) -> RunRow:
    """A row of the table of runs."""
    return RunRow(
        run=row.run,
        partition=row.partition_name,
        status=RunStatus(row.status),
        attempt=row.attempt,
        step=row.step,
        record=row.record_number,
        last_arrival=row.last_arrival,
        labels=json.loads(row.labels),
        sequence=row.sequence,
    )

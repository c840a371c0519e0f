"""The one transaction: positions first, by compare-and-set, then everything that the batch caused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import IntegrityError

from alerts.model import Delivery, Incident
from rules.model import AlertEvent, EventState, fingerprint_source
from service.store import schema
from service.store.model import Advance, Commit, DuplicateDelivery, PositionLost, RunRow, StateRow, StoredRecord

_encode = msgspec.msgpack.Encoder().encode

# Statements are built once: SQLAlchemy then finds their compiled form in its cache without building a key each time.
_MOVE = (
    update(schema.positions)
    .where(schema.positions.c.partition_name == bindparam("p"), schema.positions.c.next_offset == bindparam("before"))
    .values(next_offset=bindparam("after"))
)
_FIRST_POSITION = insert(schema.positions)
_RECORDS = insert(schema.records)
_RECORDS_SQLITE = str(_RECORDS.compile(dialect=sqlite.dialect()))
"""For the driver itself, with rows as tuples in the order of the table's columns: this is what most of a commit is."""
_RUN_NEW = insert(schema.runs)
_RUN_VALUES = (
    "partition_name",
    "status",
    "attempt",
    "step",
    "record_number",
    "last_arrival",
    "labels",
    "committed_at",
    "sequence",
)
_RUN_CHANGED = (
    update(schema.runs)
    .where(schema.runs.c.run == bindparam("k"))
    .values({name: bindparam(f"n_{name}") for name in _RUN_VALUES})
)
_RUN_SAVED = update(schema.runs).where(schema.runs.c.run == bindparam("k")).values(checkpoint_sequence=bindparam("n_sequence"))
_CHECKPOINT_GONE = delete(schema.checkpoints).where(schema.checkpoints.c.run == bindparam("k"))
_CHECKPOINTS = insert(schema.checkpoints)
_STATES_GONE = delete(schema.rule_state).where(
    schema.rule_state.c.run == bindparam("k"),
    schema.rule_state.c.rule_id == bindparam("k_rule"),
    schema.rule_state.c.labels == bindparam("k_labels"),
)
_STATES = insert(schema.rule_state)
_ALERTS = insert(schema.alerts)
_ACTIVE_GONE = delete(schema.active_alerts).where(schema.active_alerts.c.identity == bindparam("k"))
_ACTIVE = insert(schema.active_alerts)
_INCIDENT_GONE = delete(schema.incidents).where(schema.incidents.c.id == bindparam("k"))
_INCIDENTS = insert(schema.incidents)
_EVIDENCE_GONE = delete(schema.evidence).where(schema.evidence.c.incident == bindparam("k"))
_EVIDENCE = insert(schema.evidence)
_DELIVERIES = insert(schema.deliveries)


def write(connection: Connection, commit: Commit) -> None:
    """Write all of a commit into the open transaction.

    Raises PositionLost or DuplicateDelivery; the caller's transaction then rolls back.
    """
    for advance in commit.advances:
        _advance(connection, advance)
    if commit.records:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(_RECORDS_SQLITE, [_record(record) for record in commit.records])
        else:
            names = schema.records.c.keys()
            connection.execute(_RECORDS, [dict(zip(names, _record(record), strict=True)) for record in commit.records])
    if commit.runs:
        _runs(connection, commit.runs, commit.committed_at)
    if commit.states:
        _states(connection, commit.states)
    if commit.events:
        connection.execute(_ALERTS, [_alert(event, commit.committed_at) for event in commit.events])
        _active(connection, commit.events, commit.committed_at)
    if commit.incidents:
        connection.execute(_INCIDENT_GONE, [{"k": incident.id} for incident in commit.incidents])
        connection.execute(_INCIDENTS, [_incident(incident) for incident in commit.incidents])
    if commit.evidence:
        connection.execute(_EVIDENCE_GONE, [{"k": row.incident} for row in commit.evidence])
        connection.execute(_EVIDENCE, [row._asdict() for row in commit.evidence])
    if commit.deliveries:
        try:
            connection.execute(_DELIVERIES, [delivery_values(delivery) for delivery in commit.deliveries])
        except IntegrityError as error:
            raise DuplicateDelivery(f"a delivery was inserted twice: {error.orig}") from error


def _advance(connection: Connection, advance: Advance) -> None:
    if advance.before is None:
        try:
            connection.execute(_FIRST_POSITION, {"partition_name": advance.partition, "next_offset": advance.after})
        except IntegrityError:
            raise PositionLost(advance.partition, None) from None
        return
    moved = connection.execute(_MOVE, {"p": advance.partition, "before": advance.before, "after": advance.after})
    if moved.rowcount != 1:
        raise PositionLost(advance.partition, advance.before)


def _states(connection: Connection, rows: Sequence[StateRow]) -> None:
    connection.execute(_STATES_GONE, [{"k": row.run, "k_rule": row.rule_id, "k_labels": row.labels} for row in rows])
    if kept := [row._asdict() for row in rows if row.state is not None]:
        connection.execute(_STATES, kept)


def _active(connection: Connection, events: Sequence[AlertEvent], committed_at: float) -> None:
    last = {identity(event): event for event in events}
    connection.execute(_ACTIVE_GONE, [{"k": key} for key in last])
    fires = [
        {"identity": key, "run": event.run, "committed_at": committed_at, "event": _encode(event)}
        for key, event in last.items()
        if event.state is not EventState.RESOLVED
    ]
    if fires:
        connection.execute(_ACTIVE, fires)


def identity(event: AlertEvent) -> str:
    """The alert's identity as a key: SHA-256 of the canonical JSON of (rule id, run, own labels)."""
    source = json.dumps(fingerprint_source(event.run, event.id, event.labels), separators=(",", ":"))
    return hashlib.sha256(source.encode()).hexdigest()


def _runs(connection: Connection, rows: Sequence[RunRow], committed_at: float) -> None:
    # No dialect's upsert: which runs are known is one question, and both halves are one call each, however many runs.
    asked = select(schema.runs.c.run).where(schema.runs.c.run.in_([row.run for row in rows]))
    known = set(connection.execute(asked).scalars())
    values = [_run(row, committed_at) for row in rows]
    if changed := [value for value in values if value["run"] in known]:
        connection.execute(
            _RUN_CHANGED, [{"k": value["run"]} | {f"n_{name}": value[name] for name in _RUN_VALUES} for value in changed]
        )
    if new := [value for value in values if value["run"] not in known]:
        connection.execute(_RUN_NEW, new)
    if saved := [row for row in rows if row.checkpoint is not None]:
        connection.execute(_RUN_SAVED, [{"k": row.run, "n_sequence": row.sequence} for row in saved])
        connection.execute(_CHECKPOINT_GONE, [{"k": row.run} for row in saved])
        connection.execute(_CHECKPOINTS, [{"run": row.run, "value": row.checkpoint} for row in saved])


def _run(row: RunRow, committed_at: float) -> dict[str, Any]:
    return {
        "run": row.run,
        "partition_name": row.partition,
        "status": row.status.value,
        "attempt": row.attempt,
        "step": row.step,
        "record_number": row.record,
        "last_arrival": row.last_arrival,
        "labels": json.dumps(dict(row.labels), sort_keys=True),
        "committed_at": committed_at,
        "sequence": row.sequence,
        "checkpoint_sequence": 0,
    }


def _record(record: StoredRecord) -> tuple[Any, ...]:
    """In the order of the table's columns."""
    raw = record.raw
    place = (raw.partition, raw.offset, raw.next_offset)
    return (record.run, record.sequence, *place, raw.content_type, raw.received_at, raw.value, record.facts)


def _alert(event: AlertEvent, committed_at: float) -> dict[str, Any]:
    return {
        "run": event.run,
        "alert": event.alert,
        "rule_id": event.id,
        "state": event.state.value,
        "severity": event.severity.value,
        "step": event.step,
        "event_time": event.event_time,
        "committed_at": committed_at,
        "event": _encode(event),
    }


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "run": incident.run,
        "number": incident.number,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "incident": _encode(incident),
    }


def delivery_values(delivery: Delivery) -> dict[str, Any]:
    """The columns of a delivery row, without `sequence`, which the database gives."""
    return {
        "id": delivery.id,
        "receiver": delivery.receiver,
        "action": delivery.action.value,
        "incident": delivery.incident,
        "dedup_key": delivery.dedup_key,
        "fingerprint": delivery.fingerprint,
        "episode": delivery.event.episode,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "not_before": delivery.not_before,
        "created_at": delivery.created_at,
        "error": delivery.error,
        "ambiguous": delivery.ambiguous,
        "remote": delivery.remote,
        "event": _encode(delivery.event),
        "note": delivery.note,
        "board": _encode(delivery.board),
        "brief": None if delivery.brief is None else _encode(delivery.brief),
    }

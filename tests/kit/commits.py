"""Commits for tests of the store: small, complete, and different from each other."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from alerts.model import Action, Delivery, Incident, Told
from collector.model import RawRecord, RunStatus
from rules.model import AlertEvent, EventState, Severity, Verdict
from service.store import schema
from service.store.model import Advance, Commit, EvidenceRow, RunRow, StateRow, StoredRecord
from service.store.store import Store


def event(run: str = "r", alert: str = "GradNormTenfold", **changes: Any) -> AlertEvent:
    """A firing page at step 7; name what should differ."""
    fields: dict[str, Any] = {
        "run": run,
        "alert": alert,
        "id": alert.lower(),
        "severity": Severity.PAGE,
        "layer": 4,
        "state": EventState.FIRING,
        "attempt": 1,
        "step": 7,
        "record": 7,
        "value": 12.0,
        "limit": 10.0,
        "verdict": Verdict.BREACH,
        "reason": "12 > 10",
        "event_time": 70.0,
    }
    return AlertEvent(**(fields | changes))


def delivery(name: str, *, receiver: str = "chat", of: AlertEvent | None = None, action: Action = Action.TRIGGER) -> Delivery:
    """A pending row with its own dedup key."""
    about = of or event()
    return Delivery(
        id=name,
        receiver=receiver,
        action=action,
        incident=f"{about.run}#1",
        dedup_key=f"{about.run}/{about.id}",
        fingerprint=f"{about.run}/{about.id}",
        event=about,
        created_at=about.event_time,
    )


def incident(run: str = "r", number: int = 1, closed_at: float | None = None) -> Incident:
    """An incident with one alert that was told to "chat"."""
    told = Told(alert="GradNormTenfold", id="gradnormtenfold", severity=Severity.PAGE, layer=4, receivers=["chat"])
    return Incident(
        id=f"{run}#{number}", run=run, number=number, opened_at=70.0, opened_step=7, closed_at=closed_at, alerts={"f": told}
    )


def raw(offset: int, partition: str = "p/0", value: bytes = b"{}") -> RawRecord:
    """One row that is ten bytes long for its source."""
    return RawRecord(value, partition, offset, offset + 10, received_at=float(offset))


def run_row(run: str = "r", sequence: int = 1, checkpoint: bytes | None = None, **changes: Any) -> RunRow:
    """A running run that brought as many records as rows."""
    row = RunRow(run, "p/0", RunStatus.RUNNING, 1, sequence, sequence, float(sequence), {"team": "a"}, sequence, checkpoint)
    return row._replace(**changes)


def nth(number: int, run: str = "r") -> Commit:
    """The n-th commit of a history (from 0) that touches every table: rows, a checkpoint now and then, fire and resolve."""
    sequence = number + 1
    fires = number % 2 == 0
    about = event(run, step=sequence, state=EventState.FIRING if fires else EventState.RESOLVED, episode=number // 2 + 1)
    action = Action.TRIGGER if fires else Action.RESOLVE
    return Commit(
        advances=[Advance("p/0", number * 10 if number else None, number * 10 + 10)],
        committed_at=1000.0 + number,
        records=[StoredRecord(run, sequence, raw(number * 10, value=f"row {sequence}".encode()), b"facts")],
        runs=[run_row(run, sequence, b"checkpoint %d" % sequence if number % 3 == 2 else None)],
        states=[StateRow(run, "gradnormtenfold", "{}", b"state %d" % sequence)],
        events=[about],
        incidents=[incident(run, number // 2 + 1, None if fires else 80.0)],
        deliveries=[delivery(f"{run}/{number}", of=about, action=action)],
        evidence=[EvidenceRow(f"{run}#{number // 2 + 1}", run, fires, b"evidence %d" % sequence)],
    )


def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, in order: two stores are equal when these are."""
    with store.database.read() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in schema.metadata.sorted_tables
        }

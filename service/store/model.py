"""What goes into the store in one transaction and what comes back at a restart.

Errors:

    StoreError               the store cannot be used; the message says what to do, or what the driver says
    +-- SchemaMismatch       it was written by another version
    +-- PositionLost         another collector has read on in the partition: nothing was written, restore and reopen
    +-- DuplicateDelivery    a delivery id was inserted a second time: a bug, refused
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from alerts.model import Delivery, Incident
from collector.model import RawRecord, RunStatus
from rules.model import AlertEvent


class StoreError(Exception):
    """The store cannot do what is asked."""


class SchemaMismatch(StoreError):
    """The tables are of another version than this program."""


class PositionLost(StoreError):
    """The position of a partition is not what this collector last wrote: somebody else owns it now."""

    def __init__(self, partition: str, expected: int | None) -> None:
        super().__init__(f"partition {partition!r} is no longer at offset {expected}: another collector reads it")
        self.partition = partition
        self.expected = expected


class DuplicateDelivery(StoreError):
    """A delivery with this id exists already."""


class Advance(NamedTuple):
    """A partition's position moves; `before` must be what the store holds (None: it holds nothing)."""

    partition: str
    before: int | None
    after: int


class StoredRecord(NamedTuple):
    """One raw row of a run's log. `sequence` counts the run's rows from 1, duplicates and late ones included."""

    run: str
    sequence: int
    raw: RawRecord
    facts: bytes | None = None
    """What the rules gave back when it was evaluated; part of what a restart folds again."""


class StateRow(NamedTuple):
    """The state of one rule (and set of own labels) on one run; None removes it."""

    run: str
    rule_id: str
    labels: str
    state: bytes | None


class RunRow(NamedTuple):
    """A run as the store shows it; `checkpoint` is written only when given."""

    run: str
    partition: str
    status: RunStatus
    attempt: int
    step: int
    record: int
    last_arrival: float
    labels: Mapping[str, str]
    sequence: int
    checkpoint: bytes | None = None
    """`Run.dump` after the row `sequence`."""


class EvidenceRow(NamedTuple):
    """The evidence bundle of an incident, packed; it takes the place of an earlier one."""

    incident: str
    run: str
    waits: bool
    """Whether a later record is still to be added."""
    value: bytes


class Commit(NamedTuple):
    """Everything that one batch caused."""

    advances: Sequence[Advance]
    committed_at: float
    records: Sequence[StoredRecord] = ()
    runs: Sequence[RunRow] = ()
    states: Sequence[StateRow] = ()
    """Rule states that changed; each key once."""
    events: Sequence[AlertEvent] = ()
    incidents: Sequence[Incident] = ()
    """Incidents that are new or changed."""
    deliveries: Sequence[Delivery] = ()
    evidence: Sequence[EvidenceRow] = ()
    """Of incidents that are open after this commit or before it; each once."""


class Restored(NamedTuple):
    """What a run needs to be again what it was: the checkpoint, then these records in order."""

    run: str
    partition: str
    checkpoint: bytes | None
    checkpoint_sequence: int
    sequence: int
    records: Sequence[StoredRecord]
    states: Sequence[StateRow]


class AlertRow(NamedTuple):
    """One line of the event log."""

    sequence: int
    committed_at: float
    event: AlertEvent


class Retention(NamedTuple):
    """How long the store keeps what a restart does not need."""

    records_per_run: int = 2_000
    record_age: float = 7 * 86_400.0
    """Seconds."""
    history_age: float = 90 * 86_400.0
    """Events, closed incidents and their deliveries, ended runs; seconds."""


class Swept(NamedTuple):
    """How many rows a retention run deleted."""

    records: int
    events: int
    incidents: int
    deliveries: int
    runs: int

"""The tables, in SQL that SQLite and PostgreSQL both speak. Positions are the authority on what has been read.

Structures that only Python reads (an event, an incident, a checkpoint) are kept as MessagePack or JSON bytes; what is
filtered or sorted by has a column of its own. Times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION: Final = 5
"""Raised by one with every change of the tables below; a store of another version is refused, not guessed at."""

metadata = MetaData()

# SQLite numbers rows by itself only when the key's type is spelled INTEGER.
_Serial = BigInteger().with_variant(Integer, "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

positions = Table(
    "positions",
    metadata,
    Column("partition_name", String(512), primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("run", String(256), primary_key=True),
    Column("partition_name", String(512), nullable=False, index=True),
    Column("status", String(16), nullable=False, index=True),
    Column("attempt", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("record_number", BigInteger, nullable=False),
    Column("last_arrival", Double, nullable=False),
    Column("labels", Text, nullable=False),
    # Wall time of its newest commit; retention goes by it, whatever clock the run's own times are of.
    Column("committed_at", Double, nullable=False),
    # How many rows of the run the log has seen, and how many of them the checkpoint holds.
    Column("sequence", BigInteger, nullable=False),
    Column("checkpoint_sequence", BigInteger, nullable=False),
)

# A run's newest checkpoint; one row per run, gone with it. Apart from its row in `runs`, which changes with every commit: for
# that SQLite reads and builds the whole row anew, and this is half a megabyte.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run", String(256), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

records = Table(
    "records",
    metadata,
    Column("run", String(256), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("partition_name", String(512), nullable=False),
    Column("begin_offset", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("content_type", String(64), nullable=False),
    Column("received_at", Double, nullable=False),
    Column("value", LargeBinary, nullable=False),
    # What the rules gave back when this row was evaluated, so that it folds again as it did (see service.live.Facts).
    Column("facts", LargeBinary),
)

rule_state = Table(
    "rule_state",
    metadata,
    Column("run", String(256), primary_key=True),
    Column("rule_id", String(256), primary_key=True),
    # The rule's own labels as canonical JSON; "" for a state that belongs to no rule.
    Column("labels", String(1024), primary_key=True),
    Column("state", LargeBinary, nullable=False),
)

alerts = Table(
    "alerts",
    metadata,
    Column("sequence", _Serial, primary_key=True, autoincrement=True),
    Column("run", String(256), nullable=False),
    Column("alert", String(256), nullable=False),
    Column("rule_id", String(256), nullable=False),
    Column("state", String(16), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("event_time", Double, nullable=False),
    Column("committed_at", Double, nullable=False, index=True),
    Column("event", LargeBinary, nullable=False),
    Index("alerts_by_run", "run", "sequence"),
)

# The last event of each alert that fires or is explained: what is wrong now, without a walk through the log.
active_alerts = Table(
    "active_alerts",
    metadata,
    Column("identity", String(64), primary_key=True),
    Column("run", String(256), nullable=False, index=True),
    Column("committed_at", Double, nullable=False),
    Column("event", LargeBinary, nullable=False),
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", String(320), primary_key=True),
    Column("run", String(256), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("closed_at", Double),
    Column("incident", LargeBinary, nullable=False),
    Index("incidents_by_run", "run", "number"),
)

# What is known of an incident, compressed (service.evidence); one row per incident, gone with it.
evidence = Table(
    "evidence",
    metadata,
    Column("incident", String(320), primary_key=True),
    Column("run", String(256), nullable=False, index=True),
    # Whether a record behind the first abnormal one is still to be added.
    Column("waits", Boolean, nullable=False),
    Column("value", LargeBinary, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("sequence", _Serial, primary_key=True, autoincrement=True),
    Column("id", String(255), nullable=False),
    Column("receiver", String(256), nullable=False),
    Column("action", String(16), nullable=False),
    Column("incident", String(320), nullable=False, index=True),
    Column("dedup_key", String(255), nullable=False),
    Column("fingerprint", String(255), nullable=False),
    Column("episode", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("not_before", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("error", Text, nullable=False),
    Column("ambiguous", Boolean, nullable=False),
    Column("remote", Text, nullable=False),
    Column("event", LargeBinary, nullable=False),
    Column("note", Text, nullable=False),
    Column("board", LargeBinary, nullable=False),
    Column("brief", LargeBinary),
    UniqueConstraint("id", name="deliveries_once"),
    Index("deliveries_waiting", "receiver", "status", "sequence"),
    Index("deliveries_in_order", "receiver", "dedup_key", "status", "sequence"),
    Index("deliveries_told", "receiver", "fingerprint", "episode"),
)

silences = Table(
    "silences",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("matchers", Text, nullable=False),
    Column("owner", String(256), nullable=False),
    Column("reason", Text, nullable=False),
    Column("starts_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
)

# Maintenance windows that were declared while the collector ran; those of alerts.yaml stand there alone.
windows = Table(
    "windows",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    # When one that comes once is over for good; None for a weekly one.
    Column("over_at", Double, index=True),
)

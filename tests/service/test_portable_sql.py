"""The tables and statements are SQL that PostgreSQL takes as well; no driver is needed to see that they compile."""

from __future__ import annotations

import pytest
from sqlalchemy import create_mock_engine
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.sql.expression import ClauseElement

from collector.model import RawRecord
from service.store import deliveries, schema, write
from service.store.model import StoredRecord

_POSTGRESQL: Dialect = make_url("postgresql+psycopg://").get_dialect()()


def test_the_tables_are_created() -> None:
    statements: list[str] = []
    engine = create_mock_engine(
        "postgresql+psycopg://", lambda statement, *_: statements.append(str(statement.compile(dialect=_POSTGRESQL)))
    )
    schema.metadata.create_all(engine, checkfirst=False)
    text = "\n".join(statements)
    assert text.count("CREATE TABLE") == len(schema.metadata.tables)
    assert "sequence BIGSERIAL" in text and "BYTEA" in text and "DOUBLE PRECISION" in text


@pytest.mark.parametrize(
    "statement",
    [value for value in vars(write).values() if isinstance(value, ClauseElement)],
    ids=lambda statement: str(statement).split("(")[0].replace("\n", " ")[:40],
)
def test_the_statements_compile(statement: ClauseElement) -> None:
    assert str(statement.compile(dialect=_POSTGRESQL))


def test_the_head_of_a_queue_compiles() -> None:
    head = deliveries._HEAD.compile(dialect=_POSTGRESQL)
    assert "NOT (EXISTS" in str(head)


def test_a_record_has_its_values_in_the_order_of_the_columns() -> None:
    """SQLite takes them by place, other databases by name."""
    values = write._record(StoredRecord("r", 7, RawRecord(b"{}", "topic/3", 10, 12, 5.5, "application/msgpack"), b"facts"))
    assert dict(zip(schema.records.c.keys(), values, strict=True)) == {
        "run": "r",
        "sequence": 7,
        "partition_name": "topic/3",
        "begin_offset": 10,
        "next_offset": 12,
        "content_type": "application/msgpack",
        "received_at": 5.5,
        "value": b"{}",
        "facts": b"facts",
    }
    named = write._RECORDS_SQLITE.partition("(")[2].partition(")")[0].split(", ")
    assert named == schema.records.c.keys()

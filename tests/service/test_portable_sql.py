"""The tables and statements are SQL that PostgreSQL takes as well; no driver is needed to see that they compile."""

from __future__ import annotations

import pytest
from sqlalchemy import create_mock_engine
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.sql.expression import ClauseElement

from service.store import deliveries, schema, write

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

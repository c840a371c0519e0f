"""Words of the collector about itself that outlive it, by name. Each call is one transaction."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from service.store import schema
from service.store.database import Database


class Remembered:
    """Texts in the table that also holds the schema's version."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> str | None:
        """What was put last; None when nothing was. Raises StoreError."""
        found = select(schema.meta.c.value).where(schema.meta.c.name == name)
        with self._database.read() as connection:
            value = connection.scalar(found)
        return None if value is None else str(value)

    def put(self, name: str, value: str) -> None:
        """In the place of what was there. Raises StoreError."""
        with self._database.write() as connection:
            connection.execute(delete(schema.meta).where(schema.meta.c.name == name))
            connection.execute(insert(schema.meta), {"name": name, "value": value})

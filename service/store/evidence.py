"""The evidence bundles of incidents as the store keeps them; they are written with the commit that opens the incident."""

from __future__ import annotations

import logging

from sqlalchemy import select

from service.evidence.bundle import Bundle, unpack
from service.store import schema
from service.store.database import Database

log = logging.getLogger(__name__)


class Bundles:
    """Safe to call from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, incident: str) -> Bundle | None:
        """The bundle of an incident, open or closed; None where there is none, or one that this version cannot read."""
        query = select(schema.evidence.c.value).where(schema.evidence.c.incident == incident)
        with self._database.read() as connection:
            value = connection.scalar(query)
        if value is None:
            return None
        try:
            return unpack(value)
        except ValueError as error:
            log.warning("the evidence of incident %s cannot be read: %s", incident, error)
            return None

    def waiting(self, run: str) -> str:
        """The incident of a run whose bundle waits for a further record; empty when there is none."""
        table = schema.evidence
        query = (
            select(table.c.incident)
            .join(schema.incidents, schema.incidents.c.id == table.c.incident)
            .where(table.c.run == run, table.c.waits)
            .order_by(schema.incidents.c.number.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            return str(connection.scalar(query) or "")

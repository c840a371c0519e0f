"""Silences and maintenance windows that were made while the collector ran. Each call is one transaction."""

from __future__ import annotations

import msgspec
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from alerts.matching import MatchEntry
from alerts.muting.hours import over_at
from alerts.muting.model import Silence, Window
from alerts.muting.muting import Declared
from service.store import schema
from service.store.database import Database
from service.store.model import StoreError

_encode = msgspec.msgpack.Encoder().encode
_window = msgspec.msgpack.Decoder(Window).decode
_match = msgspec.json.Decoder(MatchEntry).decode


class NameTaken(StoreError):
    """There is a silence or window of this name already; nothing was written."""


class Mutes:
    """The part of the store that `Muting.use` is given."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def declared(self) -> Declared:
        """All that is kept, what is over too (until retention), in the order of their beginnings and names."""
        silences, windows = schema.silences, schema.windows
        with self._database.read() as connection:
            rows = connection.execute(select(silences).order_by(silences.c.starts_at, silences.c.id)).all()
            values = connection.execute(select(windows.c.value).order_by(windows.c.name)).scalars().all()
        made = [
            Silence(
                id=row.id,
                match=_match(row.matchers),
                owner=row.owner,
                reason=row.reason,
                starts_at=row.starts_at,
                expires_at=row.expires_at,
            )
            for row in rows
        ]
        return Declared(tuple(made), tuple(_window(value) for value in values))

    def add_silence(self, silence: Silence) -> None:
        """Keep one. Raises NameTaken."""
        row = {
            "id": silence.id,
            "matchers": msgspec.json.encode(silence.match).decode(),
            "owner": silence.owner,
            "reason": silence.reason,
            "starts_at": silence.starts_at,
            "expires_at": silence.expires_at,
        }
        with self._database.write() as connection:
            try:
                connection.execute(insert(schema.silences), row)
            except IntegrityError:
                raise NameTaken(f"there is a silence {silence.id!r} already") from None

    def expire_silence(self, id_: str, at: float) -> bool:
        """Let it end at `at`, if it ends later; False when there is none of this id."""
        table = schema.silences
        with self._database.write() as connection:
            if connection.scalar(select(table.c.id).where(table.c.id == id_)) is None:
                return False
            connection.execute(update(table).where(table.c.id == id_, table.c.expires_at > at).values(expires_at=at))
        return True

    def add_window(self, window: Window) -> None:
        """Keep one. Raises NameTaken."""
        row = {"name": window.name, "value": _encode(window), "over_at": over_at(window.hours)}
        with self._database.write() as connection:
            try:
                connection.execute(insert(schema.windows), row)
            except IntegrityError:
                raise NameTaken(f"there is a maintenance window {window.name!r} already") from None

    def remove_window(self, name: str) -> bool:
        """Forget it; False when there is none of this name."""
        with self._database.write() as connection:
            return connection.execute(delete(schema.windows).where(schema.windows.c.name == name)).rowcount > 0

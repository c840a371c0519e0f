"""One database, opened so that it can be shared by threads: one writer at a time, readers beside it.

SQLite runs in WAL mode with synchronous=NORMAL. A killed process loses nothing that was committed: the pages are with the
operating system. After a power failure the last transactions may be missing, never a part of one; as positions are in the
same transaction, their records are read again and raise the same events with the same delivery ids and dedup keys. Set
`durability="power"` (synchronous=FULL, one fsync per commit) to exclude a repeated chat message even then.

Whatever the driver raises within `write` and `read` reaches the caller as StoreError: nobody else knows SQLAlchemy's errors.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from service.store import schema
from service.store.model import SchemaMismatch, StoreError

Durability = Literal["process", "power"]

_BUSY_SECONDS = 10.0
_PAGE_BYTES = 8192
"""A record of 60 metrics has 2 KB: three of them fit a page. In pages of 4 KB each has one alone, and the file is 1.6 times as
large; of 16 KB a commit of one record writes too much."""
_WRITES = "tocsin_writes"
_STRANGE = "the store is a database with other tables; give Tocsin one of its own"


class Database:
    """An engine with a write lock. In memory there is one connection, so that the lock guards reading too."""

    def __init__(self, url: str, durability: Durability = "process") -> None:
        self.engine, self._in_memory = _engine(url, durability)
        self._writer = self.engine.execution_options(**{_WRITES: True})
        # SQLite has one writer; taking turns here costs less than its busy handler and cannot starve.
        self._lock = threading.RLock()
        try:
            self._prepare()
        except SchemaMismatch:
            self.engine.dispose()
            raise
        except StoreError as error:
            self.engine.dispose()
            raise StoreError(f"cannot open the store {_shown(url)}: {error}") from error

    def _prepare(self) -> None:
        with self.write() as connection:
            found = inspect(connection).get_table_names()
            if "meta" not in found:
                if found:
                    raise SchemaMismatch(_STRANGE)
                schema.metadata.create_all(connection)
                connection.execute(insert(schema.meta).values(name="schema", value=str(schema.SCHEMA_VERSION)))
                return
            _judge(connection.scalar(select(schema.meta.c.value).where(schema.meta.c.name == "schema")))

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that is committed on leaving and rolled back by an exception. Raises StoreError."""
        with _translated(), self._lock, self._writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view; beside the writer, except in memory. Raises StoreError."""
        if self._in_memory:
            with _translated(), self._lock, self.engine.connect() as connection:
                yield connection
            return
        with _translated(), self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        with self._lock:
            self.engine.dispose()


def check_file(path: Path) -> None:
    """Says by an error what opening this SQLite file would refuse; reads only, also beside a collector that writes.

    A file that is not there, or is empty, would be made: no error. Raises StoreError (SchemaMismatch); OSError when this user
    cannot read it, which says nothing of the file.
    """
    try:
        if not path.is_file() or path.stat().st_size == 0:
            return
        # Without a log everything is in the file, and nothing has to be made beside it to read it.
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=_BUSY_SECONDS)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "meta" in tables:
                row = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
                _judge(row[0] if row else None)
            elif tables:
                raise SchemaMismatch(_STRANGE)
    except sqlite3.OperationalError as error:
        raise OSError(f"{path}: {error}") from error
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the store {path}: {error}") from error


def _judge(version: str | None) -> None:
    if version != str(schema.SCHEMA_VERSION):
        raise SchemaMismatch(
            f"the store has schema version {version}, this program needs {schema.SCHEMA_VERSION}: "
            "start the program version that wrote it, or name a new store"
        )


@contextmanager
def _translated() -> Iterator[None]:
    """The driver's words without SQLAlchemy's around them, which quote the statement and its values."""
    try:
        yield
    except DBAPIError as error:
        raise StoreError(f"{type(error).__name__}: {error.orig}") from error
    except SQLAlchemyError as error:
        raise StoreError(type(error).__name__) from error


def _engine(url: str, durability: Durability) -> tuple[Engine, bool]:
    in_memory = url in ("sqlite://", "sqlite:///:memory:")
    options: dict[str, Any] = {}
    if in_memory:
        options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    elif url.startswith("sqlite"):
        options = {"connect_args": {"check_same_thread": False, "timeout": _BUSY_SECONDS}}
    try:
        engine = create_engine(url, **options)
    except ModuleNotFoundError as error:
        raise StoreError(f"cannot use the store {_shown(url)}: install the Python package {error.name}") from error
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise StoreError(f"cannot use the store {_shown(url)}: {error}") from error
    if engine.dialect.name == "sqlite":
        _tune_sqlite(engine, durability)
    return engine, in_memory


def _tune_sqlite(engine: Engine, durability: Durability) -> None:
    synchronous = {"process": "NORMAL", "power": "FULL"}[durability]

    def connected(connection: Any, _record: object) -> None:
        # The driver's implicit BEGIN comes late (after reads) and is DEFERRED; transactions are begun by `begun` instead.
        connection.isolation_level = None
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # of a new file; an existing one keeps its own
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA journal_size_limit=67108864")

    def begun(connection: Connection) -> None:
        # A writer takes the lock at once: a transaction that reads first and writes later may be refused half-way.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)


def _shown(url: str) -> str:
    """The URL without what may be a secret."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}***@{rest.rpartition('@')[2]}" if "@" in rest else url

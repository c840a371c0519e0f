"""Stores that cannot be opened or are not ours, and what the driver raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from alerts.matching import MatchEntry
from alerts.muting.hours import Hours
from alerts.muting.model import Silence, Window
from service.store import schema
from service.store.model import (
    Retention,
    SchemaMismatch,
    StoreError,
)
from service.store.store import IN_MEMORY, Store
from tests.kit.commits import delivery, nth


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with Store(IN_MEMORY if request.param == "memory" else f"sqlite:///{tmp_path / 'tocsin.db'}") as opened:
        yield opened


def test_a_store_of_another_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with Store(url) as old, old.database.write() as connection:
        connection.execute(update(schema.meta).values(value="99"))
    with pytest.raises(SchemaMismatch, match=rf"version 99.*needs {schema.SCHEMA_VERSION}"):
        Store(url)


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'foreign.db'}"
    with Store(url) as store, store.database.write() as connection:
        schema.meta.drop(connection)
    with pytest.raises(SchemaMismatch, match="other tables"):
        Store(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:////nowhere/at/all/tocsin.db", "cannot open the store"),
        ("not a url", "cannot use the store"),
        ("nosuch://user:secret@host/db", r"nosuch://\*\*\*@host/db"),
    ],
)
def test_a_store_that_cannot_be_opened_says_so_in_one_line(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        Store(url)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_the_driver_raises_is_a_store_error(store: Store) -> None:
    """Whatever is called. The values of the statement, which hold what runs say, are not part of what it says."""
    store.commit(nth(0))
    silence = Silence(id="s", match=MatchEntry(run="secret-run"), owner="ada", reason="r", starts_at=0.0, expires_at=1.0)
    window = Window(
        name="w", match=MatchEntry(run="*"), owner="ada", reason="r", hours=Hours(begins="22:00", ends="07:00", zone="UTC")
    )
    row = delivery("secret-run")
    calls: list[Callable[[], object]] = [
        lambda: store.commit(nth(1)),
        lambda: store.position("p/0"),
        lambda: store.restore("r"),
        lambda: store.states("r"),
        lambda: store.runs(),
        lambda: store.incidents("r"),
        lambda: store.open_incidents(),
        lambda: store.incident("secret-run#1"),
        lambda: store.alerts(run="secret-run"),
        lambda: store.firing("secret-run"),
        lambda: store.sweep(Retention(), 1.0),
        lambda: store.mutes.declared(),
        lambda: store.mutes.add_silence(silence),
        lambda: store.mutes.expire_silence("s", 1.0),
        lambda: store.mutes.add_window(window),
        lambda: store.mutes.remove_window("w"),
        lambda: store.deliveries.due("chat", 1.0, 10),
        lambda: store.deliveries.next_due_at("chat"),
        lambda: store.deliveries.begin(row),
        lambda: store.deliveries.finish(row),
        lambda: store.deliveries.delivered("chat", "secret-run#1", "f", 1),
        lambda: store.deliveries.ending("chat", "secret-run#1", "f", 1),
        lambda: store.deliveries.held("chat"),
        lambda: store.deliveries.interrupted("chat"),
        lambda: store.deliveries.waiting(),
        lambda: store.deliveries.backlog(),
        lambda: store.deliveries.revive(["chat"], 1.0),
    ]
    with store.database.write() as connection:
        schema.metadata.drop_all(connection)
    for number, call in enumerate(calls):
        with pytest.raises(StoreError, match="OperationalError: no such table") as raised:
            call()
        assert "secret-run" not in str(raised.value) and "\n" not in str(raised.value), number
    assert store.size() > 0, "what needs no table still works"

"""The evidence table: what was packed comes back, by incident; it goes with its incident and not before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.evidence.bundle import pack
from service.store.model import Commit, EvidenceRow, Retention
from service.store.store import Store
from tests.kit.bundles import bundle
from tests.kit.commits import delivery, incident


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'tocsin.db'}") as opened:
        yield opened


def row(of: str, waits: bool = False) -> EvidenceRow:
    return EvidenceRow(of, of.partition("#")[0], waits, pack(bundle(incident=of)))


def test_the_later_bundle_takes_the_place_of_the_earlier(store: Store) -> None:
    store.commit(Commit([], 0.0, incidents=[incident()], evidence=[row("r#1", waits=True)]))
    assert store.evidence.waiting("r") == "r#1"
    later = bundle(incident="r#1", onset=7)
    store.commit(Commit([], 1.0, evidence=[EvidenceRow("r#1", "r", False, pack(later))]))
    assert (store.evidence.of("r#1"), store.evidence.waiting("r")) == (later, "")


def test_the_newest_incident_waits(store: Store) -> None:
    numbers = [incident(number=number) for number in (9, 10)]
    store.commit(Commit([], 0.0, incidents=numbers, evidence=[row("r#9", waits=True), row("r#10", waits=True)]))
    assert store.evidence.waiting("r") == "r#10"
    assert store.evidence.waiting("other") == ""


def test_it_goes_with_its_incident_and_not_before(store: Store) -> None:
    incidents = [incident("old", closed_at=10.0), incident("open"), incident("new", closed_at=900.0)]
    rows = [row(f"{each.run}#1") for each in incidents]
    store.commit(Commit([], 0.0, incidents=incidents, evidence=rows))
    store.sweep(Retention(history_age=500.0), 1_000.0)
    kept = {name: store.evidence.of(name) is not None for name in ("old#1", "open#1", "new#1")}
    assert kept == {"old#1": False, "open#1": True, "new#1": True}


def test_a_brief_that_cannot_be_read_costs_no_message(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.commit(Commit([], 0.0, deliveries=[delivery("a"), delivery("b")]))
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE deliveries SET brief = X'c1' WHERE id = 'a'")
    assert {row.id: row.brief for row in store.deliveries.due("chat", 1e12, 10)} == {"a": None}
    assert "it goes out without" in caplog.text

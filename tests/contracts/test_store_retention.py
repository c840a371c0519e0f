"""What the store need not keep goes, and never what a restart or a person needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.model import Delivery, DeliveryStatus
from collector.model import RunStatus
from service.store.model import (
    Advance,
    Commit,
    Retention,
    StateRow,
    StoredRecord,
)
from service.store.store import IN_MEMORY, Store
from tests.kit.commits import delivery, event, incident, raw, run_row


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with Store(IN_MEMORY if request.param == "memory" else f"sqlite:///{tmp_path / 'tocsin.db'}") as opened:
        yield opened


def test_sweep_never_takes_what_a_restart_needs(store: Store) -> None:
    rows = [StoredRecord("r", sequence, raw(sequence * 10)) for sequence in range(1, 11)]
    store.commit(Commit([Advance("p/0", None, 110)], 1.0, records=rows, runs=[run_row(sequence=10)]))
    keep = Retention(records_per_run=2, record_age=0.0, history_age=1e9)
    assert store.sweep(keep, now=1e6).records == 0, "there is no checkpoint yet"
    store.commit(Commit([Advance("p/0", 110, 110)], 1.0, runs=[run_row(sequence=6, checkpoint=b"six")]))
    store.commit(Commit([Advance("p/0", 110, 110)], 1.0, runs=[run_row(sequence=10)]))
    assert store.sweep(keep, now=1e6).records == 6
    restored = store.restore("r")
    assert restored is not None
    assert [record.sequence for record in restored.records] == [7, 8, 9, 10]


def test_sweep_bounds_by_count_alone(store: Store) -> None:
    rows = [StoredRecord("r", sequence, raw(sequence * 10)) for sequence in range(1, 11)]
    run = run_row(sequence=10, checkpoint=b"ten")
    store.commit(Commit([Advance("p/0", None, 110)], 1.0, records=rows, runs=[run]))
    assert store.sweep(Retention(records_per_run=4, record_age=1e9), now=100.0).records == 6


def test_sweep_forgets_ended_runs_but_no_open_incident_and_no_open_delivery(store: Store) -> None:
    about = event()
    store.commit(
        Commit(
            [Advance("p/0", None, 10)],
            1.0,
            runs=[run_row("ended", status=RunStatus.FINISHED), run_row("r", status=RunStatus.FAILED), run_row("runs")],
            states=[StateRow("ended", "a", "{}", b"x"), StateRow("r", "a", "{}", b"x")],
            events=[about],
            incidents=[incident(), incident(number=2, closed_at=80.0), incident(number=3, closed_at=80.0)],
            deliveries=[
                delivery("open"),
                *(_of(f"r#{number}", name) for number, name in ((2, "waits"), (3, "sent"))),
            ],
        )
    )
    sent = next(row for row in store.deliveries.due("chat", 1e3, 10) if row.id == "sent")
    sent.status = DeliveryStatus.SENT
    store.deliveries.finish(sent)

    swept = store.sweep(Retention(history_age=10.0), now=1e6)

    assert (swept.runs, swept.incidents, swept.deliveries, swept.events) == (1, 1, 1, 1)
    assert {row.run for row in store.runs()} == {"r", "runs"}
    assert [found.number for found in store.incidents("r")] == [1, 2]
    assert {row.id for row in store.deliveries.due("chat", 1e3, 10)} == {"open", "waits"}
    assert [found.alert for found in store.firing()] == [about.alert], "the log forgets; what fires now stays"


def test_a_run_that_comes_again_after_it_was_forgotten_does_not_meet_its_old_checkpoint(store: Store) -> None:
    ended = run_row("ended", status=RunStatus.FINISHED, checkpoint=b"of long ago")
    store.commit(Commit([Advance("p/0", None, 10)], 1.0, runs=[ended, run_row("r", checkpoint=b"of r")]))
    assert store.sweep(Retention(history_age=10.0), now=1e6).runs == 1
    store.commit(Commit([Advance("p/0", 10, 20)], 1e6, runs=[run_row("ended")]))
    again, other = store.restore("ended"), store.restore("r")
    assert again is not None and (again.checkpoint, again.checkpoint_sequence) == (None, 0)
    assert other is not None and other.checkpoint == b"of r"


def _of(incident_id: str, name: str) -> Delivery:
    row = delivery(name)
    row.incident = incident_id
    row.dedup_key = name
    return row

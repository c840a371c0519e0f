"""What people look up of an incident: bounded, newest first, and of it alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alerts.model import Action, DeliveryStatus
from rules.model import EventState
from service.store import reading
from service.store.model import Advance, Commit
from service.store.store import Store
from tests.kit.commits import delivery, event, incident, run_row


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        closed = [incident("r", number, closed_at=100.0 + number) for number in (1, 2, 3)]
        open_ones = [incident("r", 4), incident("other", 1, closed_at=101.5)]
        events = [event("r", step=n, event_time=10.0 * n, state=EventState.FIRING) for n in range(1, 9)]
        rows = [delivery(f"d{n}", of=event("r", f"Alert{n}")) for n in range(3)]
        opened.commit(
            Commit(
                [Advance("p/0", None, 1)],
                5.0,
                runs=[run_row("r", 7, b"checkpoint"), run_row("other", 3)],
                events=[*events, event("other", event_time=50.0)],
                incidents=[*closed, *open_ones],
                deliveries=[*rows, delivery("x", of=event("other"))],
            )
        )
        yield opened


def test_one_run_as_in_the_list(store: Store) -> None:
    assert reading.run(store.database, "r") == next(row for row in store.runs() if row.run == "r")
    assert reading.run(store.database, "nobody") is None


def test_closed_incidents(store: Store) -> None:
    found = reading.closed_incidents(store.database)
    assert [each.id for each in found] == ["r#3", "r#2", "other#1", "r#1"]
    assert [each.id for each in reading.closed_incidents(store.database, of_run="r", limit=2)] == ["r#3", "r#2"]


def test_events_of_a_stretch(store: Store) -> None:
    found = reading.events_between(store.database, "r", 30.0, 60.0)
    assert [row.event.step for row in found] == [6, 5, 4, 3]
    assert [row.event.step for row in reading.events_between(store.database, "r", 30.0, None, limit=2)] == [8, 7]


def test_who_was_told(store: Store) -> None:
    first = store.deliveries.due("chat", 100.0, 10)[0]
    store.deliveries.begin(first)
    first.status, first.error = DeliveryStatus.FAILED, "it was refused"
    store.deliveries.finish(first)
    found = reading.heard(store.database, "r#1", limit=2)
    assert (found.total, [row.alert for row in found.rows]) == (3, ["Alert2", "Alert1"])
    last = reading.heard(store.database, "r#1").rows[-1]
    assert last[1:] == ("chat", Action.TRIGGER, "Alert0", DeliveryStatus.FAILED, 1, 0.0, "it was refused", "")
    assert reading.heard(store.database, "nothing") == ([], 0)

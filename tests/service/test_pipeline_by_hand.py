"""What people say of an incident is committed, and only by a collector whose run it still is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alerts.model import Acknowledgement, DeliveryStatus
from service.consume import Processed
from service.store.model import Advance, Commit, PositionLost
from tests.kit.pipelines import Bench, begin, steps

ID = "r#1"


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.push(*steps("r", [1.0, 20.0, 20.0]))
    made.read()
    yield made
    made.shut()


def _rows(bench: Bench) -> list[tuple[str, str]]:
    return [(row.action.value, row.note) for row in bench.store.deliveries.due("console", 1e9, 10)]


def test_an_acknowledgement_outlives_a_restart(bench: Bench) -> None:
    assert bench.pipeline.is_open(ID)
    bench.pipeline.acknowledge(ID, "ada", 900.0, 5.0, door="http")
    after = bench.restart()
    after.read()
    after.push(begin("r"))
    after.read()
    (found,) = after.store.open_incidents()
    assert found.acknowledged == Acknowledgement(owner="ada", at=5.0, until=900.0, door="http")
    assert after.book.open_incident("r") == found


def test_closed_by_hand_its_receivers_are_told_and_woken_once(bench: Bench) -> None:
    processed = bench.pipeline.close_by_hand(ID, "ada", 5.0)
    assert processed.receivers == {"console"}
    assert _rows(bench) == [("trigger", "")]
    (begun,) = bench.store.deliveries.due("console", 1e9, 10)
    bench.store.deliveries.begin(begun)
    begun.status = DeliveryStatus.SENT
    bench.store.deliveries.finish(begun)
    assert _rows(bench) == [("resolve", "closed by ada")]
    assert bench.pipeline.close_by_hand(ID, "bob", 6.0).receivers == set()


def test_of_an_incident_that_is_not_open_nothing_is_committed(bench: Bench) -> None:
    assert not bench.pipeline.is_open("r#2")
    assert bench.pipeline.acknowledge("r#2", "ada", 900.0, 5.0) == Processed()
    assert bench.pipeline.close_by_hand("r#2", "ada", 5.0) == Processed()


@pytest.mark.parametrize("door", ["acknowledge", "close"])
def test_a_collector_that_lost_its_partition_says_nothing(bench: Bench, door: str) -> None:
    bench.store.commit(Commit([Advance("memory/0", 3, 4)], 0.0))
    with pytest.raises(PositionLost):
        if door == "close":
            bench.pipeline.close_by_hand(ID, "ada", 5.0)
        else:
            bench.pipeline.acknowledge(ID, "ada", 900.0, 5.0)
    (found,) = bench.store.open_incidents()
    assert found.acknowledged is None and all(told.firing for told in found.alerts.values())
    assert _rows(bench) == [("trigger", "")]

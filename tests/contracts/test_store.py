"""The contract of the store, on a file and on its twin in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.model import Action, Delivery, DeliveryStatus
from collector.model import RunStatus
from rules.model import EventState, Severity
from service.store.deliveries import Backlog
from service.store.model import (
    Advance,
    Commit,
    DuplicateDelivery,
    PositionLost,
    StateRow,
)
from service.store.store import IN_MEMORY, Store
from tests.kit.commits import contents, delivery, event, incident, nth, raw, run_row


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with Store(IN_MEMORY if request.param == "memory" else f"sqlite:///{tmp_path / 'tocsin.db'}") as opened:
        yield opened


def test_a_commit_is_read_back_whole(store: Store) -> None:
    store.commit(nth(0))
    store.commit(nth(1))

    assert store.position("p/0") == 20
    restored = store.restore("r")
    assert restored is not None
    assert (restored.partition, restored.checkpoint, restored.sequence) == ("p/0", None, 2)
    assert [row.state for row in restored.states] == [b"state 2"]
    assert [record.facts for record in restored.records] == [b"facts", b"facts"]
    assert [record.raw for record in restored.records] == [raw(0, value=b"row 1"), raw(10, value=b"row 2")]
    assert [row.event.state for row in store.alerts()] == [EventState.RESOLVED, EventState.FIRING]
    assert store.firing() == []
    assert [found.closed_at for found in store.incidents("r")] == [80.0]


def test_restore_begins_after_the_checkpoint_and_keeps_an_older_one(store: Store) -> None:
    for number in range(5):  # a checkpoint with the third row
        store.commit(nth(number))
    restored = store.restore("r")
    assert restored is not None
    assert (restored.checkpoint, restored.checkpoint_sequence) == (b"checkpoint 3", 3)
    assert [record.sequence for record in restored.records] == [4, 5]


def test_what_was_never_seen_is_none(store: Store) -> None:
    assert store.position("elsewhere") is None
    assert store.restore("nobody") is None
    assert store.incidents("nobody") == []


@pytest.mark.parametrize("before", [None, 0, 20])
def test_a_position_that_is_not_ours_any_more_stops_the_whole_commit(store: Store, before: int | None) -> None:
    store.commit(nth(0))
    kept = contents(store)
    with pytest.raises(PositionLost, match="another collector") as lost:
        store.commit(nth(1)._replace(advances=[Advance("p/0", before, 30)]))
    assert (lost.value.partition, lost.value.expected) == ("p/0", before)
    assert contents(store) == kept


def test_the_second_of_two_partitions_undoes_the_first(store: Store) -> None:
    store.commit(nth(0))
    kept = contents(store)
    with pytest.raises(PositionLost):
        store.commit(Commit([Advance("p/0", 10, 20), Advance("p/1", 5, 6)], 1.0))
    assert contents(store) == kept


def test_a_delivery_id_is_inserted_once(store: Store) -> None:
    store.commit(nth(0))
    kept = contents(store)
    with pytest.raises(DuplicateDelivery):
        store.commit(nth(1)._replace(deliveries=[delivery("r/0")]))
    assert contents(store) == kept


def test_firing_is_by_identity_and_by_the_last_event(store: Store) -> None:
    component = {"component": "format"}
    store.commit(
        nth(0)._replace(
            events=[
                event(),
                event(labels=component),
                event(severity=Severity.WARNING, step=8, state=EventState.EXPLAINED),
                event(labels=component, state=EventState.RESOLVED, step=8),
                event(run="other"),
            ]
        )
    )
    assert [(found.run, found.labels, found.step, found.state) for found in store.firing("r")] == [
        ("r", {}, 8, EventState.EXPLAINED)
    ]
    assert {found.run for found in store.firing()} == {"r", "other"}


def test_alerts_are_filtered_and_paged(store: Store) -> None:
    for number in range(6):
        store.commit(nth(number))
    newest = store.alerts(limit=2)
    assert [row.event.step for row in newest] == [6, 5]
    assert [row.event.step for row in store.alerts(limit=2, before=newest[-1].sequence)] == [4, 3]
    assert [row.event.step for row in store.alerts(state=EventState.FIRING)] == [5, 3, 1]
    assert store.alerts(severity=Severity.STOP) == []
    assert store.alerts(run="other") == []


def test_states_are_kept_by_rule_and_labels_and_can_be_removed(store: Store) -> None:
    rows = [StateRow("r", "a", "{}", b"1"), StateRow("r", "a", '{"c":"x"}', b"2"), StateRow("r", "b", "{}", b"3")]
    store.commit(Commit([Advance("p/0", None, 1)], 1.0, states=rows))
    store.commit(Commit([Advance("p/0", 1, 2)], 1.0, states=[StateRow("r", "a", "{}", b"4"), StateRow("r", "b", "{}", None)]))
    assert set(store.states("r")) == {StateRow("r", "a", "{}", b"4"), StateRow("r", "a", '{"c":"x"}', b"2")}
    assert store.states("other") == []


def test_what_is_kept_under_an_id_that_is_no_rules_is_found_by_run(store: Store) -> None:
    rows = [
        StateRow("a", "own", "", b"1"),
        StateRow("a", "own", "{}", b"of a rule"),
        StateRow("b", "own", "", b"2"),
        StateRow("b", "other", "", b"3"),
        StateRow("c", "own", "", b"4"),
    ]
    store.commit(Commit([], 0.0, states=rows))
    assert store.kept("own", ["a", "b", "d"]) == {"a": b"1", "b": b"2"}
    assert store.kept("own", []) == {}


def test_non_finite_values_survive(store: Store) -> None:
    store.commit(nth(0)._replace(events=[event(value=float("nan"), limit=float("inf"))]))
    found = store.firing()[0]
    assert found.value is not None and found.value != found.value
    assert found.limit == float("inf")


def test_runs_are_listed_by_partition_and_status(store: Store) -> None:
    rows = [
        run_row("a"),
        run_row("b", partition="p/1", last_arrival=9.0),
        run_row("c", status=RunStatus.FINISHED),
    ]
    store.commit(Commit([Advance("p/0", None, 1)], 1.0, runs=rows))
    assert [row.run for row in store.runs()] == ["b", "a", "c"]
    assert [row.run for row in store.runs(partition="p/1")] == ["b"]
    assert [row.run for row in store.runs(status=RunStatus.FINISHED)] == ["c"]
    assert [row.run for row in store.runs(limit=1)] == ["b"]
    assert store.runs()[1] == rows[0]


def test_incidents_of_a_run_are_the_open_ones_and_the_newest(store: Store) -> None:
    closed = [incident(number=number, closed_at=90.0) for number in (1, 3)]
    store.commit(nth(0)._replace(incidents=[*closed, incident(number=2)]))
    assert [found.number for found in store.incidents("r")] == [2, 3]
    assert [found.id for found in store.open_incidents()] == ["r#2"]


def test_the_backlog_is_what_is_not_final(store: Store) -> None:
    assert store.deliveries.backlog() == {}
    store.commit(nth(0))
    store.commit(nth(1))
    assert store.deliveries.backlog() == {"chat": Backlog(2, 70.0)}
    assert store.deliveries.waiting() == {"chat"}
    row = store.deliveries.due("chat", 1e3, 1)[0]
    row.status = DeliveryStatus.FAILED
    store.deliveries.finish(row)
    assert store.deliveries.backlog() == {"chat": Backlog(1, 70.0)}


REVIVED: dict[str, dict[str, object]] = {
    "refused": {},
    "expired, the receiver was away": {"error": "expired"},
}
NOT_REVIVED: dict[str, dict[str, object]] = {
    "sent": {"status": DeliveryStatus.SENT},
    "skipped": {"status": DeliveryStatus.SKIPPED},
    "may have arrived": {"ambiguous": True},
    "an end": {"action": Action.RESOLVE},
    "of an incident that is over": {"incident": "r#2"},
    "of a receiver that is not there": {"receiver": "left"},
}


@pytest.mark.parametrize("what", [*REVIVED, *NOT_REVIVED])
def test_what_was_refused_is_tried_once_more(store: Store, what: str) -> None:
    changes = {"status": DeliveryStatus.FAILED, "attempts": 3, "receiver": "chat"} | (REVIVED | NOT_REVIVED)[what]
    row = delivery("a")
    for name in ("receiver", "action", "incident"):
        setattr(row, name, changes.get(name, getattr(row, name)))
    over = incident(number=2, closed_at=80.0)
    store.commit(Commit([Advance("p/0", None, 1)], 5.0, incidents=[incident(), over], deliveries=[row]))
    for name, value in changes.items():
        setattr(row, name, value)
    store.deliveries.finish(row)
    assert store.deliveries.revive(["chat", "other"], 50.0) == (what in REVIVED)
    found = store.deliveries.due(str(changes["receiver"]), 50.0, 10)
    assert [(each.attempts, each.error) for each in found] == ([(3, row.error)] if what in REVIVED else [])
    assert not store.deliveries.due("chat", 49.0, 10) and store.deliveries.revive(["chat"], 60.0) == 0


@pytest.mark.parametrize("by", ["end", "second chance"])
def test_what_was_refused_and_is_over_or_told_by_another_message_is_not(store: Store, by: str) -> None:
    refused, other = delivery("a"), delivery("b", action=Action.RESOLVE if by == "end" else Action.TRIGGER)
    store.commit(Commit([Advance("p/0", None, 1)], 5.0, incidents=[incident()], deliveries=[refused, other]))
    for row, status in ((refused, DeliveryStatus.FAILED), (other, DeliveryStatus.SENT)):
        row.status = status
        store.deliveries.finish(row)
    assert store.deliveries.revive(["chat"], 50.0) == 0


def test_it_says_how_large_it_is(store: Store) -> None:
    assert store.size() > 4096


def test_threads_take_turns(store: Store) -> None:
    failures: list[BaseException] = []
    store.commit(nth(0)._replace(deliveries=[_key(number) for number in range(8)]))

    def work(number: int) -> None:
        try:
            row = next(row for row in store.deliveries.due("chat", 1e3, 100) if row.id == str(number))
            store.deliveries.begin(row)
            row.status = DeliveryStatus.SENT
            store.deliveries.finish(row)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    store.commit(nth(1))
    for thread in threads:
        thread.join()
    assert failures == []
    assert [row.id for row in store.deliveries.due("chat", 1e3, 100)] == ["r/1"]


def _key(number: int) -> Delivery:
    row = delivery(str(number))
    row.dedup_key = str(number)
    return row


def test_incidents_that_are_over_are_told_from_those_that_are_not(store: Store) -> None:
    store.commit(nth(0)._replace(incidents=[incident(number=1, closed_at=90.0), incident(number=2)]))
    unknown = {f"x#{number}" for number in range(1_000)}
    assert store.over({"r#1", "r#2", *unknown}) == {"r#1", *unknown}
    assert store.over([]) == set()

"""The contract of the store, on a file and on its twin in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from alerts.matching import MatchEntry
from alerts.model import Action, Delivery, DeliveryStatus
from alerts.muting.hours import Hours
from alerts.muting.model import Silence, Window
from collector.model import RunStatus
from rules.model import EventState, Severity
from service.store import schema
from service.store.deliveries import Backlog
from service.store.model import (
    Advance,
    Commit,
    DuplicateDelivery,
    PositionLost,
    Retention,
    SchemaMismatch,
    StateRow,
    StoredRecord,
    StoreError,
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


def _of(incident_id: str, name: str) -> Delivery:
    row = delivery(name)
    row.incident = incident_id
    row.dedup_key = name
    return row


def _key(number: int) -> Delivery:
    row = delivery(str(number))
    row.dedup_key = str(number)
    return row


def test_incidents_that_are_over_are_told_from_those_that_are_not(store: Store) -> None:
    store.commit(nth(0)._replace(incidents=[incident(number=1, closed_at=90.0), incident(number=2)]))
    unknown = {f"x#{number}" for number in range(1_000)}
    assert store.over({"r#1", "r#2", *unknown}) == {"r#1", *unknown}
    assert store.over([]) == set()

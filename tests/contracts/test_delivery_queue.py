"""The contract of `DeliveryQueue`, on every implementation. A new one is a line in QUEUES."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from alerts.memory import MemoryQueue
from alerts.model import Action, BoardLine, Delivery, DeliveryStatus, Incident, LineState
from alerts.ports import DeliveryQueue
from alerts.sample import BRIEF
from rules.model import Severity
from service.store.model import Commit
from service.store.store import Store
from tests.kit.receivers import delivery, event


class Opened(NamedTuple):
    """A queue and the way in which the pipeline puts rows into it."""

    queue: DeliveryQueue
    insert: Callable[[Sequence[Delivery]], None]


@contextmanager
def memory(folder: Path) -> Iterator[Opened]:
    queue = MemoryQueue()
    yield Opened(queue, queue.insert)


@contextmanager
def sqlite(folder: Path) -> Iterator[Opened]:
    with Store(f"sqlite:///{folder / 'tocsin.db'}") as store:

        def insert(rows: Sequence[Delivery]) -> None:
            runs = {row.incident: row.event.run for row in rows}
            incidents = [
                Incident(id=name, run=run, number=1, opened_at=0.0, opened_step=0)  # open
                for name, run in runs.items()
            ]
            store.commit(Commit(advances=[], committed_at=0.0, incidents=incidents, deliveries=list(rows)))

        yield Opened(store.deliveries, insert)


QUEUES: dict[str, Callable[[Path], AbstractContextManager[Opened]]] = {"memory": memory, "sqlite": sqlite}


@pytest.fixture(params=QUEUES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with QUEUES[request.param](tmp_path) as found:
        yield found


def row(alert: str = "A", action: Action = Action.TRIGGER, *, episode: int = 1, **changes: Any) -> Delivery:
    """A row for "chat"; rows of one alert share their dedup key."""
    return delivery(event(alert=alert, episode=episode, event_time=5.0), action, **changes)


def due(opened: Opened, now: float = 100.0, limit: int = 100, receiver: str = "chat") -> list[tuple[str, str]]:
    return [(found.event.alert, found.action.value) for found in opened.queue.due(receiver, now, limit)]


def take(opened: Opened, now: float = 100.0, receiver: str = "chat") -> Delivery:
    return opened.queue.due(receiver, now, 1)[0]


def finish(opened: Opened, found: Delivery, status: DeliveryStatus, **changes: Any) -> None:
    """An attempt with this end."""
    opened.queue.begin(found)
    opened.queue.finish(replace(found, status=status, **changes))


def test_an_empty_queue(opened: Opened) -> None:
    assert due(opened) == []
    assert opened.queue.next_due_at("chat") is None
    assert opened.queue.interrupted("chat") == []
    assert not opened.queue.delivered("chat", "i", "f", 1)


def test_a_row_comes_back_as_it_was_put_in(opened: Opened) -> None:
    put = row(remote="r", error="e", ambiguous=True, attempts=3, not_before=7.0)
    opened.insert([put])
    found = take(opened)
    assert found.sequence > 0
    assert replace(found, sequence=0) == put


def test_a_value_that_is_no_number_survives(opened: Opened) -> None:
    put = delivery(event(value=float("inf"), limit=float("-inf"), explains=("B",), run_labels={"é": "\U0001f514"}))
    opened.insert([put])
    assert take(opened).event == put.event


def test_rows_come_in_order_of_commit_one_per_dedup_key(opened: Opened) -> None:
    opened.insert([row("B"), row("A")])
    opened.insert([row("A", Action.RESOLVE), row("C")])
    assert due(opened) == [("B", "trigger"), ("A", "trigger"), ("C", "trigger")]
    assert due(opened, limit=2) == [("B", "trigger"), ("A", "trigger")]
    assert [found.sequence for found in opened.queue.due("chat", 100.0, 9)] == sorted(
        found.sequence for found in opened.queue.due("chat", 100.0, 9)
    )


def test_a_second_insert_of_an_id_is_refused_whole(opened: Opened) -> None:
    opened.insert([row("A")])
    with pytest.raises(Exception, match=r"exist|insert|UNIQUE|duplicate"):
        opened.insert([row("B"), row("A")])
    assert due(opened) == [("A", "trigger")]


def test_receivers_do_not_see_each_other(opened: Opened) -> None:
    opened.insert([row("A"), row("A", receiver="pager")])
    assert due(opened) == [("A", "trigger")]
    finish(opened, take(opened), DeliveryStatus.SENT)
    assert due(opened) == []
    assert due(opened, receiver="pager") == [("A", "trigger")]
    assert opened.queue.next_due_at("chat") is None
    assert opened.queue.next_due_at("pager") == 0.0


def test_a_row_waits_for_its_time(opened: Opened) -> None:
    opened.insert([row("A", not_before=50.0), row("B", not_before=40.0)])
    assert due(opened, now=39.9) == []
    assert opened.queue.next_due_at("chat") == 40.0
    assert due(opened, now=40.0) == [("B", "trigger")]
    assert due(opened, now=50.0) == [("A", "trigger"), ("B", "trigger")]


def test_a_later_row_waits_while_an_earlier_one_is_tried_again(opened: Opened) -> None:
    opened.insert([row("A"), row("A", Action.RESOLVE), row("B")])
    finish(opened, take(opened), DeliveryStatus.PENDING, not_before=80.0)
    assert due(opened, now=10.0) == [("B", "trigger")], "the resolve does not overtake its trigger, another alert does"
    assert opened.queue.next_due_at("chat") == 0.0
    finish(opened, take(opened, now=10.0), DeliveryStatus.SENT)
    assert opened.queue.next_due_at("chat") == 80.0, "when the trigger is due, not the resolve behind it"
    assert due(opened, now=80.0) == [("A", "trigger")]


@pytest.mark.parametrize("status", [DeliveryStatus.SENT, DeliveryStatus.FAILED, DeliveryStatus.SKIPPED])
def test_a_final_row_lets_the_next_one_pass(opened: Opened, status: DeliveryStatus) -> None:
    opened.insert([row("A"), row("A", Action.RESOLVE)])
    finish(opened, take(opened), status)
    assert due(opened) == [("A", "resolve")]


def test_a_begun_row_is_in_nobodys_hands_twice(opened: Opened) -> None:
    opened.insert([row("A"), row("A", Action.RESOLVE)])
    found = take(opened)
    opened.queue.begin(found)
    assert (found.status, found.attempts) == (DeliveryStatus.SENDING, 1)
    assert due(opened) == []
    assert opened.queue.next_due_at("chat") is None
    (left,) = opened.queue.interrupted("chat")
    assert (left.id, left.status, left.attempts) == (found.id, DeliveryStatus.SENDING, 1)
    assert opened.queue.interrupted("pager") == []


def test_an_attempt_leaves_its_traces(opened: Opened) -> None:
    opened.insert([row("A")])
    finish(opened, take(opened), DeliveryStatus.PENDING, not_before=9.0, error="timeout: x", ambiguous=True)
    again = take(opened)
    assert (again.attempts, again.error, again.ambiguous, again.not_before) == (1, "timeout: x", True, 9.0)
    finish(opened, again, DeliveryStatus.PENDING, remote="1700.1", ambiguous=False, error="")
    last = take(opened)
    assert (last.attempts, last.remote, last.ambiguous, last.error) == (2, "1700.1", False, "")
    assert opened.queue.interrupted("chat") == []


@pytest.mark.parametrize(
    ("status", "ambiguous", "delivered"),
    [
        (DeliveryStatus.SENT, False, True),
        (DeliveryStatus.FAILED, False, False),
        (DeliveryStatus.FAILED, True, True),
        (DeliveryStatus.PENDING, False, False),
        (DeliveryStatus.PENDING, True, True),
        (DeliveryStatus.SKIPPED, False, False),
    ],
)
def test_delivered_means_that_it_may_have_arrived(
    opened: Opened, status: DeliveryStatus, ambiguous: bool, delivered: bool
) -> None:
    opened.insert([row("A"), row("A", receiver="pager")])
    found = take(opened)
    finish(opened, found, status, ambiguous=ambiguous)
    assert opened.queue.delivered("chat", found.incident, found.fingerprint, 1) is delivered
    assert not opened.queue.delivered("pager", found.incident, found.fingerprint, 1)
    assert not opened.queue.delivered("chat", found.incident, found.fingerprint, 2)
    assert not opened.queue.delivered("chat", found.incident, "another", 1)
    assert not opened.queue.delivered("chat", "another", found.fingerprint, 1)


def test_a_row_under_way_may_have_arrived(opened: Opened) -> None:
    opened.insert([row("A")])
    found = take(opened)
    assert not opened.queue.delivered("chat", found.incident, found.fingerprint, 1)
    opened.queue.begin(found)
    assert opened.queue.delivered("chat", found.incident, found.fingerprint, 1)


def test_a_resolve_that_was_delivered_is_no_trigger(opened: Opened) -> None:
    opened.insert([row("A", Action.RESOLVE)])
    found = take(opened)
    finish(opened, found, DeliveryStatus.SENT)
    assert not opened.queue.delivered("chat", found.incident, found.fingerprint, 1)


def test_any_row_of_a_page_is_enough(opened: Opened) -> None:
    """Two triggers of one page carry the opener's fingerprint and episode; the first was refused, the second arrived."""
    page: dict[str, Any] = {"fingerprint": "opener", "dedup_key": "page"}
    opened.insert([row("A", **page), row("B", **page), row("A", Action.RESOLVE, **page)])
    finish(opened, take(opened), DeliveryStatus.FAILED)
    incident = take(opened).incident
    assert not opened.queue.delivered("chat", incident, "opener", 1)
    finish(opened, take(opened), DeliveryStatus.SENT)
    assert opened.queue.delivered("chat", incident, "opener", 1)
    assert due(opened) == [("A", "resolve")]


def test_note_and_board_come_out_as_they_went_in(opened: Opened) -> None:
    lines = (
        BoardLine(alert="A", severity=Severity.STOP, layer=1, state=LineState.FIRING, step=7, value=float("inf")),
        BoardLine(alert="Ü\x00", severity=Severity.INFO, layer=0, state=LineState.MUTED, step=0),
    )
    opened.insert([row("A", note="acknowledged by ada", board=lines), row("B", Action.REMIND)])
    first, second = opened.queue.due("chat", 100.0, 10)
    assert (first.note, first.board) == ("acknowledged by ada", lines)
    assert (second.note, second.board, second.action) == ("", (), Action.REMIND)


def test_a_brief_comes_out_as_it_went_in(opened: Opened) -> None:
    opened.insert([row("A", brief=BRIEF), row("B")])
    assert [each.brief for each in opened.queue.due("chat", 100.0, 10)] == [BRIEF, None]


def test_a_beginning_is_the_trigger_that_was_sent(opened: Opened) -> None:
    opened.insert([row("A"), row("A", Action.RESOLVE), row("A", episode=2)])
    found = take(opened)
    assert opened.queue.beginning("chat", found.incident, found.fingerprint, 1) is None
    finish(opened, found, DeliveryStatus.SENT, remote="17.1")
    begun = opened.queue.beginning("chat", found.incident, found.fingerprint, 1)
    assert begun is not None and (begun.id, begun.remote) == (found.id, "17.1")
    assert opened.queue.beginning("chat", found.incident, found.fingerprint, 2) is None
    assert opened.queue.beginning("pager", found.incident, found.fingerprint, 1) is None
    finish(opened, take(opened), DeliveryStatus.SENT, remote="the resolve")
    begun = opened.queue.beginning("chat", found.incident, found.fingerprint, 1)
    assert begun is not None and begun.remote == "17.1"


def test_a_root_is_the_first_row_that_was_sent_under_the_name_that_the_newest_gave(opened: Opened) -> None:
    thread: dict[str, Any] = {"dedup_key": "thread"}
    incident = row().incident
    opened.insert([row("A", **thread), row("B", **thread), row("C", **thread), row("A", incident="r#2", **thread), row("D")])
    assert opened.queue.root("chat", "thread", incident) is None
    finish(opened, take(opened), DeliveryStatus.FAILED)
    assert opened.queue.root("chat", "thread", incident) is None
    finish(opened, take(opened), DeliveryStatus.SENT, remote="1.1")
    found = opened.queue.root("chat", "thread", incident)
    assert found is not None and (found.first.event.alert, found.remote) == ("B", "1.1")
    finish(opened, take(opened), DeliveryStatus.SENT, remote="2.2")
    found = opened.queue.root("chat", "thread", incident)
    assert found is not None and (found.first.event.alert, found.remote) == ("B", "2.2")
    assert opened.queue.root("pager", "thread", incident) is None
    assert opened.queue.root("chat", "thread", "r#2") is None


def held(opened: Opened) -> list[tuple[str, int]]:
    return [(found.event.alert, found.event.episode) for found in opened.queue.held("chat")]


def test_what_is_held_was_sent_and_has_no_end(opened: Opened) -> None:
    opened.insert([row("A"), row("B"), row("C"), row("A", receiver="pager")])
    assert held(opened) == []
    for status in (DeliveryStatus.SENT, DeliveryStatus.FAILED, DeliveryStatus.SENT):
        finish(opened, take(opened), status)
    assert held(opened) == [("A", 1), ("C", 1)]
    opened.insert([row("A", Action.RESOLVE), row("A", episode=2)])  # planned is enough: the end is on its way
    assert held(opened) == [("C", 1)]
    finish(opened, take(opened), DeliveryStatus.SENT)
    finish(opened, take(opened), DeliveryStatus.SENT)
    assert held(opened) == [("C", 1), ("A", 2)]


def test_an_episode_that_is_counted_anew_in_another_incident_is_another(opened: Opened) -> None:
    """A rule that lost its state begins with episode 1 again."""
    opened.insert([row("A"), row("A", Action.RESOLVE), row("A", incident="grpo-7b-042#2")])
    for remote in ("first", "end", "second"):
        finish(opened, take(opened), DeliveryStatus.SENT, remote=remote)
    assert held(opened) == [("A", 1)]
    found = [opened.queue.beginning("chat", f"grpo-7b-042#{number}", row("A").fingerprint, 1) for number in (1, 2, 3)]
    assert [begun and begun.remote for begun in found] == ["first", "second", None]


def test_what_is_handed_out_is_a_copy(opened: Opened) -> None:
    opened.insert([row("A")])
    found = take(opened)
    found.error = "changed"
    found.attempts = 99
    assert (take(opened).error, take(opened).attempts) == ("", 0)


def test_an_unknown_row_is_refused(opened: Opened) -> None:
    with pytest.raises(Exception, match="no delivery has the id"):
        opened.queue.begin(row("A"))
    with pytest.raises(Exception, match="no delivery has the id"):
        opened.queue.finish(row("A"))


def test_several_threads_at_once(opened: Opened) -> None:
    """Workers of several receivers and a committing pipeline; each row is sent once, in order."""
    names = [f"r{number}" for number in range(4)]
    done: dict[str, list[int]] = {name: [] for name in names}
    faults: list[BaseException] = []

    def work(name: str) -> None:
        try:
            while len(done[name]) < 10:
                for found in opened.queue.due(name, 100.0, 5):
                    finish(opened, found, DeliveryStatus.SENT)
                    done[name].append(found.event.episode)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for number in range(10):
        opened.insert([row("A", episode=number, receiver=name) for name in names])
    for thread in threads:
        thread.join(60)
    assert not faults
    assert done == {name: list(range(10)) for name in names}


@pytest.mark.parametrize("late", [DeliveryStatus.PENDING, DeliveryStatus.FAILED, DeliveryStatus.SENT])
def test_an_attempt_that_ends_late_does_not_undo_a_later_one(opened: Opened, late: DeliveryStatus) -> None:
    """A worker was given up during an attempt that hung; the next one took its row for interrupted and sent it."""
    opened.insert([row()])
    hung = take(opened)
    opened.queue.begin(hung)
    (again,) = opened.queue.interrupted("chat")
    opened.queue.finish(replace(again, status=DeliveryStatus.PENDING, ambiguous=True))
    again = take(opened)
    opened.queue.begin(again)
    opened.queue.finish(replace(hung, status=late, not_before=1.0))
    assert [found.attempts for found in opened.queue.interrupted("chat")] == [2], "the second attempt is under way"
    opened.queue.finish(replace(again, status=DeliveryStatus.SENT))
    opened.queue.finish(replace(hung, status=late, not_before=1.0))
    assert due(opened) == [] and opened.queue.interrupted("chat") == []


def test_an_attempt_that_ends_late_counts_while_nobody_has_tried_again(opened: Opened) -> None:
    opened.insert([row()])
    hung = take(opened)
    opened.queue.begin(hung)
    (found,) = opened.queue.interrupted("chat")
    opened.queue.finish(replace(found, status=DeliveryStatus.PENDING, ambiguous=True))
    opened.queue.finish(replace(hung, status=DeliveryStatus.SENT))
    assert due(opened) == [], "it was sent"


def test_an_end_that_is_planned_is_known_whatever_becomes_of_it(opened: Opened) -> None:
    opened.insert([row("A"), row("A", Action.RESOLVE), row("B")])
    found = take(opened)
    of = (found.incident, found.fingerprint)
    assert opened.queue.ending("chat", *of, 1)
    assert not opened.queue.ending("pager", *of, 1) and not opened.queue.ending("chat", *of, 2)
    assert not opened.queue.ending("chat", "another", found.fingerprint, 1)
    other = opened.queue.due("chat", 100.0, 10)[1]
    assert not opened.queue.ending("chat", other.incident, other.fingerprint, 1)
    finish(opened, found, DeliveryStatus.SENT)
    finish(opened, take(opened), DeliveryStatus.FAILED)
    assert opened.queue.ending("chat", *of, 1)


def test_ends_are_those_that_were_sent_since(opened: Opened) -> None:
    opened.insert([row("A", Action.RESOLVE, created_at=10.0), row("B", Action.RESOLVE, created_at=20.0)])
    opened.insert(
        [row("C", created_at=20.0), row("D", Action.RESOLVE, created_at=30.0), row("E", Action.RESOLVE, created_at=40.0)]
    )
    assert opened.queue.ended("chat", 0.0) == []
    for found in opened.queue.due("chat", 100.0, 4):
        finish(opened, found, DeliveryStatus.SENT)
    assert [found.event.alert for found in opened.queue.ended("chat", 20.0)] == ["B", "D"]
    assert opened.queue.ended("pager", 0.0) == []

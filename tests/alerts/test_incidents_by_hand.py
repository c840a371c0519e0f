"""What people say about an incident: acknowledged, closed by hand."""

from __future__ import annotations

from typing import Any

import msgspec

from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Acknowledgement, Incident
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

REACH = {"chat": Reach(), "pager": Reach("incident"), "thread": Reach("thread")}
ID = "grpo-7b-042#1"


def everybody(_: AlertEvent) -> list[str]:
    return list(REACH)


def at(step: int, alert: str = "A", state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    return event(alert=alert, state=state, step=step, record=step, event_time=float(step), **changes)


def said(plan: Plan) -> list[tuple[str, str, str]]:
    return [(row.receiver, row.action.value, row.note) for row in plan.deliveries]


def reborn(plan: Plan) -> IncidentBook:
    """A book made anew from what was committed."""
    book = IncidentBook(everybody, REACH)
    book.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Incident) for found in plan.incidents)
    return book


def test_an_acknowledgement_is_told_to_pages_each_time_under_a_new_id() -> None:
    of = IncidentBook(everybody, REACH)
    begun = of.apply([at(1)], 1.0)
    first = of.acknowledge(ID, "ada", 100.0, 2.0, door="http")
    note = "acknowledged by ada until 00:01 UTC"
    assert said(first) == [("pager", "update", note), ("thread", "update", note)]
    assert first.incidents[0].acknowledged == Acknowledgement(owner="ada", at=2.0, until=100.0, door="http")
    assert begun.incidents[0].acknowledged is None, "a plan that was given out does not change"
    second = reborn(first).acknowledge(ID, "bob", 200.0, 3.0, note="bob has it")
    assert [words for _, _, words in said(second)] == ["bob has it"] * 2
    rows = [*begun.deliveries, *first.deliveries, *second.deliveries]
    assert len({row.id for row in rows}) == len(rows) == 7
    assert {row.dedup_key for row in second.deliveries} == {begun.deliveries[1].dedup_key}


def test_nothing_happens_to_an_incident_that_is_not_open() -> None:
    of = IncidentBook(everybody, REACH)
    assert of.acknowledge(ID, "ada", 100.0, 1.0) == of.close_by_hand(ID, "ada", 1.0) == Plan()
    of.apply([at(1)], 1.0)
    of.apply([at(2, state=EventState.RESOLVED)], 2.0)
    assert of.acknowledge(ID, "ada", 100.0, 3.0) == of.close_by_hand(ID, "ada", 3.0) == Plan()


def test_closed_by_hand_all_are_told_the_end_once_and_not_again_before_it_fires_anew() -> None:
    of = IncidentBook(everybody, REACH)
    of.apply([at(1), at(1, "B", severity=Severity.WARNING)], 1.0)
    closed = of.close_by_hand(ID, "ada", 2.0)
    ends = [(row.receiver, row.action.value, row.event.alert) for row in closed.deliveries]
    assert ends == [
        ("chat", "resolve", "A"),
        ("chat", "resolve", "B"),
        ("pager", "resolve", "B"),
        ("thread", "resolve", "B"),
    ]
    assert {row.note for row in closed.deliveries} == {"closed by ada"}
    assert {row.event.severity for row in closed.deliveries if row.receiver == "pager"} == {Severity.PAGE}, "of the page"
    after = reborn(closed)
    assert said(after.close_by_hand(ID, "bob", 3.0)) == []
    assert said(after.apply([at(4, severity=Severity.STOP)], 4.0)) == [], "it fires on, louder"
    assert said(after.apply([at(5, state=EventState.RESOLVED)], 5.0)) == []
    anew = after.apply([at(6, episode=2)], 6.0)
    assert [action for _, action, _ in said(anew)] == ["trigger"] * 3
    other = after.apply([at(7, "C")], 7.0)
    assert said(other)[0] == ("chat", "trigger", ""), "an alert that is new to the incident is told as ever"
    over = after.apply(
        [at(8, name, EventState.RESOLVED, episode=2 if name == "A" else 1) for name in ("A", "B", "C")],
        8.0,
    )
    assert over.incidents[0].closed_at == 8.0
    assert sorted(receiver for receiver, _, _ in said(over)) == ["chat", "chat", "pager", "thread"]

"""What a receiver with threads hears beside beginnings and ends."""

from __future__ import annotations

from typing import Any

import msgspec

from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Incident
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

REACH = {"pager": Reach("incident"), "thread": Reach("thread"), "deaf": Reach("thread", send_resolved=False)}


def everybody(_: AlertEvent) -> list[str]:
    return list(REACH)


def at(step: int, alert: str, state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    return event(alert=alert, state=state, step=step, record=step, event_time=float(step), **changes)


def over(step: int, alert: str) -> AlertEvent:
    return at(step, alert, EventState.RESOLVED)


def said(plan: Plan) -> list[tuple[str, str, str]]:
    return [(row.receiver, row.action.value, row.note) for row in plan.deliveries]


def test_one_of_several_that_resolves_is_an_update_in_the_thread_alone() -> None:
    of = IncidentBook(everybody, REACH)
    begun = of.apply([at(1, "A", severity=Severity.WARNING), at(1, "B"), at(1, "C")], 1.0)
    first = of.apply([over(2, "A")], 2.0)
    assert said(first) == [("thread", "update", "A resolved")]
    (row,) = first.deliveries
    opened = next(each for each in begun.deliveries if each.receiver == "thread")
    assert (row.dedup_key, row.fingerprint) == (opened.dedup_key, opened.fingerprint)
    assert row.event.severity is Severity.PAGE and [line.state.value for line in row.board] == ["resolved", "firing", "firing"]
    last = of.apply([over(3, "B"), over(3, "C")], 3.0)
    assert said(last) == [("pager", "resolve", ""), ("thread", "resolve", "")], "the end says it all"


def test_several_changes_of_a_moment_are_one_row_and_ids_never_repeat_even_after_a_restart() -> None:
    of = IncidentBook(everybody, REACH)
    plans = [of.apply([at(1, name) for name in "ABCD"], 1.0)]
    plans.append(of.apply([over(2, "A"), at(2, "B", EventState.EXPLAINED, explained_by="C")], 2.0))
    assert said(plans[-1]) == [("thread", "update", "B is explained by C; A resolved")]
    after = IncidentBook(everybody, REACH)
    after.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Incident) for found in plans[-1].incidents)
    plans.append(after.apply([at(3, "B", EventState.EXPLAINED, explained_by="C")], 3.0))
    assert said(plans[-1]) == [], "nothing new"
    plans.append(after.apply([at(4, "B")], 4.0))
    assert said(plans[-1]) == [("thread", "update", "B fires by itself")]
    rows = [row.id for plan in plans for row in plan.deliveries]
    assert len(set(rows)) == len(rows)


def test_of_what_it_was_not_told_a_thread_hears_nothing() -> None:
    of = IncidentBook(lambda about: ["thread"] if about.alert == "A" else ["pager"], REACH)
    of.apply([at(1, "A"), at(1, "B"), at(1, "I", severity=Severity.INFO)], 1.0)
    assert said(of.apply([over(2, "B"), over(2, "I")], 2.0)) == [("pager", "resolve", "")]


def test_a_remark_is_a_line_in_the_threads_that_are_open() -> None:
    of = IncidentBook(everybody, REACH)
    assert of.remark("run-1#1", "nobody knows of it", 0.5) == Plan()
    begun = of.apply([at(1, "A"), at(1, "B")], 1.0)
    (found,) = begun.incidents
    first = of.remark(found.id, "the job is asked to pause", 1.0)
    assert said(first) == [("thread", "update", "the job is asked to pause"), ("deaf", "update", "the job is asked to pause")]
    assert first.deliveries[0].board != () and first.incidents[0].updates == found.updates + 1
    second = of.remark(found.id, "it answered", 2.0)
    both = begun.followed_by(first).followed_by(second)
    assert len({row.id for row in both.deliveries}) == len(both.deliveries) == 10
    assert [incident.updates for incident in both.incidents] == [2] and both.kept is begun.kept
    of.apply([over(3, "A"), over(3, "B")], 3.0)
    assert of.remark(found.id, "too late", 4.0) == Plan()


def test_a_remark_about_what_no_thread_knows_is_nothing() -> None:
    of = IncidentBook(lambda _event: ["pager"], REACH)
    (found,) = of.apply([at(1, "A")], 1.0).incidents
    assert of.remark(found.id, "the job is asked to pause", 1.0) == Plan()
    after = of.open_incident(found.run)
    assert after is not None and after.updates == 0

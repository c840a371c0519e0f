"""Reminders: once each, to open threads, not while somebody has it in hand."""

from __future__ import annotations

from typing import Any

import msgspec

from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Incident
from alerts.muting.model import Mute
from alerts.timing import Timing
from rules.model import AlertEvent, EventState
from tests.kit.receivers import event

REACH = {"chat": Reach(), "pager": Reach("incident"), "thread": Reach("thread")}
ID = "grpo-7b-042#1"


def everybody(_: AlertEvent) -> list[str]:
    return list(REACH)


def remind(_: AlertEvent, name: str) -> tuple[float, ...]:
    return (60.0, 3_600.0, 7_200.0)


def at(step: int, state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    return event(alert="A", state=state, step=step, record=step, event_time=float(step), **changes)


def said(plan: Plan) -> list[tuple[str, str, str]]:
    return [(row.receiver, row.action.value, row.note) for row in plan.deliveries]


def book() -> IncidentBook:
    return IncidentBook(everybody, REACH, None, Timing(remind))


def reborn(plan: Plan) -> IncidentBook:
    after = book()
    after.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Incident) for found in plan.incidents)
    return after


def test_each_is_said_once_after_a_restart_too_and_none_after_the_end() -> None:
    of = book()
    begun = of.apply([at(1)], 100.0)
    assert of.waits("grpo-7b-042") and of.tick(159.9) == Plan([], [])
    first = of.tick(160.0)
    assert said(first) == [("thread", "remind", "reminder: open for 1 min")]
    assert first.deliveries[0].board and first.deliveries[0].dedup_key == begun.deliveries[2].dedup_key
    after = reborn(first)
    assert said(after.tick(161.0)) == []
    second = after.tick(100.0 + 7_300.0)
    assert said(second) == [("thread", "remind", "reminder: open for 2 h")], "of two that have passed, one is said"
    assert not after.waits("grpo-7b-042")
    rows = [*begun.deliveries, *first.deliveries, *second.deliveries]
    assert len({row.id for row in rows}) == len(rows)
    after.apply([at(2, EventState.RESOLVED)], 8_000.0)
    assert said(after.tick(1e6)) == []


def test_not_while_it_is_acknowledged_but_then() -> None:
    of = book()
    of.apply([at(1)], 100.0)
    after = reborn(of.acknowledge(ID, "ada", 1_000.0, 110.0))
    assert said(after.tick(999.0)) == []
    assert said(after.tick(1_000.0)) == [("thread", "remind", "reminder: open for 15 min")]


def test_not_while_it_is_muted_and_not_when_the_clock_goes_back() -> None:
    until = {"until": 0.0}
    of = IncidentBook(
        everybody, REACH, lambda _, now: Mute("silence s", None) if now < until["until"] else None, Timing(remind)
    )
    of.apply([at(1)], 100.0)
    until["until"] = 500.0
    assert said(of.tick(200.0)) == []
    assert said(of.tick(-3_600.0)) == []
    assert said(of.tick(500.0)) == [("thread", "remind", "reminder: open for 6 min")]


def test_by_another_configuration_from_the_next_tick_on() -> None:
    of = book()
    of.apply([at(1)], 100.0)
    of.reconfigure(everybody, REACH)
    assert said(of.tick(1e6)) == [] and not of.waits("grpo-7b-042")


def test_a_page_of_an_earlier_version_is_not_waited_for() -> None:
    begun = book().apply([at(1)], 100.0)
    (incident,) = begun.incidents
    for page in incident.pages.values():
        page.opened_at = None
    after = reborn(begun)
    assert said(after.tick(1e6)) == [] and not after.waits("grpo-7b-042")

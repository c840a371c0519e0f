"""What the rows to pages say of the whole incident."""

from __future__ import annotations

from typing import Any

from alerts.board import MAX_LINES
from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import LineState
from alerts.muting.model import Mute
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

REACH = {"chat": Reach(), "pager": Reach("incident"), "thread": Reach("thread")}


def everybody(_: AlertEvent) -> list[str]:
    return list(REACH)


def at(step: int, alert: str, state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    return event(alert=alert, state=state, step=step, record=step, event_time=float(step), **changes)


def mutes_d(about: AlertEvent, _now: float) -> Mute | None:
    return Mute("silence s1", None) if about.alert == "D" else None


def shown(plan: Plan) -> dict[str, list[tuple[str, str, int]]]:
    return {row.receiver: [(line.alert, line.state.value, line.step) for line in row.board] for row in plan.deliveries}


def test_the_board_is_of_the_end_of_the_moment_and_for_pages_alone() -> None:
    of = IncidentBook(everybody, REACH, mutes_d)
    begun = of.apply(
        [
            at(1, "I", severity=Severity.INFO),
            at(1, "A"),
            at(1, "B", EventState.EXPLAINED, explained_by="A"),
            at(1, "D"),
        ],
        1.0,
    )
    lines = [("A", "firing", 1), ("B", "explained", 1), ("D", "muted", 1)]
    assert shown(begun) == {"chat": [], "pager": lines, "thread": lines}
    of.apply([at(2, "A", EventState.RESOLVED)], 2.0)
    again = of.apply([at(3, "B")], 3.0)
    assert shown(again)["thread"] == [("A", "resolved", 1), ("B", "firing", 3), ("D", "muted", 1)]


def test_what_was_closed_by_hand_is_over_on_the_board() -> None:
    of = IncidentBook(everybody, REACH)
    of.apply([at(1, "A")], 1.0)
    assert shown(of.close_by_hand("grpo-7b-042#1", "ada", 2.0))["pager"] == [("A", "resolved", 1)]


def test_a_long_board_keeps_what_fires_and_the_loudest_in_their_order() -> None:
    of = IncidentBook(everybody, REACH)
    of.apply([at(1, f"w{number:02}", severity=Severity.WARNING) for number in range(15)], 1.0)
    of.apply([at(2, "w00", EventState.RESOLVED)], 2.0)
    plan = of.apply([at(3, f"p{number:02}") for number in range(10)], 3.0)
    lines = plan.deliveries[-1].board
    assert len(lines) == MAX_LINES and all(line.state is LineState.FIRING for line in lines)
    assert [line.alert for line in lines] == [f"w{n:02}" for n in range(1, 11)] + [f"p{n:02}" for n in range(10)]

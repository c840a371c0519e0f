"""Episodes and their differences, on events written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rules.model import AlertEvent, EventState, Severity, Verdict
from service.differing import Kind, difference
from service.episodes import episodes
from service.recordings import Recording
from service.replay import Replayed

FIRING, EXPLAINED, RESOLVED = EventState.FIRING, EventState.EXPLAINED, EventState.RESOLVED


def _event(state: EventState, record: int, *, step: int | None = None, label: str = "") -> AlertEvent:
    return AlertEvent(
        run="r",
        alert="A",
        id="a",
        labels={"part": label} if label else {},
        severity=Severity.PAGE,
        layer=2,
        state=state,
        attempt=1,
        step=record if step is None else step,
        record=record,
        verdict=Verdict.BREACH,
        explained_by="B" if state is EXPLAINED else "",
        event_time=60.0 * record,
    )


def _kinds(before: Sequence[AlertEvent], after: Sequence[AlertEvent]) -> list[tuple[Kind, ...]]:
    sides = [Replayed(Recording(Path("r")), [], events, 10, 0, [], 86_400.0) for events in (before, after)]
    return [change.kinds for change in difference(sides[0], sides[1]).changes]


def test_an_episode_from_explained_to_sent_to_its_end() -> None:
    (one,) = episodes([_event(EXPLAINED, 5), _event(FIRING, 8), _event(EXPLAINED, 9), _event(RESOLVED, 12)])
    assert (one.step, one.sent_step, one.end_step, one.explained_by, one.pages) == (5, 8, 12, "B", True)
    (never,) = episodes([_event(EXPLAINED, 5)])
    assert (never.sent_step, never.end_step, never.pages) == (None, None, False)
    assert episodes([_event(RESOLVED, 3)]) == [], "what was not seen to begin is no episode"


def test_labels_are_alerts_of_their_own() -> None:
    found = episodes([_event(FIRING, 1, label="x"), _event(FIRING, 2, label="y"), _event(RESOLVED, 3, label="x")])
    assert [(each.name, each.end_step) for each in found] == [("A{part=x}", 3), ("A{part=y}", None)]


def test_when_it_is_sent_is_a_change_of_its_own() -> None:
    sooner = [_event(EXPLAINED, 5), _event(FIRING, 6)]
    later = [_event(EXPLAINED, 5), _event(FIRING, 8)]
    assert _kinds(sooner, later) == [(Kind.SENT_LATER,)]
    assert _kinds(later, sooner) == [(Kind.SENT_EARLIER,)]
    assert _kinds([_event(EXPLAINED, 5)], sooner) == [(Kind.SENT,)]
    assert _kinds(sooner, [_event(EXPLAINED, 5)]) == [(Kind.EXPLAINED,)]


def test_steps_that_come_again_after_a_resume_are_told_apart_by_their_records() -> None:
    first = [_event(FIRING, 5), _event(RESOLVED, 7)]
    again = [_event(FIRING, 30, step=5), _event(RESOLVED, 32, step=7)]
    assert _kinds(first, again) == [(Kind.GONE,), (Kind.NEW,)]
    assert _kinds([*first, *again], [*first, *again]) == []
    assert _kinds([*first, *again], again) == [(Kind.GONE,)]


def test_the_end_of_an_episode() -> None:
    open_, short, long = [_event(FIRING, 5)], [_event(FIRING, 5), _event(RESOLVED, 7)], [_event(FIRING, 5), _event(RESOLVED, 9)]
    assert _kinds(short, long) == [(Kind.ENDS_LATER,)]
    assert _kinds(long, short) == [(Kind.ENDS_EARLIER,)]
    assert _kinds(open_, long) == [(Kind.ENDS_EARLIER,)]
    assert _kinds(long, open_) == [(Kind.ENDS_LATER,)]

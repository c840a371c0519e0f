"""Alert events as alarms, and alarms as incidents."""

from __future__ import annotations

import pytest

from rules.model import AlertEvent, EventState, Severity, Verdict
from service.scoring.alarms import Alarm, Grade, alarms, incidents


def _event(state: EventState, record: int, alert: str = "A", severity: Severity = Severity.PAGE, **labels: str) -> AlertEvent:
    return AlertEvent(
        run="r",
        alert=alert,
        id=alert.lower(),
        labels=labels,
        severity=severity,
        layer=1,
        state=state,
        attempt=0,
        step=10 * record,
        record=record,
        verdict=Verdict.BREACH,
        event_time=0.0,
    )


FIRING, EXPLAINED, RESOLVED = EventState.FIRING, EventState.EXPLAINED, EventState.RESOLVED


def test_an_alarm_lasts_from_its_beginning_to_its_end() -> None:
    events = [_event(FIRING, 3), _event(FIRING, 4, "B"), _event(RESOLVED, 7), _event(FIRING, 9)]
    assert alarms(events) == [
        Alarm("A", Severity.PAGE, 3, 3, 7),
        Alarm("B", Severity.PAGE, 4, 4),
        Alarm("A", Severity.PAGE, 9, 9),
    ]


def test_an_explained_alarm_is_sent_when_it_fires_by_itself() -> None:
    assert alarms([_event(EXPLAINED, 3), _event(FIRING, 5), _event(FIRING, 6)]) == [Alarm("A", Severity.PAGE, 3, 5)]
    assert alarms([_event(EXPLAINED, 3), _event(RESOLVED, 5)]) == [Alarm("A", Severity.PAGE, 3, None, 5)]


def test_own_labels_make_another_alarm() -> None:
    events = [_event(FIRING, 1, part="x"), _event(FIRING, 2, part="y"), _event(RESOLVED, 3, part="x")]
    assert [(alarm.record, alarm.end) for alarm in alarms(events)] == [(1, 3), (2, None)]


def test_the_end_of_what_never_began_is_nothing() -> None:
    assert alarms([_event(RESOLVED, 3)]) == []


@pytest.mark.parametrize(
    ("spans", "sizes"),
    [
        ([], []),
        ([(1, 5), (3, 9), (9, 12)], [3]),
        ([(1, 5), (6, 9)], [1, 1]),
        ([(1, None), (500, 501)], [2]),
        ([(6, 7), (1, 9), (10, 11), (11, None)], [2, 2]),
    ],
)
def test_an_incident_is_open_until_nothing_fires(spans: list[tuple[int, int | None]], sizes: list[int]) -> None:
    found = [Alarm("A", Severity.PAGE, begin, begin, end) for begin, end in spans]
    assert [len(group) for group in incidents(found)] == sizes


def test_grades() -> None:
    assert [severity.value for severity in Severity if Grade.PAGE.holds(severity)] == ["page", "stop"]
    assert [severity.value for severity in Severity if Grade.ANY.holds(severity)] == ["warning", "page", "stop"]

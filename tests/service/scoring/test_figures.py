"""Figures of made runs whose answers are known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rules.model import Severity
from service.labels import Label, Window
from service.scoring.alarms import Alarm, Grade
from service.scoring.figures import RuleFigure, rules, total
from service.scoring.watched import TOCSIN, Watched

PAGE, WARNING, INFO = Severity.PAGE, Severity.WARNING, Severity.INFO
BUNDLE = {"Page": PAGE, "Warn": WARNING, "Info": INFO}


def _fault(
    *alarms: Alarm, onset: int = 50, must: Sequence[Window] = (), allowed: Sequence[str] = (), every: int = 1, last: int = 100
) -> Watched:
    label = Label("f", None, "fault", onset, must_fire=tuple(must), allowed=frozenset(allowed))
    return Watched("fault", label, range(every, last + 1, every), {TOCSIN: alarms})


def _well(*alarms: Alarm, kind: str = "healthy", **label: object) -> Watched:
    made = Label("w", None, "control" if kind == "control" else "healthy", **label)  # type: ignore[arg-type]  # of two kinds
    return Watched(kind, made, range(1, 201), {TOCSIN: alarms})


def _window(*names: str, first: int = 50, last: int = 55) -> Window:
    return Window(names, (first, last))


def _page(record: int, end: int | None = None, name: str = "Page") -> Alarm:
    return Alarm(name, PAGE, record, record, end)


def _warn(record: int, end: int | None = None) -> Alarm:
    return Alarm("Warn", WARNING, record, record, end)


# ---- all rules together


def test_a_delay_is_counted_in_records_from_the_first_one_of_the_fault() -> None:
    """Logged every 5 steps: the onset at step 52 is first seen at step 55, which is record 11."""
    run = _fault(_page(12), onset=52, every=5, must=[_window("Page", first=52)])
    assert (run.onset, run.healthy, run.records) == (11, 10, 20)
    (fault,) = total(TOCSIN, Grade.PAGE, [run], BUNDLE).faults
    assert (fault.onset, fault.alarm, fault.delay, fault.incidents) == (52, "Page", 1, 1)


def test_an_onset_behind_the_end_is_the_last_record() -> None:
    assert _fault(onset=119, last=118).onset == 118


def test_the_record_of_the_onset_is_no_healthy_one() -> None:
    at = total(TOCSIN, Grade.PAGE, [_fault(_page(50), must=[_window("Page")])], BUNDLE)
    before = total(TOCSIN, Grade.PAGE, [_fault(_page(49), must=[_window("Page")])], BUNDLE)
    assert (at.delays, at.false, at.healthy_records) == ([0], (), 49)
    assert (before.delays, before.missed, before.false) == ([], 1, (("fault", "Page", 49),))


def test_within_is_inclusive_and_ranks_are_of_what_was_found() -> None:
    delays = [0, 2, 3, 5, 6, 10, 11]
    runs = [_fault(_page(50 + delay), must=[_window("Page")]) for delay in delays]
    found = total(TOCSIN, Grade.PAGE, [*runs, _fault(must=[_window("Page")])], BUNDLE)
    assert [found.within(near) for near in (2, 5, 10)] == [2, 4, 6]
    assert (found.missed, len(found.faults)) == (1, 8)
    assert (found.delay(0.5), found.delay(0.9), found.delay(1.0)) == (5, 11, 11)


def test_nothing_found_has_no_delay_and_no_incidents() -> None:
    found = total(TOCSIN, Grade.ANY, [_fault()], BUNDLE)
    assert (found.delay(0.5), found.incidents_per_fault, found.missed) == (None, None, 1)
    assert total(TOCSIN, Grade.ANY, [], BUNDLE).false_per_1000 is None


def test_a_fault_counts_at_the_grade_page_when_a_rule_of_the_bundle_is_to_page_for_it() -> None:
    runs = [
        _fault(must=[_window("Page")]),
        _fault(must=[_window("Warn"), _window("Warn", "Page", first=60, last=61)]),
        _fault(must=[_window("Warn")]),
        _fault(must=[_window("NotThereYet")]),
        _fault(),
    ]
    assert len(total(TOCSIN, Grade.PAGE, runs, BUNDLE).faults) == 2
    assert len(total(TOCSIN, Grade.ANY, runs, BUNDLE).faults) == 5


def test_a_warning_is_no_page_and_info_is_nothing() -> None:
    run = _fault(_warn(51), Alarm("Info", INFO, 50, 50), must=[_window("Page")])
    assert total(TOCSIN, Grade.PAGE, [run], BUNDLE).delays == []
    assert total(TOCSIN, Grade.ANY, [run], BUNDLE).delays == [1]


def test_an_explained_alarm_tells_nobody_until_it_is_sent() -> None:
    runs = [
        _fault(Alarm("Page", PAGE, 40, 53), must=[_window("Page")]),
        _fault(Alarm("Page", PAGE, 51, None), must=[_window("Page")]),
    ]
    found = total(TOCSIN, Grade.PAGE, runs, BUNDLE)
    assert (found.delays, found.missed, found.false) == ([3], 1, ())


def test_false_alarms_are_those_of_well_runs_and_of_the_time_before_the_onset() -> None:
    runs = [
        _fault(_page(10, 12), _page(60), must=[_window("Page")]),
        _well(_page(1, 2), _page(200), _warn(7)),
        _well(kind="control"),
    ]
    paged, any_ = (total(TOCSIN, grade, runs, BUNDLE) for grade in Grade)
    assert paged.healthy_records == 49 + 200 + 200
    assert [record for _, _, record in paged.false] == [10, 1, 200]
    assert paged.false_per_1000 == pytest.approx(3 / 449 * 1000)
    assert len(any_.false) == 4


def test_what_a_label_allows_and_what_a_control_asks_for_is_not_false() -> None:
    runs = [
        _fault(_page(10, 12), allowed=["Page"], must=[_window("Warn")]),
        _well(_warn(5), kind="control", later=(_window("Warn", first=5, last=9),)),
        _fault(_warn(20, 21), must=[_window("Warn")]),
    ]
    found = total(TOCSIN, Grade.ANY, runs, BUNDLE)
    assert (found.allowed, found.false) == (2, (("fault", "Warn", 20),))


def test_incidents_of_a_fault_are_those_with_a_beginning_after_the_onset() -> None:
    runs = [
        _fault(_page(51, 55), _page(53, 60, "Other"), must=[_window("Page")]),
        _fault(_page(51, 55), _page(56, 57), _warn(90), must=[_window("Page")]),
        _fault(_page(10, 12), must=[_window("Page")]),
    ]
    paged, any_ = (total(TOCSIN, grade, runs, BUNDLE) for grade in Grade)
    assert [fault.incidents for fault in paged.faults] == [1, 2, 0]
    assert [fault.incidents for fault in any_.faults] == [1, 3, 0]
    assert paged.incidents_per_fault == 1.5


def test_an_info_that_keeps_the_incident_open_joins_two_pages() -> None:
    run = _fault(_page(51, 55), Alarm("Info", INFO, 52, 52, 80), _page(70, 72), must=[_window("Page")])
    assert total(TOCSIN, Grade.PAGE, [run], BUNDLE).faults[0].incidents == 1


def test_another_tool_is_judged_by_its_own_alarms() -> None:
    run = Watched("r", _fault().label, range(1, 101), {TOCSIN: [], "other": [_page(55)]})
    assert total("other", Grade.ANY, [run], BUNDLE).delays == [5]
    assert total(TOCSIN, Grade.ANY, [run], BUNDLE).delays == []


# ---- rule by rule


def _rule(alert: str, *runs: Watched) -> RuleFigure:
    (figure,) = [each for each in rules(runs, BUNDLE) if each.alert == alert]
    return figure


def test_a_rule_answers_its_window_and_is_measured_from_the_first_step_of_it() -> None:
    run = _fault(_page(57), must=[_window("Page", first=55, last=56)])
    figure = _rule("Page", run)
    assert (figure.expected, figure.answered, figure.in_window, figure.delays, figure.missed) == (1, 1, 0, [2], 0)


def test_between_the_onset_and_its_window_a_rule_is_early_not_false() -> None:
    figure = _rule("Page", _fault(_page(51), must=[_window("Page", first=55, last=56)]))
    assert (figure.delays, figure.in_window, figure.false) == ([0], 1, 0)


def test_any_one_of_a_window_answers_it_and_all_have_missed_it_when_none_does() -> None:
    window = _window("Page", "Warn", "NotThereYet")
    answered, silent = _fault(_warn(52), _page(54), must=[window]), _fault(must=[window])
    assert (_rule("Warn", answered).expected, _rule("Page", answered).expected) == (1, 0)
    assert [_rule(name, silent).missed for name in ("Page", "Warn", "NotThereYet")] == [1, 1, 0]


def test_a_rule_that_is_not_there_is_missed_under_its_name() -> None:
    figure = _rule("NotThereYet", _fault(must=[_window("NotThereYet")]))
    assert (figure.severity, figure.missed) == (None, 1)


def test_a_rule_that_is_asked_for_twice_is_to_come_again() -> None:
    windows = [_window("Page", first=50, last=55), _window("Page", first=80, last=90)]
    once = _rule("Page", _fault(_page(51), must=windows))
    twice = _rule("Page", _fault(_page(51, 60), _page(82), must=windows))
    late = _rule("Page", _fault(_page(82), must=windows))
    assert (once.delays, once.missed) == ([1], 1)
    assert (twice.delays, twice.missed) == ([1, 2], 0)
    assert (late.delays, late.missed) == ([2], 1)


def test_two_windows_from_one_step_ask_once_in_the_tighter_one() -> None:
    label = [_window("Page", "Warn", last=52), _window("Page", last=51)]
    figure = _rule("Page", _fault(_page(52), must=label))
    assert (figure.expected, figure.in_window) == (1, 0)


def test_explained_counts_as_fired_for_the_rule() -> None:
    assert _rule("Page", _fault(Alarm("Page", PAGE, 51, None), must=[_window("Page")])).delays == [1]


def test_unasked_and_false_and_allowed() -> None:
    runs = [
        _fault(_page(51), _warn(52), must=[_window("Page")]),
        _well(_warn(3), _page(9), Alarm("Info", INFO, 4, 4)),
        _fault(_warn(3), allowed=["Warn"], must=[_window("Page")]),
    ]
    assert (_rule("Warn", *runs).also, _rule("Warn", *runs).false) == (1, 1)
    assert (_rule("Page", *runs).also, _rule("Page", *runs).false, _rule("Page", *runs).missed) == (0, 1, 1)
    assert _rule("Info", *runs).false == 0


def test_what_a_control_asks_for_is_counted_without_a_delay() -> None:
    figure = _rule("Warn", _well(_warn(7), kind="control", later=(_window("Warn", first=5, last=9),)))
    assert (figure.expected, figure.answered, figure.in_window, figure.delays, figure.false) == (1, 1, 1, [], 0)

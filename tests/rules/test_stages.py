"""Rollout stages: a rule that is tried out changes nothing for anybody, and goes on when it is put in force."""

from __future__ import annotations

import pytest

from alerts.incidents import IncidentBook, Reach
from alerts.model import Action
from rules.bundle import Stage
from rules.config_errors import ConfigErrors
from rules.engine import Engine
from rules.layers import Firing, explanations
from rules.loader import load_text
from rules.model import SHADOW, AlertEvent, EventState
from rules.run_states import RunStates
from tests.kit.view import FakeRun, drive, judge, timeline


def engine(stage: str = "", more: str = "") -> Engine:
    """`Early` (layer 1, stop) at the stage; `more` are further rules of the same group."""
    first = "  - {alert: Early, id: early, expr: x > 1, severity: stop, summary: s" + (
        f", stage: {stage}}}\n" if stage else "}\n"
    )
    return Engine(load_text("group: g\nlayer: 1\nquestion: q\nrules:\n" + first + more))


BOTH = "  - {alert: Both, id: both, expr: firing(Early) and x > 0, severity: warning, summary: s}\n"


def told(book: IncidentBook, events: list[AlertEvent]) -> list[Action]:
    return [row.action for row in book.apply(events, 0.0).deliveries]


def a_book() -> IncidentBook:
    return IncidentBook(lambda event: ["chat"], {"chat": Reach()})


def test_a_shadow_is_judged_and_its_events_are_kept_but_nobody_is_told() -> None:
    subject, book = engine("shadow"), a_book()
    states = RunStates()
    events = drive(subject, FakeRun(), [{"x": 2.0}, {"x": 0.0}], states)
    assert timeline(events) == [(1, "Early", "explained"), (2, "Early", "resolved")]
    assert events[0].explained_by == SHADOW
    assert told(book, events) == []
    assert book.open_incident("run") is None
    assert subject.exposed(states).states == ["inactive"]


def test_a_shadow_explains_nothing() -> None:
    later = Firing("Later", 2, 5, True, False)
    assert explanations([Firing("Early", 0, 1, True, False, shadow=True), later]) == [SHADOW, ""]
    assert explanations([Firing("Early", 0, 1, True, False), later._replace(shadow=True)]) == ["", SHADOW]


def test_a_shadow_marks_nothing_as_unclean() -> None:
    for stage, unclean in (("shadow", set()), ("notify", {"x"}), ("page", {"x"})):
        run = FakeRun()
        run.row(1, x=2.0)
        assert set(judge(engine(stage), run, RunStates()).breaching) == unclean


def test_whether_a_shadow_fires_is_a_fact_that_others_may_ask_for() -> None:
    assert (1, "Both", "firing") in timeline(drive(engine("shadow", BOTH), FakeRun(), [{"x": 2.0}]))


def test_notify_is_a_warning_that_judges_as_the_page_will() -> None:
    nan = float("nan")
    events = drive(engine("notify"), FakeRun(), [{"x": nan}])
    assert [(event.alert, str(event.severity)) for event in events] == [("Early", "warning")]
    rule = engine("notify").bundle.alert("early")
    assert (rule.stage, str(rule.declared)) == (Stage.NOTIFY, "stop")


@pytest.mark.parametrize("stage", ["", "page"])
def test_page_is_the_default(stage: str) -> None:
    assert [str(event.severity) for event in drive(engine(stage), FakeRun(), [{"x": 2.0}])] == ["stop"]


def test_an_alert_that_fires_is_told_when_its_rule_leaves_the_shadow_and_ended_when_it_enters_it() -> None:
    book, states, run = a_book(), RunStates(), FakeRun()
    assert told(book, drive(engine("shadow"), run, [{"x": 2.0}], states)) == []
    out = engine().retire(run, states, 0.0).events
    assert timeline(out) == [(1, "Early", "firing")]
    assert told(book, list(out)) == [Action.TRIGGER]
    back = engine("shadow").retire(run, states, 0.0).events
    assert timeline(back) == [(1, "Early", "explained")]
    assert told(book, list(back)) == [Action.RESOLVE]
    assert book.open_incident("run") is None
    again = engine("notify").retire(run, states, 0.0).events
    assert told(book, list(again)) == [Action.TRIGGER]
    end = drive(engine("notify"), run, [{"x": 0.0}], states, first_step=2)
    assert (end[-1].state, told(book, end)) == (EventState.RESOLVED, [Action.RESOLVE])


def test_a_reload_of_the_same_rules_says_nothing() -> None:
    states, run = RunStates(), FakeRun()
    drive(engine("shadow", BOTH), run, [{"x": 2.0}], states)
    states.dirty.clear()
    assert not engine("shadow", BOTH).retire(run, states, 0.0).events
    assert not states.dirty


def test_an_unknown_stage() -> None:
    with pytest.raises(ConfigErrors, match="none of shadow, notify, page"):
        engine("canary")

"""Other rules while a run goes on: what keeps its state and its timers, what begins anew, and what is told."""

from __future__ import annotations

from typing import Any

import pytest

from rules.engine import Engine
from rules.loader import load_text
from rules.model import AlertEvent, Phase
from rules.run_states import RunStates, StateKey
from tests.kit.view import FakeRun, drive, timeline

TEXT = """\
group: g
layer: 1
question: q
vars:
  limit: {value: 1, unit: nats, doc: d}
  spare: {value: 1, unit: nats, doc: d}
rules:
  - {record: level, expr: x + 0}
  - {alert: A, id: a, expr: level > $limit, for: 3 records, keep: 2 records, severity: page, summary: s}
"""


def engine(**changes: str) -> Engine:
    """The rules above with some texts replaced: old=new, where blanks stand for `_`."""
    text = TEXT
    for old, new in changes.items():
        assert EDITS[old] in text
        text = text.replace(EDITS[old], new)
    return Engine(load_text(text))


EDITS = {
    "expr": "level > $limit",
    "hold": "for: 3 records",
    "keep": "keep: 2 records",
    "severity": "severity: page",
    "summary": "summary: s",
    "name": "alert: A",
    "layer": "layer: 1",
    "limit": "limit: {value: 1",
    "spare": "spare: {value: 1",
    "level": "x + 0",
}

BREACH, FINE = {"x": 2.0}, {"x": 0.0}


def reloaded(before: Engine, after: Engine, rows: list[Any], then: list[Any], *, restart: bool = False) -> list[Any]:
    """The timeline of some rows under one bundle and the next under another; `restart` with the states from the store."""
    states, run = RunStates(), FakeRun()
    events = drive(before, run, rows, states)
    if restart:
        stored = [(key, states.dump(key)) for key in states.states]
        states = RunStates()
        states.load(stored)
    events += after.retire(run, states, 0.0).events
    events += drive(after, run, then, states, first_step=len(rows) + 1)
    return timeline(events)


UNCHANGED = [
    {},
    {"severity": "severity: warning"},
    {"summary": "summary: other"},
    {"name": "alert: Renamed"},
    {"layer": "layer: 2"},
    {"spare": "spare: {value: 9"},
    {"keep": "keep: 5 records"},
    {"expr": "(level) > ($limit)"},
]
CHANGED = [
    {"expr": "level >= $limit"},
    {"limit": "limit: {value: 1.5"},
    {"level": "x * 1"},
]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change", UNCHANGED)
def test_a_hold_goes_on_when_the_condition_means_the_same(change: dict[str, str], restart: bool) -> None:
    found = reloaded(engine(), engine(**change), [BREACH, BREACH], [BREACH, FINE], restart=restart)
    assert [(step, state) for step, _, state in found] == [(3, "firing")]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change", CHANGED)
def test_a_hold_begins_anew_when_it_means_something_else(change: dict[str, str], restart: bool) -> None:
    found = reloaded(engine(), engine(**change), [BREACH, BREACH], [BREACH, BREACH, BREACH], restart=restart)
    assert found == [(5, "A", "firing")]


@pytest.mark.parametrize("change", UNCHANGED + CHANGED)
def test_what_fires_fires_on_whatever_was_edited(change: dict[str, str]) -> None:
    found = reloaded(engine(), engine(**change), [BREACH] * 3, [BREACH] * 3)
    assert [(step, state) for step, _, state in found] == [(3, "firing")]


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_kept_is_kept_on(restart: bool) -> None:
    found = reloaded(engine(), engine(), [BREACH] * 3 + [FINE], [FINE] * 3, restart=restart)
    assert found == [(3, "A", "firing"), (6, "A", "resolved")]
    shorter = reloaded(engine(), engine(keep="keep: 1 records"), [BREACH] * 3 + [FINE], [FINE] * 3, restart=restart)
    assert shorter == [(3, "A", "firing"), (5, "A", "resolved")]


def test_another_span_applies_to_the_hold_where_it_stands() -> None:
    assert reloaded(engine(), engine(hold="for: 2 records"), [BREACH, BREACH], [BREACH]) == [(3, "A", "firing")]
    assert reloaded(engine(), engine(hold="for: 5 records"), [BREACH, BREACH], [BREACH] * 3) == [(5, "A", "firing")]
    assert reloaded(engine(), engine(hold="for: 5 records"), [BREACH] * 3, [BREACH]) == [(3, "A", "firing")]


def test_a_reload_at_every_record_delays_nothing() -> None:
    states, run = RunStates(), FakeRun()
    events: list[AlertEvent] = []
    for step in range(1, 7):
        subject = engine()
        events += subject.retire(run, states, 0.0).events
        events += drive(subject, run, [BREACH if step < 5 else FINE], states, first_step=step)
    assert timeline(events) == [(3, "A", "firing")]
    assert states.states[StateKey("a")].phase is Phase.KEEPING


def test_a_rule_that_is_gone_is_ended_and_one_that_comes_back_begins_anew() -> None:
    states, run = RunStates(), FakeRun()
    other = Engine(load_text(TEXT.replace("id: a,", "id: b,")))
    drive(engine(), run, [BREACH] * 3, states)
    assert timeline(other.retire(run, states, 0.0).events) == [(3, "a", "resolved")]
    drive(other, run, [BREACH], states, first_step=4)
    assert engine().retire(run, states, 0.0).events == [] or states.states[StateKey("a")].phase is Phase.INACTIVE
    assert timeline(drive(engine(), run, [BREACH] * 3, states, first_step=5)) == [(7, "A", "firing")]


def test_what_is_pending_without_a_known_meaning_is_kept() -> None:
    """States that a version without meanings has written."""
    states, run = RunStates(), FakeRun()
    drive(engine(), run, [BREACH, BREACH], states)
    states.states[StateKey("a")].meaning = 0
    engine().retire(run, states, 0.0)
    assert timeline(drive(engine(), run, [BREACH], states, first_step=3)) == [(3, "A", "firing")]


# ---- layers and confirmation --------------------------------------------------------------------------------------------

LAYERED = """\
group: g
layer: {layer}
question: q
rules:
  - {{alert: Root, id: root, expr: x > 1, severity: {severity}, summary: s}}
"""
LATER = """\
group: h
layer: 5
question: q
rules:
  - {alert: Late, id: late, expr: y > 1, severity: warning, summary: s}
  - {alert: Confirmed, id: confirmed, expr: 'firing(Late) and fired_within(Jump, 3)', severity: page, summary: s}
  - {alert: Jump, id: jump, expr: y > 5, severity: info, summary: s}
"""


def layered(tmp_path: Any, layer: int = 1, severity: str = "page") -> Engine:
    from rules.loader import load_bundle

    (tmp_path / "a.yaml").write_text(LATER)
    (tmp_path / "b.yaml").write_text(LAYERED.format(layer=layer, severity=severity))
    return Engine(load_bundle([tmp_path]))


def test_layers_explain_in_whatever_order_things_begin_and_end(tmp_path: Any) -> None:
    subject = layered(tmp_path)
    first = drive(subject, FakeRun(), [{"x": 2, "y": 2}, {"x": 0, "y": 2}, {"x": 0, "y": 0}])
    assert timeline(first) == [
        (1, "Root", "firing"),
        (1, "Late", "explained"),
        (2, "Late", "firing"),
        (2, "Root", "resolved"),
        (3, "Late", "resolved"),
    ]
    second = drive(subject, FakeRun(), [{"x": 0, "y": 2}, {"x": 2, "y": 2}, {"x": 2, "y": 0}])
    assert timeline(second) == [(1, "Late", "firing"), (2, "Root", "firing"), (2, "Late", "explained"), (3, "Late", "resolved")]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ((1, "page"), (1, "page"), []),
        ((1, "page"), (1, "stop"), []),
        ((1, "page"), (1, "warning"), [(1, "Late", "firing")]),
        ((1, "warning"), (1, "page"), [(1, "Late", "explained")]),
        ((1, "page"), (6, "page"), [(1, "Late", "firing")]),
        ((1, "page"), (0, "page"), [(1, "Late", "firing")]),
    ],
)
def test_a_reload_that_changes_who_explains_says_so_once(
    tmp_path: Any, before: tuple[int, str], after: tuple[int, str], told: list[Any], restart: bool
) -> None:
    states, run = RunStates(), FakeRun()
    drive(layered(tmp_path, *before), run, [{"x": 2, "y": 2}], states)
    if restart:
        stored = [(key, states.dump(key)) for key in states.states]
        states = RunStates()
        states.load(stored)
    subject = layered(tmp_path, *after)
    assert timeline(subject.retire(run, states, 0.0).events) == told
    assert subject.retire(run, states, 0.0).events == []
    assert drive(subject, run, [{"x": 2, "y": 2}], states, first_step=2) == []


@pytest.mark.parametrize("restart", [False, True])
def test_a_confirmation_lives_through_reload_and_restart_and_ends_with_what_it_confirms(tmp_path: Any, restart: bool) -> None:
    states, run = RunStates(), FakeRun()
    events = drive(layered(tmp_path), run, [{"y": 9}, {"y": 2}], states)
    if restart:
        stored = [(key, states.dump(key)) for key in states.states]
        states = RunStates()
        states.load(stored)
    subject = layered(tmp_path)
    events += subject.retire(run, states, 0.0).events
    events += drive(subject, run, [{"y": 2}, {"y": 2}, {"y": 2}, {"y": 0}], states, first_step=3)
    assert [each for each in timeline(events) if each[1] == "Confirmed"] == [
        (1, "Confirmed", "firing"),
        (4, "Confirmed", "resolved"),
    ]

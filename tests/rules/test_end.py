"""Ends are told in the order of the bundle, then of the own labels, whatever way the states came into memory."""

from __future__ import annotations

import itertools

import pytest

from rules.engine import Engine
from rules.loader import load_text
from rules.model import AlertEvent
from rules.run_states import RunStates, StateKey
from tests.kit.view import FakeRun, drive

RULES = """
group: g
layer: 1
question: q
rules:
  - {alert: Zeta, id: zeta, expr: "x > 1", severity: page, summary: "z"}
  - {alert: Parts, id: parts, expr: "part > 1", severity: warning, summary: "p"}
  - {alert: Alpha, id: alpha, expr: "x > 1", severity: warning, summary: "a"}
"""
OTHER = """
group: h
layer: 1
question: q
rules:
  - {alert: Y, id: y, expr: "y > 1", severity: info, summary: "y"}
"""
ROW = {"x": 2.0, 'part{component="b"}': 2.0, 'part{component="a"}': 2.0}
KEYS = [StateKey("zeta"), StateKey("parts", (("component", "a"),)), StateKey("parts", (("component", "b"),)), StateKey("alpha")]


def told(events: list[AlertEvent]) -> list[StateKey]:
    return [StateKey(event.id, tuple(event.labels.items())) for event in events]


def restored(states: RunStates, order: tuple[StateKey, ...]) -> RunStates:
    fresh = RunStates()
    fresh.load([(key, states.dump(key)) for key in order])
    return fresh


@pytest.mark.parametrize("order", list(itertools.permutations(KEYS)))
def test_ends_come_in_bundle_order_after_any_restart(order: tuple[StateKey, ...]) -> None:
    subject, run, states = Engine(load_text(RULES)), FakeRun(), RunStates()
    assert len(drive(subject, run, [ROW], states)) == len(KEYS)
    assert told(list(subject.finish(run, restored(states, order), 5.0, "run_finished").events)) == KEYS


@pytest.mark.parametrize("order", list(itertools.permutations(KEYS)))
def test_ends_of_removed_rules_come_by_their_identity(order: tuple[StateKey, ...]) -> None:
    subject, run, states = Engine(load_text(RULES)), FakeRun(), RunStates()
    drive(subject, run, [ROW], states)
    without = Engine(load_text(OTHER))
    found = without.retire(run, restored(states, order), 5.0)
    assert told(list(found.events)) == sorted(KEYS)

"""The engine on the conformance vectors: the timelines of the state machine.

Where a vector says that we differ (`diverge`), the test asserts our documented difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rules.config_errors import ConfigErrors
from rules.engine import Engine
from rules.loader import load_text
from rules.model import Phase
from rules.rule_state import RuleState
from rules.run_states import RunStates, StateKey
from rules.state import Finding, Moment, Timing, advance
from rules.timing import AT_ONCE, NOT_AT_ALL, Domain, Span
from tests.kit import vectors
from tests.kit.conformance import number
from tests.kit.view import FakeRun, drive, judge, timeline

RULE = """
group: vectors
layer: 0
question: Does the machine do what the vectors say?
rules:
  - {{alert: Watch, id: watch, expr: '{when}', severity: warning, summary: watch{more}}}
"""


def engine_of(when: str, hold_seconds: float = 0, keep_seconds: float = 0, more: str = "") -> Engine:
    for key, seconds in (("for", hold_seconds), ("keep", keep_seconds)):
        if seconds:
            more += f", {key}: {seconds:g}s"
    return Engine(load_text(RULE.format(when=when, more=more)))


def expression(when: str) -> str:
    """The vectors' condition in our language; `present` asks for the record's own sample."""
    return {"present": "not absent(x[1 steps])", "always true": "tick >= 0"}.get(when, when.replace("value", "x"))


WORDS = {Phase.INACTIVE: "inactive", Phase.PENDING: "pending", Phase.FIRING: "firing", Phase.KEEPING: "firing"}


def phases(engine: Engine, samples: Sequence[Any], dt: float) -> list[str]:
    """The word of the state after each slot."""
    run, states, words = FakeRun(), RunStates(), []
    for slot, spelled in enumerate(samples):
        value = number(spelled)
        run.row(slot, {"tick": 0.0} if value is None else {"tick": 0.0, "x": value}, time=slot * dt)
        judge(engine, run, states)
        words.append(WORDS[states.get(StateKey("watch")).phase])
    return words


@pytest.mark.parametrize("vector_id", ["S01", "S02", "S03", "S04", "S05"])
def test_holds_and_keeps(vector_id: str) -> None:
    vector = vectors.alerting()[vector_id]
    for case in vector.get("subcases", [vector]):
        rule = case["rule"]
        engine = engine_of(expression(rule["when"]), rule["for_s"], rule["keep_firing_for_s"])
        for name, samples in case["series"].items():
            assert phases(engine, samples, vector["eval_every_s"]) == case["expect"][name], (vector_id, name)


@pytest.mark.parametrize("vector_id", ["S01", "S02", "S03", "S04"])
def test_the_same_in_records_whatever_the_clock(vector_id: str) -> None:
    """A hold of N intervals of time is one of N + 1 records; a keep of N intervals one of N records."""
    vector = vectors.alerting()[vector_id]
    rule, every = vector["rule"], vector["eval_every_s"]
    hold = max(1, math.ceil(rule["for_s"] / every)) + 1
    keep = rule["keep_firing_for_s"] // every
    more = f", for: {hold} records" + (f", keep: {keep} records" if keep else "")
    engine = engine_of(expression(rule["when"]), more=more)
    for name, samples in vector["series"].items():
        run, states, words = FakeRun(), RunStates(), []
        for slot, spelled in enumerate(samples):
            value = number(spelled)
            run.row(
                slot, {"tick": 0.0} if value is None else {"tick": 0.0, "x": value}, time=float((slot * 7919) % 13 + 100 * slot)
            )
            judge(engine, run, states)
            words.append(WORDS[states.get(StateKey("watch")).phase])
        assert words == vector["expect"][name]


def test_s05_a_new_hold_begins_anew() -> None:
    case = vectors.alerting()["S05"]["subcases"][2]
    engine = engine_of("not absent(x[1 steps])", case["rule"]["for_s"])
    run, states = FakeRun(), RunStates()
    for slot, value in enumerate(case["series"]["i0"]):
        run.row(slot, {"tick": 0.0} if value is None else {"tick": 0.0, "x": float(value)}, time=float(slot))
        judge(engine, run, states)
        state = states.get(StateKey("watch"))
        if state.phase is not Phase.INACTIVE:
            assert state.pending_step == case["active_since_index"]["i0"][slot]


def test_s06_a_longer_hold_keeps_a_firing_alert() -> None:
    vector = vectors.alerting()["S06"]
    assert "diverge" in vector
    first, longer = engine_of("tick >= 0", 15), engine_of("tick >= 0", 3600)
    run, states = FakeRun(), RunStates()
    words = []
    for index, entry in enumerate(vector["timeline"]):
        run.row(index, {"tick": 0.0}, time=float(entry["t_s"]))
        engine = longer if entry["t_s"] >= 30 else first
        if entry.get("reload"):
            assert not engine.retire(run, states, 30.0).events
        judge(engine, run, states)
        words.append(WORDS[states.get(StateKey("watch")).phase])
    assert words == ["pending", "firing", "firing", "firing"]


def restarted(states: RunStates) -> RunStates:
    """What a restart has: the states as the store wrote them whenever they were dirty."""
    fresh = RunStates()
    fresh.load([(key, states.dump(key)) for key in states.states])
    return fresh


@pytest.mark.parametrize("stop_at", range(1, 11))
def test_s07_a_restart_changes_nothing(stop_at: int) -> None:
    """Differs from the source: no shift, no grace, no tolerance of an outage; state comes back exactly, whatever the pause."""
    vector = vectors.alerting()["S07"]
    assert "diverge" in vector
    engine = engine_of("x < 100", vector["rule"]["for_s"])
    for samples in vector["series"].values():
        rows = [{"x": float(value)} for value in samples]
        undisturbed, run = RunStates(), FakeRun()
        expected = timeline(drive(engine, run, rows, undisturbed, first_step=0, seconds=vector["dt_s"]))
        states, run = RunStates(), FakeRun()
        got = timeline(drive(engine, run, rows[:stop_at], states, first_step=0, seconds=vector["dt_s"]))
        states = restarted(states)
        got += timeline(drive(engine, run, rows[stop_at:], states, first_step=stop_at, seconds=vector["dt_s"]))
        assert got == expected
        assert {key: states.dump(key) for key in states.states} == {key: undisturbed.dump(key) for key in undisturbed.states}


def test_s08_identity_is_the_id_and_the_run() -> None:
    vector = vectors.alerting()["S08"]
    assert "diverge" in vector
    states, run = RunStates(), FakeRun()
    before = engine_of("x > 1", more=", runbook: a")
    assert timeline(drive(before, run, [{"x": 2.0}], states)) == [(1, "Watch", "firing")]
    other = (
        RULE.replace("severity: warning", "severity: page")
        .replace("alert: Watch", "alert: Renamed")
        .replace("layer: 0", "layer: 3")
    )
    after = Engine(load_text(other.format(when="x > 0.5", more="")))
    assert not after.retire(run, states, 0.0).events
    assert timeline(drive(after, run, [{"x": 2.0}], states, first_step=2)) == []
    assert timeline(drive(after, run, [{"x": 0.0}], states, first_step=3)) == [(3, "Renamed", "resolved")]


def test_s09_a_transition_is_told_once() -> None:
    """The repetition at t = 5 in the vector is a reminder, which belongs to `alerts`; the engine tells each change once."""
    vector = vectors.alerting()["S09"]
    engine, run, states = engine_of("x > 1"), FakeRun(), RunStates()
    told = []
    for entry in vector["evals"]:
        run.row(entry["t_s"], {"x": float(entry["value"])}, time=float(entry["t_s"]))
        told += timeline(judge(engine, run, states).events)
    assert told == [(1, "Watch", "firing"), (6, "Watch", "resolved")]


def test_s10_over_the_limit_the_first_are_kept_and_it_is_said() -> None:
    vector = vectors.alerting()["S10"]
    assert "diverge" in vector
    from rules.program import MAX_INSTANCES

    engine, run, states = engine_of("part > 1"), FakeRun(), RunStates()
    first = {f'part{{name="{index}"}}': 2.0 for index in range(MAX_INSTANCES)}
    run.row(1, first)
    found = judge(engine, run, states)
    assert len(found.events) == MAX_INSTANCES
    assert not found.health
    run.row(2, {**first, 'part{name="one more"}': 2.0})
    found = judge(engine, run, states)
    assert not found.events
    assert ["the first" in health.reason for health in found.health] == [True]
    assert len(states.firing) == MAX_INSTANCES
    run.row(3, first)
    assert not judge(engine, run, states).health  # said once


def test_s10_two_rules_of_one_identity_do_not_load() -> None:
    text = RULE.format(when="x > 1", more="")
    with pytest.raises(ConfigErrors, match="there twice"):
        load_text(text + "  - {alert: Other, id: watch, expr: x > 2, severity: info, summary: s}\n")


LEVELS = """
group: levels
layer: 0
question: How high is it?
rules:
"""


def test_s11_levels_are_rules_with_their_own_leave() -> None:
    """Differs at one record: each level has a hysteresis of its own, so at 62 WARNING (left below 60) still fires.

    The source starts the ladder anew when the highest level is left.
    """
    vector = vectors.alerting()["S11"]
    text = LEVELS + "".join(
        f"  - {{alert: {level['name'].title()}, id: {level['name'].lower()}, severity: warning, summary: s,"
        f" expr: x > {level['enter_above']}, leave: x < {level['leave_below']}}}\n"
        for level in vector["levels"]
    )
    engine, run, states = Engine(load_text(text)), FakeRun(), RunStates()
    got = []
    for step, value in enumerate(vector["series"]):
        run.row(step, {"x": float(value)})
        judge(engine, run, states)
        firing = [level["name"] for level in vector["levels"] if states.fires(level["name"].lower())]
        got.append(firing[-1] if firing else "OK")
    expected = list(vector["expect"])
    assert expected[4] == "INFO"
    expected[4] = "WARNING"
    assert got == expected


def test_s12_a_missing_series_with_on_gap_reset() -> None:
    """With `on_gap: reset` a gap is judged when the next record shows that the step is over, hence held for one record."""
    vector = vectors.alerting()["S12"]
    engine, run, states = engine_of("x > 0", more=", on_gap: reset"), FakeRun(), RunStates()
    words, told = [], []
    for step, present in enumerate(vector["presence"]["B"]):
        run.row(step, {"x": 1.0, "tick": 0.0} if present else {"tick": 0.0})
        found = judge(engine, run, states)
        told += [(event.step, str(event.state), event.reason) for event in found.events]
        words.append(WORDS[states.get(StateKey("watch")).phase])
    assert words == ["firing", "firing", "inactive", "inactive"]
    assert [entry[:2] for entry in told] == [(0, "firing"), (2, "resolved")]
    assert told[1][2].startswith("no data")


def test_s12_by_default_missing_data_resolves_nothing() -> None:
    engine, run, states = engine_of("x > 0"), FakeRun(), RunStates()
    drive(engine, run, [{"x": 1.0}, *[{"tick": 0.0}] * 30], states)
    assert states.fires("watch")


def test_s13_a_recorded_series_ends_with_its_input() -> None:
    vector = vectors.alerting()["S13"]
    text = RULE.format(when="b > 100", more="") + "  - {record: b, expr: a + 1}\n"
    engine, run = Engine(load_text(text)), FakeRun()
    got: list[Any] = []
    for step, value in enumerate(vector["input"]["a"]):
        sample = number(value)
        run.row(step, {"tick": 0.0} if sample is None else {"a": sample})
        values: Mapping[str, float] = dict(engine.record(run))
        run.add(values)
        got.append(values.get("b", "STALE"))
    assert got == vector["expect"]["b"]


def test_the_pure_machine_alone() -> None:
    """S01 without an engine: `advance` needs nothing but findings and moments."""
    timing = Timing(Span(Domain.TIME, 60), NOT_AT_ALL)
    state = RuleState()
    words = []
    for slot, value in enumerate(vectors.alerting()["S01"]["series"]["i0"]):
        state, _ = advance(state, Finding.BREACH if value < 100 else Finding.CLEAR, Moment(slot, slot, slot * 300.0), timing)
        words.append(WORDS[state.phase])
    assert words == vectors.alerting()["S01"]["expect"]["i0"]
    assert AT_ONCE.amount == 1

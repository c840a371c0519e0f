"""Overrides by run labels: which runs they match, what holds for those, and that a run keeps its states when they change."""

from __future__ import annotations

import pytest

from rules.bundle import OnNonFinite, Stage
from rules.config_errors import ConfigErrors
from rules.engine import Engine
from rules.loader import load_text
from rules.model import Severity
from rules.overrides import applying, asked, effective, staged, unmatched
from rules.programs import Programs
from rules.run_states import RunStates
from tests.kit.view import FakeRun, drive, judge, timeline

TEXT = """\
group: g
layer: 1
question: q
vars:
  limit: {value: 10, unit: nats, doc: d, range: [1, 100]}
  other: {value: 1, unit: nats, doc: d}
rules:
  - {record: level, expr: x / $other}
  - {alert: Gap, id: gap, expr: level > $limit, severity: warning, summary: 'over {{ vars.limit }}'}
overrides:
  - match: {hardware: "npu-*", model: moe*}
    vars: {limit: 50}
  - match: {hardware: h200}
    vars: {limit: 5}
    severity: {gap: page}
  - match: {team: a}
    vars: {other: 2}
"""
BUNDLE = load_text(TEXT, "f.yaml")


@pytest.mark.parametrize(
    ("labels", "limit", "severity"),
    [
        ({}, 10, "warning"),
        ({"hardware": "npu-910", "model": "moe-30b"}, 50, "warning"),
        ({"hardware": "npu-910"}, 10, "warning"),
        ({"hardware": "NPU-910", "model": "moe"}, 10, "warning"),
        ({"hardware": "h200"}, 5, "page"),
        ({"hardware": "h2000"}, 10, "warning"),
    ],
)
def test_which_runs_it_is_for(labels: dict[str, str], limit: float, severity: str) -> None:
    found = effective(BUNDLE, labels)
    assert found.group("g").values["limit"] == limit
    assert found.alert("gap").severity == severity
    assert (found is BUNDLE) is (not applying(BUNDLE, labels))


def test_the_later_of_two_has_the_last_word() -> None:
    text = TEXT + '  - match: {hardware: "h*"}\n    vars: {limit: 7}\n'
    assert effective(load_text(text), {"hardware": "h200"}).group("g").values["limit"] == 7
    assert effective(load_text(text), {"hardware": "h200"}).alert("gap").severity == "page"


def test_the_place_of_a_value_is_that_of_the_override() -> None:
    found = effective(BUNDLE, {"hardware": "h200"})
    assert found.group("g").vars["limit"].marks["value"].line == 14
    assert found.group("g").vars["limit"].marks["unit"].line == 5
    assert found.alert("gap").marks["severity"].line == 15


def test_what_follows_from_the_severity_follows_it() -> None:
    assert BUNDLE.alert("gap").on_non_finite is OnNonFinite.HOLD
    assert effective(BUNDLE, {"hardware": "h200"}).alert("gap").on_non_finite is OnNonFinite.BREACH
    said = load_text(TEXT.replace("severity: warning,", "severity: warning, on_non_finite: hold,"))
    assert effective(said, {"hardware": "h200"}).alert("gap").on_non_finite is OnNonFinite.HOLD


def test_for_a_lint_which_match_nothing() -> None:
    assert asked(BUNDLE) == ("hardware", "model", "team")
    runs = [{"hardware": "h200"}, {"team": "b"}]
    assert [item.mark.line for item in unmatched(BUNDLE, runs)] == [11, 16]
    assert len(unmatched(BUNDLE, [])) == 3


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("  - match: {}\n    vars: {limit: 2}\n", "11:12", "says for which runs"),
        ("  - match: {a: b}\n", "11:5", "without effect"),
        ("  - vars: {limit: 2}\n", "11:5", "key 'match' is missing"),
        ("  - match: {a: 1}\n    vars: {limit: 2}\n", "11:16", "expected text"),
        ("  - match: {a: b}\n    vars: {limt: 2}\n", "12:12", "unknown variable 'limt' (did you mean 'limit'?)"),
        ("  - match: {a: b}\n    vars: {limit: 0.5}\n", "12:19", "limit = 0.5 is outside 1..100"),
        ("  - match: {a: b}\n    vars: {limit: high}\n", "12:19", "expected a number"),
        ("  - match: {a: b}\n    severity: {gab: page}\n", "12:21", "unknown rule 'gab'"),
        ("  - match: {a: b}\n    severity: {gap: loud}\n", "12:21", "none of info, warning, page, stop"),
        ("  - match: {a: b}\n    expr: {gap: x > 1}\n", "12:5", "unknown key 'expr'"),
        ("  - match: {a: b}\n    vars: {other: 0}\n", "11:5", "with these values a rule fails: division by zero"),
        ("  - just text\n", "11:5", "expected keys"),
    ],
)
def test_every_fault_has_its_place(text: str, place: str, says: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_text(TEXT[: TEXT.index("  - match")] + text, "f.yaml")
    assert any(line.startswith(f"f.yaml:{place}: ") and says in line for line in str(caught.value).splitlines()), caught.value


# ---- in force -----------------------------------------------------------------------------------------------------------


def test_each_run_is_judged_by_its_own_values() -> None:
    engine = Engine(BUNDLE)
    rows: list[dict[str, float] | None] = [{"x": 7.0}, {"x": 20.0}, {"x": 60.0}]
    found = {}
    for name, labels in {"plain": {}, "npu": {"hardware": "npu-1", "model": "moe"}, "h200": {"hardware": "h200"}}.items():
        events = drive(engine, FakeRun(labels=labels), rows)
        found[name] = (timeline(events), str(events[0].severity), events[0].summary)
    assert found == {
        "plain": ([(2, "Gap", "firing")], "warning", "over 10.0"),
        "npu": ([(3, "Gap", "firing")], "warning", "over 50.0"),
        "h200": ([(1, "Gap", "firing")], "page", "over 5.0"),
    }


def test_record_rules_too() -> None:
    run = FakeRun(labels={"team": "a"})
    run.row(1, x=8.0)
    assert Engine(BUNDLE).record(run) == [("level", 4.0)]


def test_there_is_one_program_per_set_of_overrides() -> None:
    programs = Programs(BUNDLE)
    users = [{"user": str(number)} for number in range(20)]
    moe = [{"hardware": f"npu-{number}", "model": "moe", **user} for number, user in enumerate(users)]
    assert {id(programs.of(labels)) for labels in users} == {id(programs.base)}
    assert len({id(programs.of(labels)) for labels in moe}) == 1
    assert programs.of(moe[0]) is not programs.base


def test_a_run_that_gets_its_labels_late_keeps_its_states() -> None:
    engine, states, run = Engine(BUNDLE), RunStates(), FakeRun()
    assert timeline(drive(engine, run, [{"x": 20.0}], states)) == [(1, "Gap", "firing")]
    run.labels = {"hardware": "npu-1", "model": "moe"}
    assert timeline(drive(engine, run, [{"x": 60.0}, {"x": 20.0}], states, first_step=2)) == [(3, "Gap", "resolved")]


def test_the_exporter_shows_the_severity_in_force() -> None:
    engine, states, run = Engine(BUNDLE), RunStates(), FakeRun(labels={"hardware": "h200"})
    run.row(1, x=6.0)
    judge(engine, run, states)
    shown = engine.exposed(states)
    assert [alert.severity for alert in shown.alerts] == ["page"] and shown.limits == [5.0]


def test_overrides_that_only_together_make_a_rule_impossible_leave_the_run_with_the_rules_of_the_others() -> None:
    text = TEXT.replace("x / $other}", "x / ($limit - $other)}")
    text += "  - match: {a: b}\n    vars: {limit: 6}\n  - match: {a: b}\n    vars: {other: 6}\n"
    engine = Engine(load_text(text))
    run = FakeRun(labels={"a": "b"})
    run.row(1, x=9.0)
    assert engine.record(run) == [("level", 1.0)]


def test_notify_is_never_louder_than_a_warning() -> None:
    for severity in Severity:
        assert staged(severity, Stage.NOTIFY) == min(severity, Severity.WARNING, key=list(Severity).index)
        assert staged(severity, Stage.PAGE) is severity
    text = TEXT.replace("severity: warning,", "severity: warning, stage: notify,")
    assert effective(load_text(text), {"hardware": "h200"}).alert("gap").severity is Severity.WARNING

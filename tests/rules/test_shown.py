"""What the exporter is shown of the rules of a run: what the states say, whatever was kept to say it quickly."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import RulesExposed
from rules.engine import Engine
from rules.model import Phase
from rules.run_states import RunStates, StateKey
from tests.kit.engines import engine, rule
from tests.kit.view import FakeRun, drive, judge

ENGINES = (
    engine(rule("High", "x > 1", for_="2 records", keep="2 records"), rule("Part", "part > 1"), rule("Other", "y > 1")),
    engine(rule("High", "x > 3", severity="page"), rule("Part", "part > 1", for_="2 records"), layer=4),
    engine(rule("Other", "y < 1"), rule("High", "x > 1", independent="true")),
)
SERIES = st.sampled_from(["x", "y", 'part{component="a"}', 'part{component="b"}', 'part{component="c"}'])
ROW = st.dictionaries(SERIES, st.sampled_from([0.0, 2.0, 5.0]), max_size=5)
WORST_LAST = ("inactive", "pending", "explained", "firing")


def plainly(subject: Engine, run: FakeRun, states: RunStates) -> dict[str, tuple[str, int, str, float | None, float | None]]:
    """The same, looked up state by state."""
    found: dict[str, tuple[str, int, str, float | None, float | None]] = {}
    for key, state in states.states.items():
        program = subject.program(run.labels, key.rule_id)
        if program is None:
            continue
        word = {Phase.INACTIVE: "inactive", Phase.PENDING: "pending"}.get(state.phase, "firing")
        word = "explained" if word == "firing" and state.explained_by else word
        entry = (str(program.rule.severity), program.rule.layer, word, state.value, state.limit)
        known = found.get(program.rule.name)
        if known is None or WORST_LAST.index(word) > WORST_LAST.index(known[2]):
            found[program.rule.name] = entry
    return found


def said(shown: RulesExposed) -> dict[str, tuple[str, int, str, float | None, float | None]]:
    columns = zip(shown.alerts, shown.states, shown.values, shown.limits, strict=True)
    found = {alert.name: (alert.severity, alert.layer, word, value, limit) for alert, word, value, limit in columns}
    assert len(found) == len(shown.alerts), "each alert once"
    return found


STEPS = st.one_of(
    st.tuples(st.just("row"), ROW),
    st.tuples(st.just("row"), ROW),
    st.tuples(st.just("row"), ROW),
    st.tuples(st.just("reload"), st.sampled_from(ENGINES)),
    st.tuples(st.just("relabel"), st.sampled_from(["a", "b"])),
    st.tuples(st.sampled_from(["resume", "restart", "end"]), st.none()),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=25))
def test_it_is_what_the_states_say_after_any_story(story: list[tuple[str, object]]) -> None:
    subject, run, states, step = ENGINES[0], FakeRun(), RunStates(), 0
    for what, value in story:
        if what == "row":
            assert isinstance(value, Mapping)
            step += 1
            run.row(step, value)
            judge(subject, run, states)
        elif what == "reload":
            assert isinstance(value, Engine)
            subject = value
            subject.retire(run, states, run.event_time)
        elif what == "relabel":
            run.labels = {"team": str(value)}
        elif what == "resume":
            step = max(0, step - 2)
            run.cut(step + 1)
        elif what == "restart":
            stored = [(key, states.dump(key)) for key in states.states]
            states = RunStates()
            states.load(stored)
            subject.retire(run, states, run.event_time)
        else:
            subject.finish(run, states, run.event_time, "run_finished")
        assert said(subject.exposed(states)) == plainly(subject, run, states)


def test_of_several_own_labels_the_worst_is_shown_and_the_first_of_equals() -> None:
    subject, states = ENGINES[0], RunStates()
    drive(subject, FakeRun(), [{'part{component="a"}': 0.0, 'part{component="b"}': 0.5}], states)
    assert said(subject.exposed(states))["Part"] == ("warning", 1, "inactive", 0.0, 1.0)
    drive(subject, FakeRun(), [{'part{component="a"}': 0.0, 'part{component="b"}': 5.0}], states, first_step=2)
    assert said(subject.exposed(states))["Part"] == ("warning", 1, "firing", 5.0, 1.0)


def test_what_is_shown_once_does_not_change_with_the_states() -> None:
    subject, run, states = ENGINES[0], FakeRun(), RunStates()
    drive(subject, run, [{"x": 0.0}], states)
    before = subject.exposed(states)
    kept = said(before)
    drive(subject, run, [{"x": 5.0}, {"x": 5.0}], states, first_step=2)
    assert said(before) == kept
    after = subject.exposed(states)
    assert said(after)["High"][2] == "firing"
    assert after.alerts == before.alerts, "runs with the same ones are written together"


def test_a_state_without_a_rule_is_not_shown() -> None:
    states = RunStates()
    states.load([(StateKey("gone"), RunStates().get(StateKey("gone")).dump())])
    assert ENGINES[0].exposed(states).alerts == ()

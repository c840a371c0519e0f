"""Other rules while runs go on, through the whole pipeline.

Restarted with the new rules at any moment, a collector ends as one that read them anew. A storm of reloads delays nothing.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Baseline
from collector.recorded import CleanBaseline, chooser
from rules.engine import Engine
from rules.model import EventState
from service.store.store import Store
from tests.kit.pipelines import Bench, begin, engine, step, steps, told

RULES = """\
group: g
layer: 1
question: q
vars:
  limit: {value: 10, unit: "1", doc: d}
rules:
  - {record: level, expr: 'mean(grad_norm[2])'}
  - {alert: High, id: high, expr: level > $limit, for: 3 records, keep: 2 records, severity: page, summary: s}
  - {alert: Twice, id: twice, expr: firing(High) and reward_mean > 0, severity: warning, summary: s}
overrides:
  - {match: {team: b}, vars: {limit: 15}}
"""
EDITS = (
    ("", ""),
    ("for: 3 records", "for: 2 records"),
    ("value: 10", "value: 12"),
    ("severity: page", "severity: page, stage: shadow"),
    ("severity: page", "severity: page, stage: notify"),
    ("id: high", "id: other"),
    ("layer: 1", "layer: 5"),
    ("team: b", "team: c"),
)
ENGINES: tuple[Engine, ...] = tuple(engine(RULES.replace(*edit) if edit[0] else RULES) for edit in EDITS)

values = st.sampled_from([1.0, 11.0, 14.0, 20.0, float("nan")])
acts = st.one_of(
    st.tuples(st.just("row"), values, st.sampled_from([-1.0, 1.0])), st.tuples(st.just("reload"), st.integers(0, 7))
)


def _end(acts: list[tuple[object, ...]], kills: set[int], kill_at_reload: bool) -> tuple[object, ...]:
    """Everything that was told, and the rule states at the end. At a kill the process is replaced."""
    with Store() as store:
        bench = Bench(store=store, rules=ENGINES[0], checkpoint_rows=2, own=False)
        bench.push(begin("r", team="b"))
        bench.read()
        events, rows, kind = [], 0, 0
        for number, act in enumerate(acts):
            if act[0] == "reload":
                kind = int(str(act[1]))
                if kill_at_reload:
                    bench = bench.restart(rules=ENGINES[kind])
                    events += bench.read() + bench.tick()
                else:
                    events += bench.pipeline.reload(ENGINES[kind], bench.now).events
            else:
                rows += 1
                bench.push(step("r", rows, grad_norm=act[1], reward_mean=act[2]), every=1.0)
                events += bench.read()
            if number in kills:
                bench = bench.restart(rules=ENGINES[kind])
                events += bench.read() + bench.tick()
        live = bench.shelf.get("r", "")
        assert live is not None
        states = {
            key: (state.phase, state.breaches, state.meaning, state.episodes, state.explained_by)
            for key, state in live.states.states.items()
            if state.phase != "inactive" or state.episodes
        }
        waiting = sorted((row.id, row.action) for row in store.deliveries.due("console", 1e12, 1000))
        return told(events), states, waiting, [incident.id for incident in store.open_incidents()]


@given(st.lists(acts, min_size=1, max_size=20), st.sets(st.integers(0, 20), max_size=4), st.booleans())
@settings(max_examples=40)
def test_a_restart_with_other_rules_is_a_reload(acts: list[tuple[object, ...]], kills: set[int], kill_at_reload: bool) -> None:
    assert _end(acts, kills, kill_at_reload) == _end(acts, set(), False)


def test_a_storm_of_reloads_delays_nothing() -> None:
    bench = Bench(rules=ENGINES[0])
    for number in range(1, 8):
        bench.push(step("r", number, grad_norm=20.0))
        bench.read()
        for _ in range(5):
            assert bench.pipeline.reload(engine(RULES), bench.now).events == ()
    assert told(bench.events) == [("r", "High", "firing", 4)]
    bench.shut()


def test_what_enters_the_shadow_is_ended_for_those_who_were_told() -> None:
    bench = Bench(rules=ENGINES[0])
    bench.push(*steps("r", [20.0] * 5))
    bench.read()
    assert len(bench.store.open_incidents()) == 1
    (event,) = bench.pipeline.reload(ENGINES[3], bench.now).events
    assert (event.state, event.explained_by) == (EventState.EXPLAINED, "shadow")
    assert bench.store.open_incidents() == []
    waiting = [(row.action.value, row.event.alert) for row in bench.store.deliveries.due("console", 1e9, 10)]
    assert waiting[0] == ("trigger", "High")
    assert [each.alert for each in bench.store.firing()] == ["High"], "it is judged on, and seen"
    bench.shut()


def test_other_baselines_are_folded_with_the_rows_that_came_under_them() -> None:
    """A signal follows from the baseline: rows before a reload keep what they were folded with, also over a restart."""
    one, two = (chooser([CleanBaseline({}, {"ess_ratio": Baseline(centre, 0.01, 50)})]) for centre in (0.5, 1.0))
    bench = Bench(rules=ENGINES[0], recorded_for=one, checkpoint_rows=10**6)
    bench.push(*(step("r", number, ess_ratio=0.5) for number in range(1, 8)))
    bench.read()
    bench.pipeline.checkpoint(bench.now)
    bench.pipeline.reload(ENGINES[0], bench.now, two)
    bench.push(*(step("r", number, ess_ratio=0.5) for number in range(8, 12)))
    bench.read()
    after = bench.restart(recorded_for=two)
    before, again = bench.shelf.get("r", ""), after.shelf.get("r", "")
    assert before is not None and again is not None
    assert list(before.run.series["ess_ratio_relative"].values)[-5:] == [1.0, 0.5, 0.5, 0.5, 0.5]
    assert again.run.dump() == before.run.dump()
    bench.shut()

"""A run that was dumped and loaded in between ends as one that was never disturbed, bit for bit."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from collector.run import Run
from tests.collector.records import START, groups, opened
from tocsin import wire

NAMES = ("grad_norm", "reward_mean", "policy_entropy", "correct_ratio", "zero_variance_group_ratio", "policy_ratio_p99", "own")
VALUES = st.one_of(
    st.floats(0.0, 1.0),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 0.0, -1.0]),
    st.none(),
    st.sampled_from(["nan", "text", "0.5", True, 3]),
)

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A stream of 60 records shrinks for minutes; the seed that pytest prints brings a failure back."""


@st.composite
def streams(draw: st.DrawFn) -> list[wire.Record]:
    """Records as a bad day brings them: merges, late rows, repeats, restarts declared and not, phase changes, ends."""
    records: list[wire.Record] = [opened()]
    step, time, attempt = 0, START, 1
    for _ in range(draw(st.integers(5, 60))):
        time += draw(st.floats(1.0, 50.0))
        event = draw(st.integers(0, 30))
        at = step
        if event == 0:
            step = at = max(0, step - draw(st.integers(0, 20)))
        elif event == 1:
            attempt += 1
            records.append(opened(attempt=attempt, time=time))
            step = at = max(0, step - draw(st.integers(0, 5)))
        elif event == 2:
            records.append(opened(attempt=attempt, time=time, learning_rate=draw(st.sampled_from([1e-5, 1e-6]))))
        elif event == 3:
            records.append(wire.EndRecord(run="r", time=time, attempt=attempt, step=step, status="failed"))
            continue
        elif event in (4, 5) and records:
            records.append(draw(st.sampled_from(records)))
            continue
        elif event in (6, 7, 8):
            at = max(0, step - draw(st.integers(0, 12)))
        else:
            step = at = step + draw(st.integers(1, 3))
        metrics: dict[str, Any] = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6))
        if draw(st.booleans()):
            metrics["reward_component_mean"] = draw(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
        block = None
        if draw(st.booleans()):
            counts = draw(st.lists(st.integers(0, 8), min_size=6, max_size=6))
            block = groups(*counts, prompts=[f"p{draw(st.integers(0, 12))}" for _ in counts])
        records.append(wire.StepRecord(run="r", step=at, time=time, attempt=attempt, metrics=metrics, groups=block))
    return records


def fold(run: Run, record: wire.Record, breaching: list[str]) -> None:
    """One record, with what a rule might give back."""
    applied = run.apply(record, received_at=record.time + 1.0, arrival=record.time)
    if applied.outcome.changed and isinstance(record, wire.StepRecord):
        run.extend([("recorded_mean", record.time)])
        run.mark_breaching(breaching)


@settings(max_examples=60, deadline=None, phases=NO_SHRINKING)
@given(streams(), st.data())
def test_restored_equals_undisturbed(records: list[wire.Record], data: st.DataObject) -> None:
    breaching = [data.draw(st.lists(st.sampled_from([*NAMES, "zero_variance_z"]), max_size=2)) for _ in records]
    cut = data.draw(st.integers(0, len(records)))
    undisturbed, killed = Run("r", depth=32), Run("r", depth=32)
    for at, record in enumerate(records):
        if at == cut:
            killed = Run.load(killed.dump(), depth=32)
        fold(undisturbed, record, breaching[at])
        fold(killed, record, breaching[at])
        assert set(killed.arrived) == set(undisturbed.arrived)
    assert killed.dump() == undisturbed.dump()
    assert repr(killed.exposed) == repr(undisturbed.exposed)  # by text, as NaN is not equal to itself


@settings(max_examples=60, deadline=None, phases=NO_SHRINKING)
@given(streams())
def test_invariants(records: list[wire.Record]) -> None:
    run = Run("r", depth=32)
    steps = 0
    for record in records:
        before = run.record
        applied = run.apply(record, received_at=record.time, arrival=record.time)
        assert run.record - before in (0, 1)
        for key, series in run.series.items():
            assert series.steps
            assert len(series.steps) == len(series.values)
            assert all(a < b for a, b in zip(series.steps, series.steps[1:], strict=False)), key
        assert all(a < b for a, b in zip(run.steps, run.steps[1:], strict=False))
        assert len(run.steps) == len(run.times)
        assert set(run.arrived) <= run.series.keys()
        for key in run.arrived:
            assert run.series[key].at(run.step) is not None
        if not applied.outcome.changed:
            assert not run.arrived
        assert {key for keys in run.members.values() for key in keys} <= run.series.keys()
        steps += run.record - before
    assert steps == run.record


@settings(max_examples=60, deadline=None, phases=NO_SHRINKING)
@given(streams())
def test_every_record_again_changes_nothing(records: list[wire.Record]) -> None:
    """At-least-once delivery: the newest record is often delivered twice."""
    run = Run("r", depth=32)
    for record in records:
        run.apply(record, received_at=record.time, arrival=record.time)
        before = run.dump()
        applied = run.apply(record, received_at=record.time, arrival=record.time)
        assert not applied.outcome.changed
        assert run.dump() == before

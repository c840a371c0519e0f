"""Recorded clean baselines: which one a run gets, and that it wins over what the run learns."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Baseline
from collector.recorded import CleanBaseline, chooser, may_tie
from collector.run import Run
from collector.run_state import RecordedFor
from tocsin import wire


def clean(centre: float = 1.0, **labels: str) -> CleanBaseline:
    return CleanBaseline(labels, {"x": Baseline(centre, 0.1, 50)})


# ---- the choice ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "centre"),
    [
        ({}, 1.0),
        ({"model": "dense-7b"}, 1.0),
        ({"model": "moe-30b"}, 2.0),
        ({"model": "MOE-30b"}, 1.0),
        ({"model": "moe-7b"}, 3.0),
        ({"model": "moe-7b", "hardware": "h200"}, 4.0),
        ({"hardware": "h200"}, 1.0),
    ],
)
def test_the_most_specific_one_wins(labels: dict[str, str], centre: float) -> None:
    files = [clean(), clean(4.0, model="moe-*", hardware="h200"), clean(2.0, model="moe-*"), clean(3.0, model="moe-7b")]
    assert chooser(files)(labels)["x"].centre == centre
    assert chooser(files[::-1])(labels)["x"].centre == centre


def test_none_matches() -> None:
    assert chooser([clean(model="a")])({"model": "b"}) == {}
    assert chooser([])({}) == {}


@pytest.mark.parametrize(
    ("one", "two", "tie"),
    [
        ({}, {}, True),
        ({"a": "x"}, {"a": "x"}, True),
        ({"a": "x"}, {"a": "y"}, False),
        ({"a": "x"}, {"b": "y"}, True),
        ({"a": "x*"}, {"a": "*y"}, True),
        ({"a": "x*"}, {"a": "y*"}, False),
        ({"a": "x"}, {"a": "x*"}, False),
        ({"a": "x?z"}, {"a": "xy*"}, True),
        ({"a": "x?"}, {"a": "x??"}, False),
        ({"a": "[ab]"}, {"a": "[cd]"}, True),
        ({"a": "x", "b": "y*"}, {"a": "x*", "b": "y"}, True),
        ({"a": "x", "b": "y*"}, {"a": "z*", "b": "y"}, False),
    ],
)
def test_two_between_which_a_run_could_not_choose(one: dict[str, str], two: dict[str, str], tie: bool) -> None:
    first, second = CleanBaseline(one, {}), CleanBaseline(two, {})
    assert may_tie(first, second) is tie
    assert may_tie(second, first) is tie


globs = st.text("ab*?", max_size=5)


@given(globs, globs, st.lists(st.text("ab", max_size=6), max_size=30))
def test_no_run_matches_two_that_cannot_tie(one: str, two: str, texts: list[str]) -> None:
    first, second = clean(a=one), clean(a=two)
    if first.specificity == second.specificity and any(fnmatchcase(t, one) and fnmatchcase(t, two) for t in texts):
        assert may_tie(first, second)


# ---- in a run -----------------------------------------------------------------------------------------------------------


def told(run: Run, first: int, *values: float) -> None:
    for step, value in enumerate(values, start=first):
        time = step * 60.0
        run.apply(wire.StepRecord(run="r", step=step, time=time, metrics={"grad_norm": value}), received_at=0.0, arrival=time)


def declared(run: Run, **labels: str) -> None:
    run.apply(wire.RunRecord(run="r", time=0.0, labels=labels), received_at=0.0, arrival=0.0)


CHOICE = chooser(
    [CleanBaseline({"model": "moe"}, {"grad_norm": Baseline(7.0, 0.5, 99), "kl_reference": Baseline(1.0, 0.1, 9)})]
)


def a_run(recorded_for: RecordedFor | None = CHOICE) -> Run:
    return Run("r", recorded_for=recorded_for)


def test_it_holds_from_the_first_record_of_a_series_and_wins_over_the_run_s_own() -> None:
    run = a_run()
    declared(run, model="moe")
    assert run.recorded == {"grad_norm": 7.0, "kl_reference": 1.0}
    told(run, 1, 3.0)
    assert run.baselines["grad_norm"] == Baseline(7.0, 0.5, 99)
    assert "kl_reference" not in run.baselines, "the run does not have that series"
    told(run, 2, *[3.0] * 40)
    assert run.baselines["grad_norm"].centre == 7.0


def test_another_kind_of_run_learns_its_own() -> None:
    run = a_run()
    declared(run, model="dense")
    told(run, 1, *[3.0] * 40)
    assert run.recorded == {}
    assert run.baselines["grad_norm"].centre == 3.0


def test_labels_that_come_late_and_files_that_change() -> None:
    run = a_run()
    told(run, 1, *[3.0] * 40)
    assert run.baselines["grad_norm"].centre == 3.0
    declared(run, model="moe")
    assert run.baselines["grad_norm"].centre == 7.0
    run.use_recorded(chooser([]))
    assert run.baselines["grad_norm"].centre == 3.0, "what the run learnt in the meantime"
    assert run.recorded == {}


def test_a_new_phase_does_not_unlearn_it() -> None:
    run = a_run()
    run.apply(wire.RunRecord(run="r", time=0.0, labels={"model": "moe"}, config={"lr": 1}), received_at=0.0, arrival=0.0)
    told(run, 1, *[3.0] * 40)
    run.apply(wire.RunRecord(run="r", time=9.0, labels={"model": "moe"}, config={"lr": 2}), received_at=0.0, arrival=0.0)
    told(run, 41, 3.0)
    assert run.baselines["grad_norm"].centre == 7.0


@pytest.mark.parametrize("at", range(0, 45, 4))
def test_a_dump_at_any_moment_goes_on_as_if_nothing_had_been(at: int) -> None:
    whole, part = a_run(), a_run()
    for run in (whole, part):
        declared(run, model="moe")
    told(whole, 1, *[3.0] * 45)
    told(part, 1, *[3.0] * at)
    part = Run.load(part.dump(), recorded_for=CHOICE)
    assert part.recorded == whole.recorded
    told(part, at + 1, *[3.0] * (45 - at))
    assert part.dump() == whole.dump()
    assert part.baselines == whole.baselines


def test_what_a_dump_carries_is_what_the_run_learnt() -> None:
    run = a_run()
    declared(run, model="moe")
    told(run, 1, *[3.0] * 40)
    assert Run.load(run.dump()).baselines["grad_norm"].centre == 3.0

"""Limits on runs in memory, and when a run may go."""

from __future__ import annotations

from collector.run import Run
from collector.runs import Runs
from tests.collector.records import apply, ended, opened, row, time_of


def made(runs: Runs, run_id: str) -> Run:
    run = runs.create(run_id)
    assert run is not None
    return run


def test_the_first_runs_are_kept_and_the_rest_refused() -> None:
    runs = Runs(max_runs=2)
    first = made(runs, "a")
    made(runs, "b")
    assert runs.create("c") is None
    assert runs.create("d") is None
    assert len(runs) == 2
    assert runs.get("a") is first
    assert runs.get("c") is None
    runs.forget("a")
    runs.forget("a")
    made(runs, "c")
    assert [exposed.run for exposed in runs.exposed()] == ["b", "c"]


def test_limits_reach_the_runs() -> None:
    runs = Runs(max_series_per_run=1, depth=80)
    run = made(runs, "a")
    (applied,) = apply(run, row(1, x=1.0, y=2.0))
    assert applied.over_limit == 1
    again = runs.load(run.dump())
    assert (again.depth, again.max_series) == (80, 1)
    assert runs.add(again)
    assert runs.get("r") is None or runs.get("a") is again


def test_finished_run_lingers() -> None:
    runs = Runs(linger=900.0)
    run = made(runs, "a")
    apply(run, opened(), row(1), row(2), ended(2))
    over = run.last_arrival
    assert runs.expired(over + 900.0) == []
    assert runs.expired(over + 901.0) == ["a"]


def test_silent_run_does_not_go_before_its_stall_can_have_fired() -> None:
    runs = Runs(linger=10.0, forget_silent=3600.0)
    run = made(runs, "a")
    apply(run, *[row(n, time=time_of(0) + 1000.0 * n) for n in range(10)])
    assert run.stall_at == run.last_arrival + 5000.0
    assert runs.expired(run.last_arrival + 5000.0 + 3600.0) == []
    assert runs.expired(run.last_arrival + 5000.0 + 3601.0) == ["a"]


def test_run_with_a_single_record_goes_too_in_the_end() -> None:
    runs = Runs(forget_silent=3600.0)
    run = made(runs, "a")
    apply(run, row(1))
    assert run.stall_at is None
    assert runs.expired(run.last_arrival + 3601.0) == ["a"]


def test_exposed_is_one_snapshot_per_run() -> None:
    runs = Runs()
    apply(made(runs, "a"), row(1, grad_norm=1.0))
    made(runs, "b")
    assert [(exposed.run, exposed.step) for exposed in runs.exposed()] == [("a", 1), ("b", -1)]

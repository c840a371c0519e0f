"""The fold: what each record does to a run, and what the view shows at it."""

from __future__ import annotations

import itertools
import math
import random
import tracemalloc
from typing import Any

import pytest

from collector.applied import Outcome
from collector.model import Provenance, RunStatus, RunView
from collector.names import Vocabularies
from collector.run import Run
from collector.run_state import DEPTH, IncompatibleDump
from collector.series import SLACK
from collector.signals.prompts import MAX_SLOTS, digests_of
from collector.signals.zero_variance import ZeroVariance
from tests.collector.records import GAP, apply, ended, groups, opened, played, row, time_of
from tocsin import wire


def view(run: Run) -> RunView:
    """mypy checks that a run is its own view."""
    return run


def outcomes(run: Run, *records: wire.Record) -> list[Outcome]:
    return [applied.outcome for applied in apply(run, *records)]


def status(run: Run) -> RunStatus:
    return run.status  # mypy narrows the attribute and does not know that a record changes it


def deadline(run: Run) -> float | None:
    return run.stall_at


def steps(run: Run, key: str) -> list[int]:
    return list(run.series[key].steps)


def values(run: Run, key: str) -> list[float]:
    return list(run.series[key].values)


def test_rows_become_series() -> None:
    run = Run("r")
    assert outcomes(run, opened(), row(1, grad_norm=0.5), row(2, grad_norm=0.7, my_own=3)) == ["opened", "step", "step"]
    seen = view(run)
    assert (seen.step, seen.record, seen.attempt) == (2, 2, 1)
    assert seen.event_time == time_of(2)
    assert values(run, "grad_norm") == [0.5, 0.7]
    assert seen.series["grad_norm"].provenance is Provenance.EXACT
    assert seen.series["my_own"].provenance is Provenance.RAW
    assert {"grad_norm", "my_own"} <= set(seen.arrived)
    assert seen.labels == {"team": "lab"}


def test_step_before_any_run_record_opens_the_run() -> None:
    run = Run("r")
    assert outcomes(run, row(7, grad_norm=1.0)) == ["step"]
    assert run.started_at == time_of(7)
    assert outcomes(run, opened()) == ["opened"]
    assert run.config["group_size"] == 8
    assert run.record == 1


def test_object_of_values_goes_by_the_declared_label() -> None:
    run = played([row(1, reward_component_mean={"accuracy": 0.4, "format": "nan"})])
    assert run.members == {
        "reward_component_mean": ['reward_component_mean{component="accuracy"}', 'reward_component_mean{component="format"}']
    }
    assert math.isnan(values(run, 'reward_component_mean{component="format"}')[0])


def test_missing_null_zero_and_nan_stay_four_things() -> None:
    run = played([row(1, grad_norm=1.0, reward_mean=1.0, reward_std=1.0, kl_reference=1.0)])
    apply(run, row(2, grad_norm=None, reward_mean=0.0, reward_std="nan"))
    assert steps(run, "grad_norm") == [1]
    assert steps(run, "kl_reference") == [1]
    assert values(run, "reward_mean") == [1.0, 0.0]
    assert math.isnan(values(run, "reward_std")[1])
    assert "grad_norm" not in run.arrived
    assert {"reward_mean", "reward_std"} <= set(run.arrived)


def test_bad_value_costs_itself_only() -> None:
    run = Run("r")
    (applied,) = apply(run, row(1, grad_norm=[1], reward_mean=0.5, policy_entropy={"a": 1.0}, reward_std=10**400))
    assert applied.outcome is Outcome.STEP
    assert {refused.key: refused.reason.partition(":")[0] for refused in applied.refused} == {
        "grad_norm": "not_a_number",
        "policy_entropy": "unexpected_object",
        "reward_std": "not_a_number",
    }
    assert values(run, "reward_mean") == [0.5]


def test_trainer_cannot_write_a_signal() -> None:
    run = Run("r")
    (applied,) = apply(run, row(1, resumed=5.0, grad_norm=1.0))
    assert [(refused.key, refused.reason) for refused in applied.refused] == [("resumed", "reserved_name")]
    assert values(run, "resumed") == [0.0]


def test_row_of_the_same_step_adds_and_overwrites() -> None:
    run = played([row(1, grad_norm=1.0), row(2, grad_norm=2.0)])
    assert outcomes(run, row(2, grad_norm=2.5, reward_mean=0.1)) == ["merged"]
    assert values(run, "grad_norm") == [1.0, 2.5]
    assert "grad_norm" not in run.arrived
    assert "reward_mean" in run.arrived
    assert run.record == 2


def test_exact_duplicate_changes_nothing() -> None:
    run = played([opened(), row(1, grad_norm=1.0), row(2, grad_norm=float("nan"), groups=groups(8, 0, 3))])
    before = run.dump()
    again = row(2, grad_norm=float("nan"), groups=groups(8, 0, 3))
    assert outcomes(run, again) == ["duplicate"]
    assert not run.arrived
    assert outcomes(run, opened()) == ["duplicate"]
    assert run.dump() == before


def test_late_row_is_put_into_its_place_and_is_what_the_view_shows() -> None:
    run = played([row(n, grad_norm=float(n)) for n in (1, 2, 3, 5, 6)])
    assert outcomes(run, row(4, grad_norm=4.0)) == ["late"]
    assert (run.step, run.record) == (4, 6)
    assert list(run.steps) == [1, 2, 3, 4, 5, 6]
    assert list(run.times) == [time_of(n) for n in range(1, 7)]
    assert steps(run, "grad_norm") == [1, 2, 3, 4, 5, 6]
    assert "grad_norm" in run.arrived
    assert outcomes(run, row(7, grad_norm=7.0)) == ["step"]
    assert run.step == 7


def test_too_late_is_dropped() -> None:
    run = played([row(n, grad_norm=1.0) for n in range(1, 21)])
    before = run.dump()
    assert outcomes(run, row(5, grad_norm=9.0)) == ["dropped_late"]
    assert run.dump() == before
    assert not run.arrived


def test_undeclared_restart_cuts_the_windows_and_keeps_what_was_learnt() -> None:
    run = played([row(n, grad_norm=float(n)) for n in range(1, 41)])
    baseline = run.baselines["grad_norm"]
    assert outcomes(run, row(21, time=time_of(60), grad_norm=0.0)) == ["resumed"]
    assert steps(run, "grad_norm") == list(range(1, 22))
    assert list(run.steps) == list(range(1, 22))
    assert (run.attempt, run.record) == (2, 41)
    assert run.baselines["grad_norm"] is baseline
    assert values(run, "resumed")[-1] == 1.0
    assert outcomes(run, row(22, time=time_of(61), grad_norm=1.0)) == ["step"]
    assert values(run, "resumed")[-1] == 0.0


def test_series_that_are_empty_after_a_cut_are_gone() -> None:
    run = played([row(1, grad_norm=1.0), row(2, grad_norm=1.0, reward_component_mean={"a": 1.0})])
    apply(run, row(2, attempt=2, time=time_of(9), grad_norm=2.0))
    assert 'reward_component_mean{component="a"}' not in run.series
    assert run.members == {}
    assert values(run, "grad_norm") == [1.0, 2.0]


def test_old_attempt_is_dropped_whatever_its_kind() -> None:
    run = played([opened(), row(1, grad_norm=1.0), opened(attempt=2, time=time_of(3)), row(1, attempt=2, time=time_of(4))])
    assert outcomes(run, row(2, grad_norm=1.0), ended(2), opened()) == ["dropped_attempt"] * 3
    assert status(run) is RunStatus.RUNNING


def test_end_and_a_further_attempt() -> None:
    run = played([opened(), row(1, grad_norm=1.0), row(2, grad_norm=1.0)])
    assert outcomes(run, ended(2, "failed"), ended(2, "failed")) == ["ended", "duplicate"]
    assert status(run) is RunStatus.FAILED
    assert run.stall_at is None
    assert values(run, "run_failed") == [1.0]
    assert outcomes(run, opened(attempt=2, time=time_of(10))) == ["opened"]
    assert status(run) is RunStatus.RUNNING
    assert outcomes(run, row(2, attempt=2, time=time_of(11), grad_norm=1.0)) == ["resumed"]
    assert values(run, "run_failed")[-1] == 0.0


def test_end_is_what_the_view_shows() -> None:
    run = played([row(1, grad_norm=1.0), row(3, grad_norm=1.0), row(2, grad_norm=1.0)])
    apply(run, ended(3, "failed"))
    assert run.step == 3
    assert set(run.arrived) == {"run_failed"}


def test_declared_phase_change_learns_baselines_anew() -> None:
    run = played([opened(), *[row(n, grad_norm=1.0) for n in range(1, 40)]])
    assert "grad_norm" in run.baselines
    (applied,) = apply(run, opened(time=time_of(40), learning_rate=1e-6))
    assert (applied.outcome, applied.phase_changed) == (Outcome.RECONFIGURED, ("learning_rate",))
    assert "grad_norm" not in run.baselines
    apply(run, *[row(n, grad_norm=3.0) for n in range(41, 70)])
    assert run.baselines["grad_norm"].centre == 3.0


def test_other_configuration_is_no_phase_change() -> None:
    run = played([opened(), *[row(n, grad_norm=1.0) for n in range(1, 40)]])
    (applied,) = apply(run, opened(time=time_of(40), note="hello"))
    assert (applied.outcome, applied.phase_changed) == (Outcome.RECONFIGURED, ())
    assert "grad_norm" in run.baselines


def test_stall_deadline_follows_the_arrivals() -> None:
    run = Run("r")
    run.apply(row(1), received_at=5.0, arrival=1000.0)
    assert deadline(run) is None
    run.apply(row(2), received_at=6.0, arrival=1100.0)
    assert deadline(run) == 1100.0 + 600.0
    for n in range(3, 12):
        run.apply(row(n, time=time_of(0) + 1000.0 * n), received_at=7.0, arrival=1100.0 + n)
    assert deadline(run) == 1111.0 + 5000.0
    run.apply(row(11, time=0.0, grad_norm=1.0), received_at=8.0, arrival=1050.0)  # an arrival never moves it back
    assert run.last_arrival == 1111.0


def test_values_of_record_rules_are_part_of_the_run() -> None:
    run = played([row(n, grad_norm=1.0) for n in range(1, 40)])
    for n in range(40, 70):
        apply(run, row(n, grad_norm=1.0))
        run.extend([("logprob_gap", float(n))])
    assert steps(run, "logprob_gap") == list(range(40, 70))
    assert run.series["logprob_gap"].provenance is Provenance.RECORDED
    assert "logprob_gap" in run.baselines
    assert "logprob_gap" in run.exposed.keys


def test_series_limit_keeps_the_first() -> None:
    run = Run("r", max_series=2)
    (first, second) = apply(run, row(1, a=1.0, b=2.0, c=3.0), row(2, c=3.0, a=1.0))
    assert (first.over_limit, second.over_limit) == (1, 1)
    assert "c" not in run.series
    assert values(run, "a") == [1.0, 1.0]


def test_windows_are_bounded() -> None:
    run = played([row(n, grad_norm=1.0, sparse=1.0 if n % 7 == 0 else None) for n in range(1, 2000)])
    longest = DEPTH + DEPTH // SLACK
    assert all(DEPTH <= len(s.steps) <= longest for key, s in run.series.items() if not key.endswith("sparse"))
    assert DEPTH <= len(run.steps) <= longest
    assert len(run.series["sparse"].steps) <= longest
    assert len(run.dump()) < 1024 * 1024


def test_memory_of_a_run() -> None:
    """The bar is 1 MiB per run of 60 metrics, with more prompts than there is room for."""
    source = random.Random(1)
    fixed = {name: 0.5 for name in ("grad_norm", "kl_reference", "kl_old_policy", "policy_ratio_p99", "response_length_mean")}

    def record(step: int) -> wire.StepRecord:
        metrics = {f"timing_s/{n}": source.random() for n in range(55)} | fixed
        prompts = [f"prompt-{source.randrange(100_000)}" for _ in range(16)]
        block = groups(*[source.randint(0, 8) for _ in prompts], prompts=prompts)
        return wire.StepRecord(run="r", step=step, time=time_of(step), metrics=metrics, groups=block)

    vocabularies = Vocabularies()
    played([record(0)], vocabularies=vocabularies)  # what all runs share
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run = played((record(step) for step in range(330)), vocabularies=vocabularies)
        (prompts,) = [signal._prompts for signal in run._signals if isinstance(signal, ZeroVariance)]
        for n in range(20_000):
            prompts.visit(digests_of([f"p{n}"]), [1], 8)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(run.series) > 90
    assert prompts.slots == MAX_SLOTS
    assert used < 1024 * 1024


def test_unknown_vocabulary_keeps_everything_raw_and_says_so() -> None:
    run = Run("r")
    record = wire.StepRecord(run="r", step=1, time=1.0, names="nothing", metrics={"grad_norm": 1.0, "a/b": 2.0})
    (applied,) = apply(run, record)
    assert applied.unknown_vocabulary
    assert {run.series[key].provenance for key in ("grad_norm", "a/b")} == {Provenance.RAW}


def test_vocabulary_may_change_between_rows() -> None:
    run = Run("r")
    apply(run, wire.StepRecord(run="r", step=1, time=1.0, names="verl", metrics={"actor/grad_norm": 1.0}))
    apply(run, row(2, grad_norm=2.0))
    assert values(run, "grad_norm") == [1.0, 2.0]


def test_snapshot_is_of_whole_records_and_never_changes() -> None:
    run = played([opened(), row(1, grad_norm=1.0)])
    first = run.exposed
    assert run.exposed is first
    apply(run, row(2, grad_norm=2.0))
    second = run.exposed
    assert dict(zip(first.keys, first.values, strict=True))["grad_norm"] == 1.0
    assert dict(zip(second.keys, second.values, strict=True))["grad_norm"] == 2.0
    assert second.keys[: len(first.keys)] == first.keys
    apply(run, row(3, grad_norm=3.0))
    third = run.exposed
    apply(run, row(4, grad_norm=3.0))
    assert run.exposed.keys is third.keys
    assert run.exposed.step == 4


def test_a_dump_has_the_steps_of_many_series_once() -> None:
    metrics: dict[str, Any] = dict.fromkeys([f"metric_{number}" for number in range(20)], 1.0)
    run = played([row(n, **metrics, sparse=1.0 if n % 7 == 0 else None) for n in range(1, 100)])
    for kept in (run, Run.load(run.dump())):
        assert steps(kept, "metric_0") == steps(kept, "metric_19") == list(kept.steps)
        assert kept.dump().count(kept.steps.tobytes()) == 2, "of the run, and of all its series"
        assert kept.dump().count(kept.series["sparse"].steps.tobytes()) == 1


def test_dump_of_another_version_is_refused() -> None:
    with pytest.raises(IncompatibleDump):
        Run.load(b"\x93\xcd\x03\xe7\xa6little\x90")
    with pytest.raises(IncompatibleDump):
        Run.load(b"not a dump")


def test_gap_constants() -> None:
    run = played([row(n) for n in range(1, 10)])
    assert values(run, "record_gap_median")[-1] == GAP


def test_two_keys_of_one_series_give_it_one_sample_per_step() -> None:
    """A raw key may be spelled like the series of a label; the row's samples must not be doubled."""
    labelled = {"rewards/a/mean": 0.5, 'reward_component_mean{component="a"}': 0.25}
    nested = {"x/y/z": 1.0, "x/y": {"z": 2.0}, "x": {"y/z": 3.0}}
    run = Run("r")
    for step in range(1, 80):
        apply(run, wire.StepRecord(run="r", step=step, time=time_of(step), names="trl", metrics={**labelled, **nested}))
    for series in run.series.values():
        assert all(before < after for before, after in itertools.pairwise(series.steps))
        assert len(series.steps) == len(series.values)
    assert list(run.series["x/y/z"].steps) == list(range(1, 80))


def test_the_same_arrivals_are_the_same_object() -> None:
    """Whoever derives something from `arrived` may keep it under the object itself."""
    labelled: dict[str, Any] = {"grad_norm": 1.0, "own": 2.0, "reward_component_mean": {"a": 0.5, "b": 0.25}}
    run = Run("r")
    seen = []
    for step in range(1, 200):
        apply(run, row(step, **{**labelled, "grad_norm": float(step)}))
        seen.append(run.arrived)
    assert {id(arrived) for arrived in seen[70:160]} == {id(seen[70])}
    assert seen[-1] >= {"grad_norm", "own", 'reward_component_mean{component="b"}', "grad_norm_spike_ratio"}


def test_a_follower_that_declares_the_same_attempt_takes_nothing_away() -> None:
    job = wire.RunRecord(
        run="r", time=time_of(0), labels={"team": "lab"}, config={"group_size": 8, "clip_high": 0.28}, links={"wandb": "w"},
        on_stop="pause",
    )  # fmt: skip
    run = played([job, *(row(n, grad_norm=1.0 + n / 100) for n in range(1, 40))])
    before = dict(run.baselines)
    assert before
    dump = wire.RunRecord(run="r", time=time_of(40), labels={"framework": "nemo_rl"}, config={"group_size": 8})
    (applied,) = apply(run, dump)
    assert (applied.outcome, applied.phase_changed) == (Outcome.RECONFIGURED, ())
    assert run.labels == {"team": "lab", "framework": "nemo_rl"}
    assert run.config == {"group_size": 8, "clip_high": 0.28}
    assert (run.links, run.on_stop) == ({"wandb": "w"}, "pause")
    assert run.baselines == before
    assert apply(run, dump)[0].outcome is Outcome.DUPLICATE


def test_a_new_attempt_is_what_its_own_declaration_says() -> None:
    first = wire.RunRecord(run="r", time=time_of(0), labels={"team": "lab"}, config={"group_size": 8, "clip_high": 0.28})
    run = played([first, row(1, grad_norm=1.0), wire.RunRecord(run="r", time=time_of(2), attempt=2, config={"group_size": 8})])
    assert (run.labels, run.config) == ({}, {"group_size": 8})

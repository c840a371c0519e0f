"""A run that was dumped and loaded in between ends as one that was never disturbed, bit for bit."""

from __future__ import annotations

import itertools
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.applied import Outcome
from collector.run import Run
from tests.collector.records import START, groups, opened
from tocsin import wire

NAMES = ("grad_norm", "reward_mean", "policy_entropy", "correct_ratio", "zero_variance_group_ratio", "policy_ratio_p99", "own")
ODD: tuple[object, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    1e300,
    0.0,
    -1.0,
    None,
    None,
    "nan",
    "text",
    "0.5",
    True,
    3,
    10**400,
    [],
)
SEEDS = range(60)
"""Seeded by hand rather than drawn: a stream is hundreds of choices, and a seed brings a failure back as well."""


def value(source: random.Random) -> object:
    return source.choice(ODD) if source.random() < 0.2 else source.random()


def row_of(source: random.Random, step: int, time: float, attempt: int) -> wire.StepRecord:
    every = source.random() < 0.5  # the usual row, or some of its keys
    metrics: dict[str, Any] = {name: value(source) for name in NAMES if every or source.random() < 0.5}
    if source.random() < 0.5:
        metrics["reward_component_mean"] = {label: value(source) for label in "abc" if source.random() < 0.6}
    block = None
    if source.random() < 0.5:
        counts = [source.randint(0, 8) for _ in range(6)]
        block = groups(*counts, prompts=[f"p{source.randint(0, 12)}" for _ in counts])
    return wire.StepRecord(run="r", step=step, time=time, attempt=attempt, metrics=metrics, groups=block)


def stream(seed: int) -> list[wire.Record]:
    """Records as a bad day brings them: merges, late rows, repeats, restarts declared and not, phase changes, ends."""
    source = random.Random(seed)
    records: list[wire.Record] = [opened()] if source.random() < 0.8 else []
    step, time, attempt = 0, START, 1
    for _ in range(source.randint(5, 150)):
        time += source.uniform(1.0, 50.0)
        at = step
        match source.choices(range(8), (1, 1, 1, 1, 5, 12, 6, 60))[0]:
            case 0:
                step = at = max(0, step - source.randint(0, 40))
            case 1:
                attempt += 1
                records.append(opened(attempt=attempt, time=time))
                step = at = max(0, step - source.randint(0, 5))
            case 2:
                records.append(opened(attempt=attempt, time=time, learning_rate=source.choice((1e-5, 1e-6))))
                continue
            case 3:
                status = source.choice(("failed", "finished"))
                records.append(wire.EndRecord(run="r", time=time, attempt=attempt, step=step, status=status))
                continue
            case 4 if records:
                records.append(source.choice(records[-20:]))
                continue
            case 5:
                at = max(0, step - source.randint(0, 12))
            case 6:
                pass  # a further row of the newest step
            case _:
                step = at = step + source.randint(1, 2)
        records.append(row_of(source, at, time, attempt))
    return records


def fold(run: Run, record: wire.Record, breaching: list[str]) -> None:
    """One record, with what a rule might give back."""
    applied = run.apply(record, received_at=record.time + 1.0, arrival=record.time)
    if applied.outcome.changed and isinstance(record, wire.StepRecord):
        run.extend([("recorded_mean", record.time)])
        run.mark_breaching(breaching)


@pytest.mark.parametrize("seed", SEEDS)
def test_restored_equals_undisturbed(seed: int) -> None:
    records = stream(seed)
    source = random.Random(-seed)
    breaching = [source.sample((*NAMES, "zero_variance_z"), source.randint(0, 2)) for _ in records]
    cuts = {source.randint(0, len(records)) for _ in range(3)}
    undisturbed, killed = Run("r", depth=64), Run("r", depth=64)
    for at, record in enumerate(records):
        if at in cuts:
            killed = Run.load(killed.dump(), depth=64)
        fold(undisturbed, record, breaching[at])
        fold(killed, record, breaching[at])
        assert set(killed.arrived) == set(undisturbed.arrived)
    assert killed.dump() == undisturbed.dump()
    assert repr(killed.exposed) == repr(undisturbed.exposed)  # by text, as NaN is not equal to itself


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants(seed: int) -> None:
    run = Run("r", depth=64)
    for record in stream(seed):
        before = run.record
        applied = run.apply(record, received_at=record.time, arrival=record.time)
        assert run.record - before in (0, 1)
        for key, series in run.series.items():
            assert series.steps
            assert len(series.steps) == len(series.values) <= 72
            assert all(a < b for a, b in itertools.pairwise(series.steps)), key
        assert all(a < b for a, b in itertools.pairwise(run.steps))
        assert len(run.steps) == len(run.times) <= 72
        assert set(run.arrived) <= run.series.keys()
        for key in run.arrived:
            assert run.series[key].at(run.step) is not None
        if not applied.outcome.changed:
            assert not run.arrived
        assert {key for keys in run.members.values() for key in keys} <= run.series.keys()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_newest_record_again_changes_nothing(seed: int) -> None:
    """At-least-once delivery: the newest record is often delivered twice."""
    run = Run("r", depth=64)
    for record in stream(seed):
        run.apply(record, received_at=record.time, arrival=record.time)
        before = run.dump()
        applied = run.apply(record, received_at=record.time, arrival=record.time)
        assert not applied.outcome.changed
        assert run.dump() == before


def test_streams_are_as_bad_as_they_say() -> None:
    outcomes = set()
    for seed in SEEDS:
        run = Run("r", depth=64)
        outcomes |= {run.apply(r, received_at=r.time, arrival=r.time).outcome for r in stream(seed)}
    assert outcomes == set(Outcome)


def test_state_does_not_depend_on_the_process() -> None:
    """Python's string hashes, and with them the order of sets, differ from process to process."""
    program = (
        "import hashlib, tests.collector.test_run_restore as t\n"
        "run = t.Run('r', depth=64)\n"
        "[t.fold(run, record, ['grad_norm']) for record in t.stream(7)]\n"
        "print(hashlib.sha256(run.dump()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1

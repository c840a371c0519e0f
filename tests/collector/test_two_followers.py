"""A framework's log and its dump of samples, shipped by two followers under one run: rows of one step are one record, and a row
that comes late is never taken for a restart.

The log's rows are dated when they are read, the dump's with the time at which the step was written (`tocsin.dumps`).
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.applied import Outcome
from collector.order import REORDER_WINDOW
from collector.run import Run
from tests.collector.records import GAP, time_of
from tocsin import wire

STEPS = 30
FIRST_ROW = 2.0
"""Seconds from the dump of a step to the row of the log."""
DROPPED = {Outcome.DROPPED_LATE, Outcome.DROPPED_ATTEMPT}


class Sent(NamedTuple):
    """A record and when the collector gets it."""

    at: float
    record: wire.Record


def follower(names: str, dated_when_read: bool, begins: float, lag: float, chance: random.Random) -> list[Sent]:
    """What a follower sends that begins at `begins` and is up to `lag` steps behind; a backlog is sent at once."""
    sent: list[Sent] = []
    at = begins
    for step in range(1, STEPS + 1):
        written = time_of(step) + (FIRST_ROW if dated_when_read else 0.0)
        at = max(at + 0.001, written + chance.uniform(0.0, lag) * GAP)
        time = at if dated_when_read else written
        if not sent:
            sent.append(Sent(at, wire.RunRecord(run="r", time=time, labels={"framework": "verl"})))
        metrics = {"actor/grad_norm": 1.0} if names == "verl" else {"zero_variance_group_ratio": 0.5}
        sent.append(Sent(at, wire.StepRecord(run="r", step=step, time=time, names=names, metrics=metrics)))
    return sent


def outcomes(*followers: list[Sent]) -> tuple[Run, list[tuple[wire.StepRecord, Outcome]]]:
    run, found = Run("r"), []
    for _, record in sorted((sent for each in followers for sent in each), key=lambda sent: sent.at):
        outcome = run.apply(record, received_at=record.time, arrival=record.time).outcome
        if isinstance(record, wire.StepRecord):
            found.append((record, outcome))
    return run, found


@given(st.integers(0, 2**32), st.floats(0.0, REORDER_WINDOW - 2.0))
def test_followers_that_begin_with_the_job_make_one_run_of_all_their_rows(seed: int, lag: float) -> None:
    chance = random.Random(seed)
    run, found = outcomes(follower("verl", True, 0.0, 0.1, chance), follower("canonical", False, 0.0, lag, chance))
    assert run.attempt == 1 and not {outcome for _, outcome in found} & {*DROPPED, Outcome.RESUMED}
    assert list(run.steps) == list(range(1, STEPS + 1))


@given(st.integers(0, 2**32), st.integers(2, STEPS), st.floats(0.0, 20.0))
def test_a_dump_that_comes_late_costs_only_its_own_old_rows(seed: int, begins: int, lag: float) -> None:
    chance = random.Random(seed)
    run, found = outcomes(follower("verl", True, 0.0, 0.1, chance), follower("canonical", False, time_of(begins), lag, chance))
    assert run.attempt == 1 and Outcome.RESUMED not in {outcome for _, outcome in found}
    assert not {record.names for record, outcome in found if outcome in DROPPED} & {"verl"}
    assert list(run.steps) == list(range(1, STEPS + 1))


@pytest.mark.parametrize("begins", [REORDER_WINDOW + 2, STEPS])
def test_a_log_that_is_followed_only_later_looks_like_a_restart(begins: int) -> None:
    """Known, and told on the page: its old rows are dated when they are read. Begin with the log, or with both."""
    chance = random.Random(0)
    run, _ = outcomes(follower("canonical", False, 0.0, 0.5, chance), follower("verl", True, time_of(begins), 0.1, chance))
    assert run.attempt > 1

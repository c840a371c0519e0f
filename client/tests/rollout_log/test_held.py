"""Which samples wait, and what becomes of those that wait in vain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.rollout_log.columns import take
from tocsin.rollout_log.held import AHEAD, ALONE, NEAR, Held
from tocsin.rollout_log.writer import Sample


def sample() -> Sample:
    return Sample(take(1, 1.0, ["r"]), "file")


def added(held: Held, *steps: int) -> list[int]:
    """Steps whose rows are to be sent now."""
    return [row.step for step in steps for row in held.add(step, float(step), sample())]


def rest(held: Held, final: bool = True) -> list[int]:
    return [row.step for row in held.rest(final)]


def test_a_sample_goes_with_the_metrics_of_its_step() -> None:
    held, one, other = Held(), sample(), sample()
    held.logged(4)
    assert held.add(5, 1.0, one) == held.add(5, 2.0, other) == []
    assert held.logged(5) == (one, other)
    assert held.logged(5) == ()
    assert (rest(held), held.unmatched) == ([], 0)


def test_after_the_metrics_it_goes_at_once() -> None:
    held, late = Held(), sample()
    for step in range(1, 20):
        held.logged(step)
    (row,) = held.add(19, 7.0, late)
    assert (row.step, row.time, row.samples) == (19, 7.0, (late,))
    assert added(held, 20 - NEAR) == [20 - NEAR]
    assert added(held, 19 - NEAR) == []
    assert held.logged(20) == ()
    assert (held.unmatched, rest(held)) == (1, [])


def test_with_metrics_of_some_steps_only_the_others_are_let_go_of_and_nothing_is_missing() -> None:
    held = Held()
    held.logged(0)
    for step in range(1, 101):
        assert added(held, step) == []
        if step % 10 == 0:
            assert len(held.logged(step)) == 1
    assert (rest(held), held.unmatched) == ([], 0)


def test_the_rollouts_may_be_ahead() -> None:
    """Asynchronous training: generation runs some steps ahead of the metrics."""
    held = Held()
    held.logged(0)
    for step in range(1, 200):
        assert added(held, step + AHEAD - 2) == []
        if step >= AHEAD - 1:
            assert len(held.logged(step)) == 1
    assert held.unmatched == 0


def test_too_far_ahead_is_another_numbering() -> None:
    held = Held()
    held.logged(0)
    assert added(held, *range(1000, 1000 + AHEAD + 5)) == []
    assert held.unmatched == 5
    assert (rest(held), held.unmatched) == ([], AHEAD + 5)


def test_the_last_step_before_the_end_is_sent() -> None:
    held = Held()
    held.logged(50)
    assert added(held, 52, 51, 50 + NEAR, 51 + NEAR, 40) == []
    assert rest(held, final=False) == []
    assert rest(held) == [50 + NEAR]
    assert (rest(held), held.unmatched) == ([], 1)


def test_without_metrics_rows_come_late_and_at_a_flush() -> None:
    held = Held()
    assert added(held, *range(1, 11)) == list(range(1, 11 - ALONE))
    assert rest(held, final=False) == [9, 10]
    assert added(held, 12, 11) == []
    assert rest(held) == [11, 12]


def test_a_job_that_goes_back_to_a_checkpoint() -> None:
    held = Held()
    for step in (*range(1, 30), *range(20, 25)):
        assert added(held, step) == []
        assert len(held.logged(step)) == 1
    assert (rest(held), held.unmatched) == ([], 0)


def test_one_step_in_many_calls_is_bounded() -> None:
    held = Held()
    held.logged(0)
    added(held, *[1] * 1000)
    assert len(held.logged(1)) == 8


class Device:
    """A step that lies on a device: reading it would wait."""

    device = type("Device", (), {"type": "cuda"})()

    def __index__(self) -> int:
        raise AssertionError("read")


@pytest.mark.parametrize("step", [None, "five", -1, 1.5, Device(), object(), float("nan")])
def test_steps_that_are_none_match_nothing(step: Any) -> None:
    held = Held()
    held.logged(0)
    added(held, 1)
    assert held.logged(step) == ()
    assert len(held.logged(1)) == 1


@pytest.mark.parametrize("step", [5, 5.0, np.int64(5), np.float64(5)])
def test_steps_of_every_kind_match(step: Any) -> None:
    held = Held()
    held.logged(4)
    added(held, 5)
    assert len(held.logged(step)) == 1


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=40))
def test_no_row_of_its_own_makes_a_step_that_has_no_metrics(calls: list[tuple[bool, int]]) -> None:
    """Once metrics have come, and until the end: every sample is in a record of its step, waits, or is let go of."""
    held, logged, sent = Held(), [0], 0
    held.logged(0)
    for is_metrics, step in calls:
        if is_metrics:
            sent += len(held.logged(step))
            logged.append(step)
        else:
            rows = held.add(step, 0.0, sample())
            sent += sum(len(row.samples) for row in rows)
            assert all(row.step in logged for row in rows)
        assert held.rest(final=False) == []
    assert all(0 < row.step - logged[-1] <= NEAR for row in held.rest(final=True))
    assert sent <= len(calls)

"""Which responses travel in the record."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.rollout_log.sample import SAMPLE, Picked, pick


def test_the_ones_a_person_asks_for_first_and_random_ones_after_them() -> None:
    found = pick([5, 9, 5, 7, 9, 5, 5, 5, 5, 5], [0.5, 0.5, -1.0, 2.0, 0.5, 2.0, -1.0, 0.5, 0.5, 0.5], step=3, size=6)
    assert found[:4] == [Picked(0, "first"), Picked(2, "worst"), Picked(3, "best"), Picked(1, "longest")]
    assert [item.why for item in found[4:]] == ["random", "random"]


def test_of_a_nan_a_person_wants_to_read_the_text() -> None:
    found = pick([1, 1, 1, 1], [1.0, -math.inf, math.nan, math.inf], step=0, size=3)
    assert found == [Picked(0, "first"), Picked(2, "worst"), Picked(3, "best")]


@pytest.mark.parametrize("scores", [None, [None, None, None], [math.nan, math.nan, math.nan]])
def test_without_scores_that_can_be_compared(scores: list[float | None] | None) -> None:
    found = pick([1, 2, 3], scores, step=0)
    assert {item.at for item in found} == {0, 1, 2}
    assert "best" not in {item.why for item in found}


def test_no_responses() -> None:
    assert pick([], [], step=1) == []
    assert pick([], None, step=1) == []


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.floats()))), st.integers(0, 2**61), st.integers(1, 64))
def test_whatever_the_scores(responses: list[tuple[int, float | None]], step: int, size: int) -> None:
    lengths, scores = [length for length, _ in responses], [score for _, score in responses]
    found = pick(lengths, scores, step, size)
    assert len({item.at for item in found}) == len(found) == min(size, len(responses))
    assert found == pick(lengths, scores, step, size), "the same ones whenever it is asked"
    by_why = {item.why: item.at for item in found}
    numbers = [score for score in scores if score is not None and not math.isnan(score)]
    if "best" in by_why:
        assert scores[by_why["best"]] == max(numbers)
    if "worst" in by_why and not any(score is not None and math.isnan(score) for score in scores):
        assert scores[by_why["worst"]] == min(numbers)
    if "longest" in by_why:
        assert lengths[by_why["longest"]] == max(lengths)


def test_random_ones_change_with_the_step() -> None:
    chosen = {tuple(pick([1] * 100, None, step)) for step in range(20)}
    assert len(chosen) > 10
    assert all(len(picked) == SAMPLE for picked in chosen)

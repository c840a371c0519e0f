"""Distinct responses, edit distances within groups, and retrieval of the prompt from the response."""

from __future__ import annotations

import math
import statistics
import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.token_batches import measured, number
from tocsin.batch import Settings
from tocsin.batch.diversity import EDIT_UNITS

UNIQUE, EDIT = "unique_response_ratio", "response_edit_distance_median"


def levenshtein(one: Any, other: Any) -> int:
    """By the textbook: row after row."""
    row = list(range(len(other) + 1))
    for at, item in enumerate(one, 1):
        last, row[0] = row[0], at
        for to, wanted in enumerate(other, 1):
            last, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, last + (item != wanted))
    return row[-1]


def edit_oracle(responses: list[Any], prompts: list[Any]) -> float | None:
    """Of all pairs."""
    distances = [
        levenshtein(one, other) / max(len(one), len(other)) if one or other else 0.0
        for (one, of), (other, to) in combinations(zip(responses, prompts, strict=True), 2)
        if of == to
    ]
    return statistics.median(distances) if distances else None


def test_unique_by_hand() -> None:
    assert number(measured(responses=["a", "b", "a", "a "]), UNIQUE) == 0.75
    assert number(measured(responses=["a"] * 4), UNIQUE) == 0.25
    assert number(measured(responses=["", "half \ud83d", "half \ud83c"]), UNIQUE) == 1.0
    assert measured(responses=[]).metrics[UNIQUE] is None
    assert "unique" in measured(rewards=[1.0]).skipped


def test_without_texts_token_ids_under_the_mask_are_compared() -> None:
    ids = [[1, 2, 3, 9], [1, 2, 3, 8], [1, 2, 0, 9], [1, 2, 3, 0]]
    mask = [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    for fields in ({"token_ids": ids, "mask": mask}, {"token_ids": torch.tensor(ids), "mask": torch.tensor(mask)}):
        summary = measured(**fields, prompts=["p", "p", "p", "q"])
        assert number(summary, UNIQUE) == 0.75
        assert number(summary, EDIT) == pytest.approx(1 / 3)
    packed = measured(token_ids=[1, 2, 3, 1, 2, 3, 1, 2, 1, 2, 3, 0], lengths=[3, 3, 2, 4], prompts=["p", "p", "p", "q"])
    assert number(packed, UNIQUE) == 0.75
    assert number(packed, EDIT) == pytest.approx(1 / 3)


def test_texts_come_before_token_ids() -> None:
    summary = measured(responses=["ab", "ac"], token_ids=[[1, 2], [1, 2]], mask=[[1, 1], [1, 1]], prompts=[1, 1])
    assert (number(summary, UNIQUE), number(summary, EDIT)) == (1.0, 0.5)


def test_edit_distance_by_hand() -> None:
    summary = measured(responses=["kitten", "sitting", "other", "", ""], prompts=["p", "p", "q", "r", "r"])
    assert number(summary, EDIT) == pytest.approx((0 + 3 / 7) / 2)
    assert number(measured(responses=["same"] * 3, prompts=[1] * 3), EDIT) == 0.0
    assert number(measured(responses=["abc", "xyz"], prompts=[1, 1]), EDIT) == 1.0


@settings(max_examples=100)
@given(st.lists(st.tuples(st.text("ab\U0001f600\ud83d", max_size=12), st.integers(0, 2)), max_size=12))
def test_edit_distance_against_the_textbook(responses: list[tuple[str, int]]) -> None:
    texts, prompts = [text for text, _ in responses], [prompt for _, prompt in responses]
    summary = measured(Settings(edit_pairs=1000), responses=texts, prompts=prompts)
    expected = edit_oracle(texts, prompts)
    assert summary.metrics[EDIT] == (expected if expected is None else pytest.approx(expected))


def test_only_pairs_of_one_group_are_compared() -> None:
    apart = measured(responses=["aaaa", "bbbb", "aaaa", "bbbb"], prompts=["p", "q", "p", "q"])
    assert number(apart, EDIT) == 0.0
    alone = measured(responses=["aaaa", "bbbb"], prompts=["p", "q"])
    assert alone.metrics[EDIT] is None
    assert EDIT not in measured(responses=["aaaa", "bbbb"]).metrics


def test_a_budget_of_pairs_drawn_from_all_groups() -> None:
    """4 groups of 16 identical responses and 12 of 16 different ones: pairs from everywhere, the same ones each time."""
    prompts = [index // 16 for index in range(256)]
    responses = ["same" if prompt < 4 else f"{index:08b}" for index, prompt in enumerate(prompts)]
    fields = {"responses": responses, "prompts": prompts}
    whole = number(measured(Settings(edit_pairs=10**6), **fields), EDIT)
    found = {number(measured(Settings(edit_pairs=64, seed=seed), **fields), EDIT) for seed in range(20)}
    assert all(abs(value - whole) <= 0.125 for value in found)
    assert len({number(measured(Settings(edit_pairs=64, seed=3), **fields), EDIT) for _ in range(3)}) == 1
    alike = [f"{index % 16 > 0}" for index in range(256)]
    seen = {number(measured(Settings(edit_pairs=1, seed=seed), responses=alike, prompts=prompts), EDIT) for seed in range(60)}
    assert len(seen) == 2, "one pair is drawn, not always the same one"


@pytest.mark.parametrize("budget", [0, -5, 1.5])
def test_a_budget_that_cannot_be_meant_is_one_pair(budget: Any) -> None:
    assert number(measured(Settings(edit_pairs=budget), responses=["a", "b"], prompts=[1, 1]), EDIT) == 1.0


def test_every_pair_is_as_likely_as_every_other() -> None:
    from tocsin.batch.diversity import _pairs

    group = np.array([0, 1, 0, 1, 1, 2, 0])
    pairs = {(0, 2), (0, 6), (2, 6), (1, 3), (1, 4), (3, 4)}
    assert set(_pairs(group, 100, 0)) == pairs
    assert len(_pairs(group, 100, 0)) == len(pairs)
    drawn = [pair for seed in range(600) for pair in _pairs(group, 2, seed)]
    assert set(drawn) == pairs
    assert all(150 <= drawn.count(pair) <= 250 for pair in pairs)
    assert _pairs(np.zeros(0, dtype=np.int64), 5, 0) == []


def test_long_responses_are_compared_by_their_beginnings() -> None:
    text = "x" * EDIT_UNITS
    assert number(measured(responses=[text + "a" * 10**6, text + "b" * 10**6], prompts=[1, 1]), EDIT) == 0.0


def test_without_rapidfuzz_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    summary = measured(responses=["a", "b"], prompts=[1, 1])
    assert EDIT not in summary.metrics
    assert "rapidfuzz" in summary.skipped["edit_distance"]
    assert number(summary, UNIQUE) == 1.0


def retrieval(scores: Any, own: Any) -> tuple[Any, Any]:
    summary = measured(retrieval_scores=scores, retrieval_own=own)
    return summary.metrics.get("retrieval_accuracy", "missing"), summary.metrics.get("retrieval_chance", "missing")


def test_retrieval_by_hand() -> None:
    scores = [[-1.0, -2.0, -3.0], [-5.0, -4.0, -6.0], [-1.0, -2.0, -3.0], [-9.0, -9.0, -1.0]]
    assert retrieval(scores, [0, 1, 2, 2]) == (0.75, pytest.approx(1 / 3))


@pytest.mark.parametrize("prompts", [1, 2, 7, 64])
@pytest.mark.parametrize("value", [0.0, -math.inf, -3.5])
def test_scores_that_tell_nothing_give_chance(prompts: int, value: float) -> None:
    scores = np.full((100, prompts), value)
    accuracy, chance = retrieval(scores, np.arange(100) % prompts)
    assert (accuracy, chance) == (pytest.approx(1 / prompts), pytest.approx(1 / prompts))


def test_ties_count_as_a_draw_among_them() -> None:
    assert retrieval([[1.0, 1.0, 0.0]], [0])[0] == 0.5
    assert retrieval([[1.0, 1.0, 0.0]], [2])[0] == 0.0
    assert retrieval([[-math.inf, -math.inf, -1.0]], [2])[0] == 1.0


@settings(max_examples=100)
@given(st.data())
def test_retrieval_against_the_oracle(data: st.DataObject) -> None:
    count, prompts = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 5))
    scores = [[data.draw(st.sampled_from([-3.0, -2.0, -1.0, 0.0, -math.inf])) for _ in range(prompts)] for _ in range(count)]
    own = [data.draw(st.integers(0, prompts - 1)) for _ in range(count)]
    credit = 0.0
    for row, column in zip(scores, own, strict=True):
        if row[column] == max(row):
            credit += 1 / row.count(max(row))
    for of, at in ((scores, own), (torch.tensor(scores, dtype=torch.bfloat16), torch.tensor(own))):
        assert retrieval(of, at) == (pytest.approx(credit / count), pytest.approx(1 / prompts))


def test_retrieval_with_nan() -> None:
    for scores in (np.array([[1.0, math.nan], [2.0, 1.0]]), torch.tensor([[1.0, math.nan], [2.0, 1.0]])):
        accuracy, chance = retrieval(scores, [0, 0])
        assert math.isnan(accuracy)
        assert chance == 0.5


def test_retrieval_of_nothing() -> None:
    assert retrieval(np.zeros((0, 4)), []) == (None, 0.25)
    assert retrieval(np.zeros((3, 0)), [0, 0, 0]) == (None, None)


@pytest.mark.parametrize(
    ("scores", "own", "why"),
    [
        ([[1.0, 2.0]], [0, 1], "2 values for 1"), ([1.0, 2.0], [0], "expected [N, P]"), ([[1.0, 2.0]], [2], "column of 2"),
        ([[1.0, 2.0]], [-1], "column of 2"), ([[1.0, 2.0]], [0.5], "column of 2"), ([[1.0, 2.0]], [math.nan], "column of 2"),
    ],
)  # fmt: skip
def test_retrieval_that_does_not_fit(scores: Any, own: Any, why: str) -> None:
    summary = measured(retrieval_scores=scores, retrieval_own=own)
    assert why in summary.skipped["retrieval"]
    assert "retrieval_accuracy" not in summary.metrics

"""Lengths by correctness, truncation, and the limit that shows in equal lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.token_batches import measured, number, quantile
from tocsin.batch import Settings
from tocsin.batch.lengths import label

NAMES = ("mean", "p99", "max", "min")
K8, K16, K32 = 8192, 16384, 32768


def test_by_hand() -> None:
    summary = measured(response_lengths=[10, 20, 30, 400], correct=[True, False, True, False])
    assert number(summary, "response_length_mean") == 115.0
    assert (number(summary, "response_length_max"), number(summary, "response_length_min")) == (400.0, 10.0)
    assert number(summary, "response_length_correct_mean") == 20.0
    assert number(summary, "response_length_incorrect_mean") == 210.0


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 40_000), st.booleans()), min_size=1, max_size=60))
def test_against_the_oracle(responses: list[tuple[int, bool]]) -> None:
    lengths = [length for length, _ in responses]
    summary = measured(response_lengths=lengths, correct=[correct for _, correct in responses])
    assert number(summary, "response_length_mean") == pytest.approx(sum(lengths) / len(lengths))
    assert number(summary, "response_length_p99") == pytest.approx(quantile([float(length) for length in lengths], 0.99))
    for name, wanted in (("correct", True), ("incorrect", False)):
        side = [length for length, correct in responses if correct is wanted]
        expected = pytest.approx(sum(side) / len(side)) if side else None
        assert summary.metrics[f"response_length_{name}_mean"] == expected
    ratios = summary.metrics["truncated_ratio_by_limit"]
    assert isinstance(ratios, dict)
    if len(set(lengths)) > 1:
        assert ratios == {
            name: pytest.approx(sum(length >= limit for length in lengths) / len(lengths))
            for name, limit in (("8k", K8), ("16k", K16), ("32k", K32))
        }


def test_lengths_are_counted_from_the_mask_where_none_are_given() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    summary = measured(mask=mask, correct=[1, 0, 1])
    assert [number(summary, f"response_length_{name}") for name in ("mean", "max", "min")] == [2.0, 4.0, 0.0]
    assert number(summary, "response_length_correct_mean") == 3.0


def test_nobody_correct_and_no_response() -> None:
    summary = measured(response_lengths=[5, 7], correct=[False, False])
    assert summary.metrics["response_length_correct_mean"] is None
    assert number(summary, "response_length_incorrect_mean") == 6.0
    empty = measured(response_lengths=[], correct=[], truncated=[])
    assert {empty.metrics[f"response_length_{name}"] for name in NAMES} == {None}
    assert empty.metrics["truncated_ratio"] is None
    assert empty.metrics["truncated_ratio_by_limit"] == {"8k": None, "16k": None, "32k": None}


def test_a_nan_length_shows() -> None:
    summary = measured(response_lengths=[math.nan, 10.0], correct=[True, False])
    assert all(math.isnan(number(summary, f"response_length_{name}")) for name in (*NAMES, "correct_mean"))
    assert number(summary, "response_length_incorrect_mean") == 10.0
    assert summary.metrics["truncated_ratio_by_limit"] == {"8k": 0.0, "16k": 0.0, "32k": 0.0}


def test_truncated_as_the_engine_said() -> None:
    summary = measured(
        Settings(max_response_length=100), truncated=[True, False, False, False], response_lengths=[90, 100, 5, 5]
    )
    assert number(summary, "truncated_ratio") == 0.25, "a response that ends by itself at the limit is not cut"
    assert summary.metrics["truncated_ratio_by_limit"] == {"100": 0.25}


def test_truncated_by_length_where_nobody_said() -> None:
    summary = measured(Settings(max_response_length=100), response_lengths=[100, 101, 99, 5])
    assert number(summary, "truncated_ratio") == 0.5
    unknown = measured(response_lengths=[100, 101, 99, 5])
    assert "truncated_ratio" not in unknown.metrics
    assert "max_response_length" in unknown.skipped["truncated_ratio"]
    said = measured(truncated=[1, 0])
    assert number(said, "truncated_ratio") == 0.5
    assert "truncated_ratio_by_limit" in said.skipped


@pytest.mark.parametrize(
    ("maximum", "limits", "names"),
    [
        (None, (K8, K16, K32), ["8k", "16k", "32k"]), (K16, (K8, K16, K32), ["8k", "16k"]),
        (20_000, (K8, K16, K32), ["8k", "16k", "20000"]),
        (1024, (K8,), ["1k"]), (None, (), []), (None, (K8, K8, 0, -5, math.nan, "many", None), ["8k"]), (0, (K8,), ["8k"]),
        (None, [8192.0, np.int64(16384)], ["8k", "16k"]), (None, 5, []), (-3, "8192", []),
    ],
)  # fmt: skip
def test_which_limits(maximum: Any, limits: Any, names: list[str]) -> None:
    summary = measured(Settings(max_response_length=maximum, length_limits=limits), response_lengths=[1, 2, 3])
    ratios = summary.metrics["truncated_ratio_by_limit"]
    assert isinstance(ratios, dict)
    assert list(ratios) == names


def test_names_of_limits() -> None:
    assert [label(limit) for limit in (512, 1000, 1024, 8000, 8192, 131072)] == ["512", "1000", "1k", "8000", "8k", "128k"]


def test_min_equal_to_max_equal_to_the_limit_is_truncation() -> None:
    """Whoever says otherwise is wrong: eight responses do not all end by themselves at the token of the limit."""
    limit = Settings(max_response_length=200)
    for fields in ({}, {"truncated": [False] * 8}, {"truncated": [True] * 7 + [False]}, {"truncated": [True] * 8}):
        summary = measured(limit, response_lengths=[200] * 8, **fields)
        assert number(summary, "truncated_ratio") == 1.0
        assert summary.metrics["truncated_ratio_by_limit"] == {"200": 1.0}
        contradicted = "truncated" in fields and not all(fields["truncated"])
        assert ("truncated_ratio" in summary.skipped) is contradicted


def test_equal_lengths_show_a_limit_that_nobody_told() -> None:
    summary = measured(response_lengths=[200] * 8)
    assert number(summary, "truncated_ratio") == 1.0
    assert summary.metrics["truncated_ratio_by_limit"] == {"200": 1.0}
    assert "taken as the limit" in summary.skipped["truncated_ratio_by_limit"]


@pytest.mark.parametrize(
    ("lengths", "maximum"),
    [
        ([200] * 7, None),
        ([1] * 100, None),
        ([63] * 100, None),
        ([200] * 7 + [199], None),
        ([200] * 8, 400),
        ([math.nan] * 9, None),
    ],
)
def test_equal_lengths_that_say_nothing(lengths: list[float], maximum: int | None) -> None:
    summary = measured(Settings(max_response_length=maximum), response_lengths=lengths)
    assert summary.metrics.get("truncated_ratio", 0.0) == 0.0

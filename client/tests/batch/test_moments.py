"""Mean, deviation and extrema of a stream of blocks."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.batch.arrays import Ops, ops_of
from tocsin.batch.arrays_torch import TorchOps
from tocsin.batch.contract import OnHost
from tocsin.batch.moments import Spread

NUMPY, TORCH = ops_of([np.zeros(1)]), ops_of([torch.zeros(1)])
OPS = pytest.mark.parametrize("ops", [NUMPY, TORCH, TorchOps(torch.device("cpu"))], ids=["numpy", "torch", "accelerator"])


def resolved(ops: Ops, value: Any) -> float | None:
    if isinstance(value, OnHost):
        with np.errstate(all="ignore"):
            return value.compute(*ops.numbers(value.inputs))
    return None if value is None else ops.numbers([value])[0]


def spread(ops: Ops, values: list[float], cuts: list[int], dtype: Any = np.float32) -> dict[str, float | None]:
    found = Spread(ops)
    with np.errstate(all="ignore"):
        for block in np.split(np.array(values, dtype=dtype), sorted(min(cut, len(values)) for cut in cuts)):
            found.add(ops.array(block))
        return {name: resolved(ops, value) for name, value in found.metrics("x").items()}


@OPS
@settings(max_examples=100)
@given(
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
)
def test_any_cut_gives_the_numbers_of_the_whole(ops: Ops, values: list[float], cuts: list[int]) -> None:
    found = spread(ops, values, cuts)
    scale = max(map(abs, values)) + 1e-30
    assert found["x_mean"] == pytest.approx(statistics.fmean(values), abs=1e-12 * scale)
    assert found["x_std"] == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-9 * scale)
    assert (found["x_max"], found["x_min"]) == (max(values), min(values))


@OPS
@pytest.mark.parametrize("cuts", [[], [500], list(range(0, 1000, 7))], ids=len)
def test_values_that_lie_close_together_keep_their_spread(ops: Ops, cuts: list[int]) -> None:
    ulp = 2.0**-23
    values = [1.0 + ulp * (place % 3) for place in range(1000)]
    assert spread(ops, values, cuts)["x_std"] == pytest.approx(statistics.pstdev(values), rel=1e-9)


@OPS
@pytest.mark.parametrize("place", [0, 300, 999])
@pytest.mark.parametrize("cuts", [[], [1], [500], list(range(0, 1000, 7))], ids=len)
def test_an_outlier_anywhere_spoils_nothing(ops: Ops, place: int, cuts: list[int]) -> None:
    values = [1.0 + 0.001 * (index % 5) for index in range(1000)]
    values[place] = 1e8
    exact = [float(np.float32(value)) for value in values]
    found = spread(ops, values, cuts)
    assert found["x_mean"] == pytest.approx(statistics.fmean(exact), rel=1e-14)
    assert found["x_std"] == pytest.approx(statistics.pstdev(exact), rel=1e-12)


@OPS
@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.1 + 0.2, -1e-8, 3e7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_values_have_exactly_this_mean_and_no_spread(ops: Ops, value: float, dtype: Any) -> None:
    for count in (1, 2, 3, 5, 6, 7, 10, 12, 39):
        found = spread(ops, [value] * count, [count // 3, count // 2], dtype)
        assert found["x_mean"] == float(dtype(value))
        assert found["x_std"] == 0.0


@OPS
@pytest.mark.parametrize("cuts", [[], [2], [1, 2, 3]], ids=len)
def test_what_is_not_finite_shows(ops: Ops, cuts: list[int]) -> None:
    nan = spread(ops, [1.0, math.nan, 2.0, 3.0], cuts)
    assert all(value is not None and math.isnan(value) for value in nan.values())
    high = spread(ops, [1.0, math.inf, math.inf, 3.0], cuts)
    assert (high["x_mean"], high["x_max"], high["x_min"]) == (math.inf, math.inf, 1.0)
    assert high["x_std"] is not None and math.isnan(high["x_std"])
    only = spread(ops, [math.inf, math.inf, math.inf], cuts)
    assert only["x_mean"] == math.inf
    assert only["x_std"] is not None and math.isnan(only["x_std"])
    both = spread(ops, [math.inf, -math.inf, 0.0], cuts)
    assert both["x_mean"] is not None and math.isnan(both["x_mean"])


@OPS
def test_no_value_gives_none(ops: Ops) -> None:
    assert spread(ops, [], [0, 0]) == {"x_mean": None, "x_std": None, "x_max": None, "x_min": None}
    assert Spread(ops).squares == 0

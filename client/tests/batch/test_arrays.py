"""One contract for the array operations: numpy, torch on any device, and torch in main memory, which is numpy inside."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import mismatch_oracle
from tocsin.batch.arrays import Ops, ops_of
from tocsin.batch.arrays_numpy import NumpyOps
from tocsin.batch.arrays_torch import TorchOps
from tocsin.batch.arrays_torch_cpu import TorchCpuOps

KINDS: dict[str, Callable[[], Ops]] = {
    "numpy": NumpyOps,
    "torch": lambda: TorchOps(torch.device("cpu")),  # as on an accelerator, run here
    "torch in main memory": TorchCpuOps,
}


@pytest.fixture(params=KINDS)
def ops(request: pytest.FixtureRequest) -> Ops:
    return KINDS[request.param]()


def f32(values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def host(x: Any) -> Any:
    return x.tolist() if hasattr(x, "tolist") else x


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0],
        [True, False],
        [1, 2],
        (1.0, None),
        np.array([1, 2], dtype=np.float16),
        np.arange(6, dtype=np.int32)[::-2],
        np.broadcast_to(np.float32(1), (2,)),
        np.array([1, 2], dtype=np.longdouble),
        np.array([1.0, None], dtype=object),
        np.array([1, 2], dtype=np.uint8),
    ],
    ids=repr,
)
def test_anything_like_an_array_is_one_without_a_warning(ops: Ops, values: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = host(ops.floats(ops.array(values)))
    expected = [math.nan if value is None else float(value) for value in values]
    assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "values", [["a"], [[1], [2, 3]], [1j], np.array(["2026-01-01"], dtype="datetime64[D]"), object(), {"a": 1}]
)
def test_what_is_no_array_is_refused(ops: Ops, values: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        ops.array(values)


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (torch.zeros(2, device="meta"), "lies on meta, the others on cpu"),
        (torch.zeros(2).to_sparse(), "a dense tensor of real numbers was expected"),
        (torch.zeros(2, dtype=torch.complex64), "a dense tensor of real numbers was expected"),
    ],
)
@pytest.mark.parametrize("kind", ["torch", "torch in main memory"])
def test_tensors_that_cannot_be_read_are_refused(kind: str, tensor: torch.Tensor, told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        KINDS[kind]().array(tensor)


def test_a_sharded_tensor_is_refused() -> None:
    """Reading one is a collective operation: a rank that does it alone waits for ever."""
    sharded = torch.zeros(2)
    sharded.full_tensor = lambda: pytest.fail("read")  # what marks a DTensor
    with pytest.raises(TypeError, match="collective"):
        TorchCpuOps().array(sharded)


def test_no_graph_is_kept() -> None:
    grown = torch.ones(2, requires_grad=True) * 2
    assert not TorchOps(torch.device("cpu")).array(grown).requires_grad
    assert host(TorchCpuOps().array(grown)) == [2.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_tensors_in_main_memory_are_not_copied(dtype: torch.dtype) -> None:
    x = torch.zeros(3, 4).to(dtype)
    found = TorchCpuOps().hold(x)
    x[1, 2] = 1
    assert found[1, 2] == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_in_main_memory_are_made_float32_block_by_block(dtype: torch.dtype) -> None:
    x = torch.full((4,), 1.5).to(dtype)
    ops = TorchCpuOps()
    held = ops.hold(x)
    assert held.dtype == dtype
    assert host(ops.floats(held[1:3])) == [1.5, 1.5]
    assert host(ops.pick(held, ops.array([0, 3]))) == [1.5, 1.5]
    assert host(ops.repeat(held, ops.array([0, 1, 0, 1]))) == [1.5, 1.5]
    assert host(ops.flags(held)) == [True] * 4
    assert host(ops.take(held, ops.array([True, False, False, False]))) == [1.5]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.bool])
def test_floats_of_every_type(dtype: torch.dtype) -> None:
    for kind in ("torch", "torch in main memory"):
        ops = KINDS[kind]()
        found = ops.floats(ops.array(torch.ones(3).to(dtype)))
        assert str(found.dtype).endswith("float64" if dtype is torch.float64 else "float32")
        assert host(ops.is_finite(ops.array(torch.tensor([1.0, math.nan, math.inf]).to(dtype))))[0]


vectors = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40)


@settings(max_examples=60)
@given(vectors, st.sampled_from(sorted(KINDS)), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_quantiles_in_any_order(values: list[float], kind: str, levels: list[float]) -> None:
    ops = KINDS[kind]()
    found = ops.numbers(ops.quantiles(ops.array(f32(values)), levels))
    expected = [mismatch_oracle.quantile(values, level) for level in levels]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9 * max(map(abs, values)))


def test_quantiles_of_what_is_not_finite(ops: Ops) -> None:
    levels = (0.5, 1.0)
    assert ops.numbers(ops.quantiles(ops.array([1.0, math.inf, math.inf]), levels)) == [math.inf, math.inf]
    assert all(math.isnan(value) for value in ops.numbers(ops.quantiles(ops.array([1.0, math.nan, -math.inf]), levels)))
    with pytest.raises((ValueError, IndexError)):
        ops.quantiles(ops.array(np.zeros(0, dtype=np.float32)), levels)


def test_quantiles_leave_their_input_alone(ops: Ops) -> None:
    values = [3.0, 1.0, 2.0]
    x = ops.array(f32(values))
    ops.quantiles(x, (0.5,))
    ops.top(x, 2)
    assert host(x) == values


@settings(max_examples=60)
@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), max_size=5), max_size=6), st.sampled_from(sorted(KINDS)))
def test_segments(rows: list[list[float]], kind: str) -> None:
    ops = KINDS[kind]()
    x = ops.array(f32([value for row in rows for value in row]))
    counts = ops.array(np.array([len(row) for row in rows], dtype=np.int64))
    assert host(ops.segment_sum(x, counts)) == pytest.approx([math.fsum(row) for row in rows], abs=1e-6)
    assert host(ops.segment_max(x, counts)) == [max(row, default=-math.inf) for row in rows]
    spread = [float(at) for at, row in enumerate(rows) for _ in row]
    for total in (None, len(spread)):
        assert host(ops.repeat(ops.array(np.arange(len(rows)) * 1.0), counts, total)) == spread
    assert host(ops.count_segments(x > 0, counts)) == [sum(value > 0 for value in row) for row in rows]


def test_segments_pass_nan_on_and_keep_it_to_itself(ops: Ops) -> None:
    x = ops.array(f32([1.0, math.nan, 2.0, math.inf]))
    counts = ops.array(np.array([2, 0, 1, 1]))
    for found in (ops.segment_sum(x, counts), ops.segment_max(x, counts)):
        first, _, third, last = host(found)
        assert math.isnan(first)
        assert (third, last) == (2.0, math.inf)


def test_extrema_pass_nan_on(ops: Ops) -> None:
    for x in ([1.0, math.nan], [math.nan, 1.0]):
        assert all(math.isnan(value) for value in ops.numbers([ops.max(ops.array(x)), ops.min(ops.array(x))]))
    with pytest.raises((ValueError, RuntimeError)):
        ops.max(ops.array(np.zeros(0)))


def test_sums_are_in_float64(ops: Ops) -> None:
    """2^24 + 1 has no float32: a sum in float32 would stop there."""
    x = ops.array(f32([2.0**24, 1.0, 1.0, 1.0]))
    one = ops.array(np.ones(4, dtype=np.float32))
    counts = ops.array(np.array([4]))
    expected = 2.0**24 + 3
    assert ops.numbers([ops.sum(x), ops.dot(x, one)]) == [expected, expected]
    assert host(ops.segment_sum(x, counts)) == [expected]
    mean, squares = ops.numbers(ops.moments(x))
    assert mean == expected / 4
    assert squares == (2.0**24 - mean) ** 2 + 3 * (1.0 - mean) ** 2


def test_a_share_does_not_follow_torchs_default_type(ops: Ops) -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        share = ops.count(ops.array([True, False, True])) / 3
        assert ops.numbers([share]) == [2 / 3]
    finally:
        torch.set_default_dtype(torch.float32)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(KINDS)), st.integers(0, 5), st.integers(0, 5))
def test_taking_and_laying_back(seed: int, kind: str, rows: int, width: int) -> None:
    random = np.random.default_rng(seed)
    mask, x = random.random((rows, width)) < 0.5, random.normal(size=(rows, width)).astype(np.float32)
    ops = KINDS[kind]()
    given_mask, given_x = ops.array(mask), ops.array(x)
    places = ops.places(given_mask)
    taken = ops.pick(given_x, places)
    assert host(taken) == x[mask].tolist() == host(ops.take(given_x, given_mask))
    assert host(ops.lay(taken, places, (rows, width))) == np.where(mask, x, np.float32(0)).tolist()
    assert host(ops.lay(given_x.reshape(-1), None, (rows, width))) == x.tolist()
    assert host(ops.count_rows(given_mask)) == mask.sum(1).tolist()


def test_numbers_of_all_kinds_in_order(ops: Ops) -> None:
    scalars = [ops.sum(ops.array([1.0, 2.0])), 4, np.float32(0.5), torch.tensor(7), np.array(8.0), True]
    assert ops.numbers(scalars) == [3.0, 4.0, 0.5, 7.0, 8.0, 1.0]
    assert all(type(number) is float for number in ops.numbers(scalars))


def test_one_copy_for_all_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each .item() or tolist() of a tensor on a device waits for all the work queued there."""
    copies = []
    original = torch.Tensor.tolist

    def counted(tensor: Any) -> Any:
        copies.append(tensor)
        return original(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("a copy of its own"))
    assert TorchOps(torch.device("cpu")).numbers([torch.tensor(float(n)) for n in range(50)]) == list(range(50))
    assert len(copies) == 1


def test_who_computes() -> None:
    assert type(ops_of([[1.0], np.zeros(2)])) is NumpyOps
    assert type(ops_of([np.zeros(2), torch.zeros(2)])) is TorchCpuOps
    assert type(ops_of([torch.zeros(2, device="meta"), torch.zeros(2)])) is TorchCpuOps

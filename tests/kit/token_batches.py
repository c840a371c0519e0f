"""Batches of tokens for the tests of measures: numpy and torch, any float type, garbage under the mask, cut into any blocks.

An oracle walks `tokens_of`: plain Python numbers, response by response, of the tokens under the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tocsin.batch import Batch, Settings, Summary, arrays_torch_cpu, summarize
from tocsin.batch.arrays_numpy import NumpyOps
from tocsin.batch.arrays_torch import TorchOps

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
LIBRARIES = ("numpy", "torch", "torch bfloat16", "numpy float16", "numpy float64", "accelerator")
"""What arrays a test can be given as. `accelerator` is torch by the operations of an accelerator (see `cut_blocks`)."""
_GARBAGE = (-math.inf, math.nan, math.inf, 1e30)


def random_tokens(
    seed: int, rows: int = 9, width: int = 13, /, **makers: Callable[[np.random.Generator, tuple[int, int]], Any]
) -> Arrays:
    """A mask with an empty response and a full one, and the arrays that the makers give; garbage where the mask is 0."""
    random = np.random.default_rng(seed)
    mask = random.random((rows, width)) < 0.6
    mask[rows // 2], mask[-1] = False, True
    arrays: dict[str, Array] = {"mask": mask}
    for name, make in makers.items():
        values = np.asarray(make(random, (rows, width)), dtype=np.float32)
        if values.shape == mask.shape:
            values[~mask] = np.resize(np.array(_GARBAGE, dtype=np.float32), int((~mask).sum()))
        arrays[name] = values
    return arrays


def as_given(arrays: Arrays, library: str) -> tuple[dict[str, Any], Arrays]:
    """The arrays as a trainer would give them, and the same numbers (rounded to that type) for the oracle."""
    kind, _, name = library.partition(" ")
    given: dict[str, Any] = {}
    rounded: dict[str, Array] = {}
    with np.errstate(over="ignore"):
        for field, array in arrays.items():
            if kind in ("torch", "accelerator"):
                tensor = torch.from_numpy(array)
                if array.dtype.kind == "f" and name:
                    tensor = tensor.to(getattr(torch, name))
                given[field], rounded[field] = tensor, tensor.float().numpy() if array.dtype.kind == "f" else array
            else:
                given[field] = array.astype(name) if array.dtype.kind == "f" and name else array
                rounded[field] = given[field].astype(np.float64) if array.dtype.kind == "f" else array
    return given, rounded


def tokens_of(arrays: Arrays, *fields: str) -> list[list[tuple[float, ...]]]:
    """For each response the tokens under the mask: one tuple of the fields each. Fields of [B] are the same for every token."""
    rows, width = arrays["mask"].shape
    return [
        [
            tuple(float(arrays[field][row, at] if arrays[field].ndim == 2 else arrays[field][row]) for field in fields)
            for at in range(width)
            if arrays["mask"][row, at]
        ]
        for row in range(rows)
    ]


def flat(tokens: list[list[tuple[float, ...]]]) -> list[tuple[float, ...]]:
    return [token for response in tokens for token in response]


def measured(settings: Settings | None = None, /, **fields: Any) -> Summary:
    """`summarize`, of which nothing may have failed."""
    summary = summarize(Batch(**fields), settings)
    failed = {name: why for name, why in summary.skipped.items() if "failed" in why}
    assert not failed
    return summary


def number(summary: Summary, name: str) -> float:
    """A metric that must be there and be a number."""
    value = summary.metrics[name]
    assert isinstance(value, float), (name, value, summary.skipped.get(name))
    return value


class _AcceleratorOps(TorchOps):
    """What runs on an accelerator, in main memory."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))


def cut_blocks(monkeypatch: pytest.MonkeyPatch, tokens: int, library: str = "") -> None:
    """From here on blocks have about so many tokens; with `accelerator`, tensors in main memory are computed as on one."""
    for ops in (NumpyOps, arrays_torch_cpu.TorchCpuOps, _AcceleratorOps):
        monkeypatch.setattr(ops, "block_tokens", tokens)
    if library == "accelerator":
        monkeypatch.setattr(arrays_torch_cpu, "TorchCpuOps", _AcceleratorOps)


def close(value: float, expected: float, relative: float = 2e-5, absolute: float = 1e-6) -> bool:
    """Equal but for float32's rounding; NaN equals NaN."""
    if math.isnan(expected) or math.isinf(expected):
        return math.isnan(value) == math.isnan(expected) and (math.isnan(expected) or value == expected)
    return math.isclose(value, expected, rel_tol=relative, abs_tol=absolute)


def quantile(values: list[float], level: float) -> float:
    """Linear between order statistics, from a sorted list."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

"""Array operations on torch, on the input's own device. See `arrays.Ops`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tocsin.batch.arrays_numpy import numbers_of

Array = Any
"""A torch.Tensor."""


class TorchOps:
    """torch on one device; nothing here needs a gradient."""

    block_tokens: int = 1 << 22

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._double = torch.float32 if device.type == "mps" else torch.float64  # Apple's devices have no float64

    def array(self, values: Any) -> Array:
        """The tensor without its graph; numpy arrays, lists and tensors in main memory are copied to the device."""
        if isinstance(values, torch.Tensor):
            return self._tensor(values)
        found = numbers_of(values)
        if found.dtype.kind == "f" and found.dtype.itemsize > 8:
            found = found.astype(np.float64)
        if not found.flags.writeable or any(stride < 0 for stride in found.strides):
            found = found.copy()  # torch warns of the one and refuses the other
        if found.dtype == np.float64 and self._double != torch.float64:
            found = found.astype(np.float32)
        return torch.from_numpy(found).to(self._device)

    def _tensor(self, values: torch.Tensor) -> Array:
        if hasattr(values, "full_tensor"):
            raise TypeError("a sharded tensor: reading it would be a collective operation; pass x.full_tensor()")
        if values.layout != torch.strided or values.is_complex() or values.is_quantized:
            raise TypeError(f"a dense tensor of real numbers was expected, this is {values.layout}, {values.dtype}")
        if values.device not in (self._device, torch.device("cpu")):
            raise ValueError(f"lies on {values.device}, the others on {self._device}")
        return values.detach().to(self._device)

    def hold(self, values: Any) -> Array:
        return self.array(values)

    def floats(self, x: Array) -> Array:
        return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)

    def flags(self, x: Array) -> Array:
        return x if x.dtype == torch.bool else x != 0

    def take(self, x: Array, mask: Array) -> Array:
        return x[mask]

    def places(self, mask: Array) -> Array:
        return torch.nonzero(mask.reshape(-1)).reshape(-1)

    def pick(self, x: Array, places: Array) -> Array:
        return torch.index_select(x.reshape(-1), 0, places)

    def lay(self, x: Array, places: Array | None, shape: tuple[int, ...]) -> Array:
        if places is None:
            return x.reshape(shape)
        found = torch.zeros(shape, dtype=x.dtype, device=self._device)
        found.reshape(-1)[places] = x
        return found

    def repeat(self, x: Array, counts: Array, total: int | None = None) -> Array:
        return torch.repeat_interleave(x, counts, output_size=total)

    def exp(self, x: Array) -> Array:
        return torch.exp(x)

    def expm1(self, x: Array) -> Array:
        return torch.expm1(x)

    def log(self, x: Array) -> Array:
        return torch.log(x)

    def sqrt(self, x: Array) -> Array:
        return torch.sqrt(x)

    def clip(self, x: Array, low: float | None, high: float | None) -> Array:
        return torch.clamp(x, low, high)

    def where(self, condition: Array, x: Any, y: Any) -> Array:
        return torch.where(condition, x, y)

    def is_finite(self, x: Array) -> Array:
        return torch.isfinite(x)

    def full(self, rows: int, value: int) -> Array:
        return torch.full((rows,), value, dtype=torch.int64, device=self._device)

    def count(self, flags: Array) -> Array:
        return torch.count_nonzero(flags).to(self._double)  # a quotient of integers would have the default type, maybe half

    def count_rows(self, flags: Array) -> Array:
        return torch.sum(flags, dim=1, dtype=torch.int64)

    def count_segments(self, flags: Array, counts: Array) -> Array:
        found = torch.zeros(len(counts), dtype=torch.int64, device=self._device)
        return found.index_add_(0, self._rows(counts, len(flags)), flags.to(torch.int64))

    def sum(self, x: Array) -> Array:
        return torch.sum(x, dtype=self._double)

    def dot(self, x: Array, y: Array) -> Array:
        return torch.dot(x.to(self._double), y.to(self._double))

    def moments(self, x: Array) -> tuple[Array, Array]:
        wide = x.to(self._double)
        mean = wide.mean()
        apart = wide - mean
        return mean, torch.dot(apart, apart)

    def max(self, x: Array) -> Array:
        return torch.max(x)

    def min(self, x: Array) -> Array:
        return torch.min(x)

    def segment_sum(self, x: Array, counts: Array) -> Array:
        sums = torch.zeros(len(counts), dtype=self._double, device=self._device)
        return sums.index_add_(0, self._rows(counts, len(x)), x.to(self._double))

    def segment_max(self, x: Array, counts: Array) -> Array:
        found = torch.full((len(counts),), -torch.inf, dtype=x.dtype, device=self._device)
        return found.scatter_reduce_(0, self._rows(counts, len(x)), x, "amax")

    def _rows(self, counts: Array, total: int) -> Array:
        """[total]: the segment of each entry."""
        return torch.repeat_interleave(torch.arange(len(counts), device=self._device), counts, output_size=total)

    def quantiles(self, x: Array, levels: Sequence[float]) -> list[Array]:
        ordered = torch.sort(x).values.to(self._double)  # torch.quantile refuses more than 16 million entries
        found = []
        for level in levels:
            place = level * (len(ordered) - 1)
            low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
            value = torch.where(low == high, low, low + (high - low) * (place - int(place)))
            found.append(torch.where(torch.isnan(ordered[-1]), ordered[-1], value))  # NaN is sorted last
        return found

    def top(self, x: Array, k: int) -> Array:
        return torch.topk(x, k, sorted=False).values

    def join(self, parts: Sequence[Array]) -> Array:
        return torch.cat(list(parts))

    def stack(self, scalars: Sequence[Array]) -> Array:
        return torch.stack(list(scalars))

    def numbers(self, scalars: Sequence[Any]) -> list[float]:
        tensors = [value for value in scalars if isinstance(value, torch.Tensor)]
        copied = iter(
            torch.stack([value.to(self._device, self._double).reshape(()) for value in tensors]).tolist() if tensors else ()
        )
        return [next(copied) if isinstance(value, torch.Tensor) else float(value) for value in scalars]

"""Array operations for torch tensors in main memory: numpy's, on the same memory, as it is faster there. See `arrays.Ops`."""

from __future__ import annotations

from typing import Any

import torch

from tocsin.batch.arrays_numpy import Array, NumpyOps
from tocsin.batch.arrays_torch import TorchOps


class TorchCpuOps(NumpyOps):
    """numpy inside, tensors outside: what `lay` makes is a tensor again."""

    def __init__(self) -> None:
        self._torch = TorchOps(torch.device("cpu"))

    def array(self, values: Any) -> Array:
        """A view of a tensor; halves, which numpy is slow with or does not know, as float32."""
        found: Array = _numpy(self.hold(values))
        return found

    def hold(self, values: Any) -> Any:
        """Halves stay the tensors that they are: a block is made float32 when it is taken, so that no whole array ever is."""
        if not isinstance(values, torch.Tensor):
            return super().array(values)
        held = self._torch.array(values)
        return held if held.is_floating_point() and held.element_size() < 4 else _numpy(held)

    def floats(self, x: Any) -> Array:
        return super().floats(_numpy(x))

    def flags(self, x: Any) -> Array:
        return super().flags(_numpy(x))

    def take(self, x: Any, mask: Array) -> Array:
        return super().take(_numpy(x), mask)

    def pick(self, x: Any, places: Array) -> Array:
        return super().pick(_numpy(x), places)

    def repeat(self, x: Any, counts: Array, total: int | None = None) -> Array:
        return super().repeat(_numpy(x), counts)

    def lay(self, x: Array, places: Array | None, shape: tuple[int, ...]) -> Any:
        return torch.from_numpy(super().lay(x, places, shape))


def _numpy(x: Any) -> Any:
    """The same memory as a numpy array; of halves, and floats that are smaller still, a float32 copy."""
    if not isinstance(x, torch.Tensor):
        return x
    known = not x.is_floating_point() or x.dtype in (torch.float32, torch.float64)
    return (x if known else x.float()).numpy()

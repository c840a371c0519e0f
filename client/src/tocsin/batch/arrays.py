"""The few array operations that measures use, on numpy and on torch. A measure written with `Ops` runs where its input lies.

Token arrays are one-dimensional here: the tokens under the mask, response after response. Halves are made float32 before any
difference, sums are float64 (float32 where a device has no float64), and nothing warns: a non-finite input gives a non-finite
result, and that is an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

Array = Any


class Ops(Protocol):
    """One array library on one device. Arrays in and out are its own; scalars are arrays of one value."""

    block_tokens: int
    """How many tokens a block should have: cache-sized on a processor, large on an accelerator."""

    def array(self, values: Any) -> Array:
        """Anything array-like, on this device; a view where possible. Raises ValueError or TypeError for what is none."""

    def hold(self, values: Any) -> Array:
        """As `array`, for token arrays: may stay in a form that only `floats`, `flags`, `take`, `pick` and `repeat` know."""

    def floats(self, x: Array) -> Array:
        """float32 of halves and whole numbers; float32 and float64 as they are."""

    def flags(self, x: Array) -> Array:
        """bool: x != 0."""

    def take(self, x: Array, mask: Array) -> Array:
        """[n]: the entries of x under the mask, in order."""

    def places(self, mask: Array) -> Array:
        """[n]: where a mask of any shape is true, as indices into it laid flat. On a device this waits for it: once a block."""

    def pick(self, x: Array, places: Array) -> Array:
        """[n]: these entries of x laid flat. For many arrays of one shape this is cheaper than `take`."""

    def lay(self, x: Array, places: Array | None, shape: tuple[int, ...]) -> Array:
        """The opposite of `pick`: this shape, with x at these places and 0 (False) elsewhere. None: x is all of it."""

    def repeat(self, x: Array, counts: Array, total: int | None = None) -> Array:
        """[sum(counts)]: each entry of x as often as its count. With `total` = sum(counts) nobody waits for the device."""

    def exp(self, x: Array) -> Array: ...

    def expm1(self, x: Array) -> Array:
        """exp(x) - 1 without the loss near 0: for k3, which float32 would drown in rounding where it is small."""

    def log(self, x: Array) -> Array: ...

    def sqrt(self, x: Array) -> Array: ...

    def clip(self, x: Array, low: float | None, high: float | None) -> Array:
        """NaN stays NaN."""

    def where(self, condition: Array, x: Any, y: Any) -> Array: ...

    def is_finite(self, x: Array) -> Array: ...

    def full(self, rows: int, value: int) -> Array:
        """[rows], whole numbers, all the same."""

    def count(self, flags: Array) -> Array:
        """How many are true."""

    def count_rows(self, flags: Array) -> Array:
        """[rows] of [rows, T]: how many are true in each."""

    def count_segments(self, flags: Array, counts: Array) -> Array:
        """[rows]: how many are true in consecutive segments of these lengths."""

    def sum(self, x: Array) -> Array:
        """In float64; 0 for none."""

    def dot(self, x: Array, y: Array) -> Array:
        """Sum of products, in float64."""

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Mean, and sum of (x - mean)^2; differences and sums in float64. NaN for an empty array."""

    def max(self, x: Array) -> Array:
        """NaN if there is one. Raises for an empty array."""

    def min(self, x: Array) -> Array: ...

    def segment_sum(self, x: Array, counts: Array) -> Array:
        """[rows]: sums of consecutive segments of these lengths, in float64; 0 for an empty one."""

    def segment_max(self, x: Array, counts: Array) -> Array:
        """[rows]: maxima of consecutive segments; -inf for an empty one."""

    def quantiles(self, x: Array, levels: Sequence[float]) -> list[Array]:
        """Quantiles by linear interpolation between order statistics; NaN if there is a NaN. Raises for an empty array."""

    def top(self, x: Array, k: int) -> Array:
        """[k]: the largest, in any order."""

    def join(self, parts: Sequence[Array]) -> Array:
        """One array of several."""

    def stack(self, scalars: Sequence[Array]) -> Array:
        """[n] of n scalars."""

    def numbers(self, scalars: Sequence[Any]) -> list[float]:
        """All scalars as Python numbers, in one copy from the device."""


def ops_of(values: Sequence[Any]) -> Ops:
    """The operations for these inputs: torch if there is a tensor among them, else numpy.

    On the device of the first tensor that lies on an accelerator; the others are taken there if they lie in main memory.
    """
    torch: Any = sys.modules.get("torch")  # a tensor can only come from a torch that is loaded
    tensors = [value for value in values if isinstance(value, torch.Tensor)] if torch is not None else []
    if not tensors:
        from tocsin.batch.arrays_numpy import NumpyOps

        return NumpyOps()
    from tocsin.batch.arrays_torch import TorchOps
    from tocsin.batch.arrays_torch_cpu import TorchCpuOps

    devices = [tensor.device for tensor in tensors if not hasattr(tensor, "full_tensor") and tensor.device.type != "meta"]
    device = next((device for device in devices if device.type != "cpu"), None)
    return TorchCpuOps() if device is None else TorchOps(device)

"""Arrays of any kind as numpy arrays.

A check runs by hand or once at the start of a job, so it may copy to the CPU; what must never happen is a difference at low
precision. torch is never imported here: a tensor is known by its methods, so the checks work without torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BLOCK: Final = 1 << 20
"""Elements that are widened at a time, so that the copies of a large tensor stay small."""

_NUMERIC: Final = frozenset("fiub")
_EXOTIC: Final = ("bfloat16", "float8_", "float6_", "float4_")
"""Names of float types that numpy knows only through an extension (ml_dtypes); they widen exactly to float32."""


class CheckInputError(ValueError):
    """What a check was given cannot be compared: the message says what and where.

    ValueError
        CheckInputError
            FileError    (tocsin.checks.files) the same, with the place in a file
    """


def numeric(values: Any, what: str) -> NDArray[Any]:
    """`values` (numpy, torch, JAX, nested lists) as a numpy array of a boolean, integer or float type.

    Floats narrower than 32 bits are widened to float32, which is exact; others keep their type. `what` names the argument in
    errors. Raises CheckInputError for a sharded tensor, ragged rows, text, objects and complex numbers.
    """
    if hasattr(values, "full_tensor"):  # DTensor: reading it is a collective operation, so the caller decides
        raise CheckInputError(f"{what}: a sharded tensor; pass {what}.full_tensor()")
    if hasattr(values, "detach"):
        values = _from_torch(values, what)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise CheckInputError(f"{what}: not an array of numbers: {error}") from None
    narrow = array.dtype.kind == "f" and array.dtype.itemsize < 4
    if narrow or (array.dtype.kind == "V" and array.dtype.name.startswith(_EXOTIC)):
        array = array.astype(np.float32)
    if array.dtype.kind not in _NUMERIC:
        raise CheckInputError(f"{what}: expected numbers, got an array of {array.dtype.name}")
    return array


def _from_torch(tensor: Any, what: str) -> NDArray[Any]:
    try:
        tensor = tensor.detach().cpu()
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()
        array: NDArray[Any] = tensor.numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:  # meta, sparse and quantised tensors
        raise CheckInputError(f"{what}: a tensor that cannot be read: {error}") from None
    return array


def rows_of(values: Any, what: str) -> NDArray[Any]:
    """`values` as a [responses, positions] array; a single response may come as one row. Raises CheckInputError."""
    array = numeric(values, what)
    if array.ndim == 1:
        array = array[np.newaxis, :]
    if array.ndim != 2:
        raise CheckInputError(f"{what}: expected [responses, positions], got {array.ndim} dimensions {array.shape}")
    return array


def mask_of(values: Any, shape: tuple[int, ...], what: str = "mask") -> Bools:
    """`values` as a boolean mask of this shape: non-zero means "counts". None means that everything counts.

    Raises CheckInputError for another shape and for NaN, which is neither.
    """
    if values is None:
        return np.ones(shape, dtype=np.bool_)
    mask = rows_of(values, what)
    if mask.shape != shape:
        raise CheckInputError(f"{what}: shape {mask.shape}, but the logprobs have {shape}")
    if mask.dtype.kind == "f" and np.isnan(mask).any():
        raise CheckInputError(f"{what}: holds NaN")
    flags: Bools = mask != 0
    return flags


def blocks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The elements of an array in order, BLOCK at a time."""
    flat = array.reshape(-1)
    for begin in range(0, flat.size, BLOCK):
        yield flat[begin : begin + BLOCK]

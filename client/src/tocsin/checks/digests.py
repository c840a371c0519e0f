"""Digests of tensors by value: equal values give equal digests, whatever type stores them.

    f:4096x1024:9f86d081884c7d659a2feaa0c55ad015      kind, shape, BLAKE2b-128 of the values

Floats are hashed as float32 where that is exact (so bfloat16, float16, float32 and float64 of the same values agree), else as
float64; -0 counts as 0 and every NaN as the same NaN. Whole numbers are hashed as int64 under the kind i, booleans under b.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.rounding import bfloat16, float16
from tocsin.checks.values import CheckInputError, blocks, numeric

AsType = Literal["float32", "bfloat16", "float16"]
AS_TYPES: Final = ("float32", "bfloat16", "float16")
_DIGEST: Final = re.compile(r"([fib]):(scalar|\d+(?:x\d+)*):([0-9a-f]{32})")


def digests(state: Mapping[str, Any], as_type: AsType | None = None, ignore: Sequence[str] = ()) -> dict[str, str]:
    """The digest of each tensor of a state dict (numpy or torch), in its order.

    `as_type` rounds floats to this type first: say "bfloat16" for float32 master weights whose copies in the engine are
    bfloat16. Names that fit a pattern of `ignore` ("*._extra_state") are left out. Costs two seconds per
    GB on one core. Raises CheckInputError, with the name, for what is no array of numbers.
    """
    check_type(as_type)
    check_state(state, "state")
    return {str(name): digest(numeric(values, str(name)), as_type) for name, values in state.items() if not fits(name, ignore)}


def check_type(as_type: str | None) -> None:
    """Raises CheckInputError for a type that is not one of AS_TYPES."""
    if as_type is not None and as_type not in AS_TYPES:
        raise CheckInputError(f"as_type: expected one of {', '.join(AS_TYPES)}, got {as_type!r}")


def check_state(state: Any, what: str) -> None:
    """Raises CheckInputError for what is no mapping from names to tensors."""
    if not isinstance(state, Mapping):
        raise CheckInputError(f"{what}: expected a mapping from names to tensors, got {type(state).__name__}")


def fits(name: Any, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of these patterns with * and ?."""
    return any(fnmatchcase(str(name), pattern) for pattern in patterns)


def digest(array: NDArray[Any], as_type: AsType | None = None) -> str:
    """The digest of one array of numbers."""
    hashed = hashlib.blake2b(digest_size=16)
    array = rounded(array, as_type)
    kind = kind_of(array)
    wide = kind == "f" and not _fits_float32(array)
    for block in blocks(array):
        hashed.update(_canonical(block, kind, wide).data)
    return f"{kind}:{shape_text(array.shape)}:{hashed.hexdigest()}"


def rounded(array: NDArray[Any], as_type: AsType | None) -> NDArray[Any]:
    """A float array rounded to a type and widened again; anything else as it is."""
    if as_type is None or array.dtype.kind != "f":
        return array
    if as_type == "bfloat16":
        return bfloat16(array)
    if as_type == "float16":
        return float16(array)
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def kind_of(array: NDArray[Any]) -> str:
    """f, i or b."""
    return {"f": "f", "b": "b"}.get(array.dtype.kind, "i")


def shape_text(shape: tuple[int, ...]) -> str:
    """`4096x1024`, or `scalar`."""
    return "x".join(map(str, shape)) or "scalar"


def parsed(text: Any, name: str) -> tuple[str, str]:
    """Kind and shape of a digest. Raises CheckInputError if it is none."""
    match = _DIGEST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise CheckInputError(f"{name}: {str(text)[:60]!r} is no digest of tocsin.checks.digests")
    return match[1], match[2]


def _fits_float32(array: NDArray[Any]) -> bool:
    if array.dtype.itemsize <= 4:
        return True
    with np.errstate(over="ignore"):
        return all(bool(np.array_equal(block.astype(np.float32), block, equal_nan=True)) for block in blocks(array))


def _canonical(block: NDArray[Any], kind: str, wide: bool) -> NDArray[Any]:
    if kind == "b":
        return block.astype(np.uint8)
    if kind == "i":
        return block.astype("<i8")
    values = np.array(block, dtype="<f8" if wide else "<f4")
    values += 0  # -0 + 0 is 0
    if (nans := np.isnan(values)).any():
        values[nans] = np.nan
    return values

"""The token arrays of a batch: which of them have the batch's shape."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tocsin.batch.arrays import Ops, ops_of
from tocsin.batch.checked import FLAGS, PER_RESPONSE, Tokens
from tocsin.batch.inputs import TOKEN_FIELDS, Batch

_SPREAD: Final = ("advantages", "raw_advantages")
"""Per-response fields that may also be token arrays."""


def check_tokens(batch: Batch, problems: dict[str, str]) -> Tokens:
    """The token arrays of one shape: the mask's, or that of most of them. What does not fit goes to `problems`.

    A mask (or lengths, when packed) that cannot be used takes all token arrays with it: without it nobody knows which of
    their entries mean anything. Raises nothing for what is in the batch.
    """
    given = {name: getattr(batch, name) for name in (*TOKEN_FIELDS, *PER_RESPONSE, "lengths")}
    given = {name: value for name, value in given.items() if value is not None}
    ops = ops_of(list(given.values()))
    arrays: dict[str, Any] = {}
    for name, value in given.items():
        try:
            arrays[name] = ops.hold(value)
        except Exception as error:
            # Whatever a foreign array type may raise: it becomes the reason why the field is left out.
            problems[name] = f"{name} is no array of numbers: {type(error).__name__}: {error}"[:300]
    lengths = _lengths(ops, arrays.pop("lengths", None), problems)
    for key in ("lengths", "mask"):
        if key in problems:
            return _nothing(ops, arrays, f"not used, as {key} was left out: {problems[key]}", problems)
    shape, source = _expected(arrays, lengths)
    if "mask" in arrays and tuple(arrays["mask"].shape) != shape:
        problems["mask"] = _wrong(arrays["mask"], shape, source)
        return _nothing(ops, arrays, f"not used, as mask was left out: {problems['mask']}", problems)
    rows = len(lengths) if lengths is not None else shape[0] if shape else 0
    token: dict[str, Any] = {}
    per_row: dict[str, Any] = {}
    for name, array in arrays.items():
        found = tuple(array.shape)
        if name in _SPREAD and found == (rows,) == shape and lengths != [1] * rows:
            problems[name] = f"packed tokens and responses are {rows} both: it may be one value for each of either"
        elif name in PER_RESPONSE and shape is not None and found in ((rows,), (rows, 1)):
            per_row[name] = array.reshape(rows)
        elif found == shape and name != "first_minibatch":
            token[name] = array
        else:
            expected = f"[B] = [{rows}]" if name == "first_minibatch" else None
            problems[name] = _wrong(array, shape, source, expected, name in _SPREAD and shape is not None)
    mask = token.pop("mask", None)
    if mask is not None:
        mask = ops.flags(mask)
    if not token and mask is None:
        for name in per_row:
            problems[name] = "one value per response, and no token array or mask says which tokens it is for"
        per_row = {}
    return Tokens(ops, rows, token, per_row, mask, lengths)


def _nothing(ops: Ops, arrays: dict[str, Any], reason: str, problems: dict[str, str]) -> Tokens:
    for name in arrays:
        problems.setdefault(name, reason)
    return Tokens(ops, 0, {}, {}, None, None)


def _lengths(ops: Ops, array: Any, problems: dict[str, str]) -> list[int] | None:
    if array is None:
        return None
    if array.ndim != 1:
        problems["lengths"] = f"shape {_text(array.shape)}, expected [B]"
        return None
    lengths = array.tolist()
    wrong = next((at for at, length in enumerate(lengths) if not 0 <= length < 2**53 or length != int(length)), None)
    if wrong is not None:
        problems["lengths"] = f"entry {wrong} is {lengths[wrong]}, expected whole numbers of tokens"
        return None
    return [int(length) for length in lengths]


def _expected(arrays: dict[str, Any], lengths: list[int] | None) -> tuple[tuple[int, ...] | None, str]:
    """The shape of the batch's token arrays, and what says so; None if nothing does."""
    if lengths is not None:
        return (sum(lengths),), "lengths"
    if "mask" in arrays and arrays["mask"].ndim == 2:
        return tuple(arrays["mask"].shape), "the mask"
    shapes = Counter(
        tuple(array.shape)
        for name, array in arrays.items()
        if array.ndim == 2 and name != "mask" and name not in FLAGS - {"loss_mask"}
    )
    if not shapes:
        return None, "nothing"
    shape, votes = shapes.most_common(1)[0]  # of several, the first that was met
    return shape, f"{votes} of {sum(shapes.values())} token arrays"


def _wrong(array: Any, shape: tuple[int, ...] | None, source: str, expected: str | None = None, or_rows: bool = False) -> str:
    found = f"shape {_text(array.shape)}"
    if shape is None:
        return f"{found}, expected [B, T], or packed [N] with lengths"
    kind = "[B, T]" if len(shape) == 2 else "[N]"
    wanted = expected or f"{kind} = {_text(shape)}" + (" or one value per response" if or_rows else "")
    return f"{found}, expected {wanted} by {source}"


def _text(shape: Any) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"

"""Logprobs saved by trainers and rollout engines, for `tocsin-check consistency`.

Two kinds of files, told apart by their content (gzip is opened):

.npz     arrays [responses, positions] under these names
.jsonl   one response a line, lists under these names; rows may differ in length. NeMo RL writes each value as a batch of one
         ([[...]]), which is unwrapped.

    who computed them      names, the first that is there
    trainer                train, trainer, old_log_probs (verl), prev_logprobs (NeMo RL), old_per_token_logps (TRL), prox_logp
                           (AReaL), logprobs, log_probs (slime)
    rollout engine         rollout, rollout_log_probs (verl, slime), generation_logprobs (NeMo RL), sampling_per_token_logps
                           (TRL), logprobs (AReaL, open-instruct), log_probs
    trainer, once more     again
    mask                   mask, response_mask, token_loss_mask, completion_mask, loss_mask; none: every position counts
    mask of whole rows     sample_loss_mask
    tokens                 token_ids, tokens, response_tokens: where both files have them they must be the same

One file may hold both sides; then at most one of them may be called `logprobs` or `log_probs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.files import FileError, field, is_npz, read_npz, read_rows
from tocsin.checks.values import Bools, CheckInputError, Floats, numeric

ONE_SIDE: Final = ("logprobs", "log_probs")
TRAINER: Final = ("train", "trainer", "old_log_probs", "prev_logprobs", "old_per_token_logps", "prox_logp")
ROLLOUT: Final = ("rollout", "rollout_log_probs", "generation_logprobs", "sampling_per_token_logps")
AGAIN: Final = ("again",)
MASK: Final = ("mask", "response_mask", "token_loss_mask", "completion_mask", "loss_mask")
SAMPLE_MASK: Final = ("sample_loss_mask",)
TOKENS: Final = ("token_ids", "tokens", "response_tokens")


@dataclass(frozen=True)
class Keys:
    """Names given by hand instead of those above."""

    train: str | None = None
    rollout: str | None = None
    mask: str | None = None


@dataclass(frozen=True)
class Row:
    """One response of a file."""

    place: str
    """`line 3` or `row 2`."""
    logprobs: Mapping[str, Floats]
    """By side: trainer, rollout, again."""
    mask: Bools | None
    tokens: NDArray[Any] | None


@dataclass(frozen=True)
class Compared:
    """What `consistency` takes: [responses, positions], short rows filled up under a mask of zeros."""

    a: Floats
    b: Floats | None
    c: Floats
    mask: Bools


def read_two(train: Path, rollout: Path | None, repeat: Path | None, keys: Keys) -> Compared:
    """The logprobs of a trainer's file and an engine's (or of one file with both), and of a second evaluation by the trainer.

    Masks of all files apply together. Raises FileError with the place for what is missing, unreadable or does not fit together.
    """
    trainer_names: tuple[str, ...] = (keys.train,) if keys.train else (*TRAINER, *ONE_SIDE)
    rollout_names: tuple[str, ...] = (keys.rollout,) if keys.rollout else (*ROLLOUT, *ONE_SIDE)
    if rollout is None:
        sides = {"trainer": trainer_names, "rollout": rollout_names}
        ours = read_file(train, sides, ("trainer", "rollout"), keys, {"again": AGAIN})
        theirs, other = ours, train
    else:
        ours = read_file(train, {"trainer": trainer_names}, ("trainer",), keys, {"again": AGAIN})
        theirs, other = read_file(rollout, {"rollout": rollout_names}, ("rollout",), keys, {}), rollout
        _same_responses(train, ours, other, theirs)
    again = None
    if repeat is not None:
        again = read_file(repeat, {"again": trainer_names}, ("again",), keys, {})
        _same_responses(train, ours, repeat, again)
    elif all("again" in row.logprobs for row in ours):
        again = ours
    files = [rows for rows in (ours, theirs, again) if rows is not None]
    masks = [_common_mask([rows[number] for rows in files]) for number in range(len(ours))]
    width = max((len(row.logprobs["trainer"]) for row in ours), default=0)
    compared = Compared(
        a=_filled([row.logprobs["trainer"] for row in ours], width),
        b=None if again is None else _filled([row.logprobs["again"] for row in again], width),
        c=_filled([row.logprobs["rollout"] for row in theirs], width),
        mask=np.zeros((len(ours), width), dtype=np.bool_),
    )
    for number, mask in enumerate(masks):
        compared.mask[number, : len(mask)] = mask
    if not compared.mask.any():
        raise FileError(
            train, "", "no token to compare: the mask is empty" + ("" if rollout is None else f", or that of {rollout} is")
        )
    return compared


def read_file(
    path: Path, sides: Mapping[str, tuple[str, ...]], wanted: Iterable[str], keys: Keys, optional: Mapping[str, tuple[str, ...]]
) -> list[Row]:
    """The responses of a file. `sides` says under which names to look for whose logprobs; the `wanted` must be there."""
    mask_names = (keys.mask,) if keys.mask else MASK
    names = {**optional, **sides}
    if is_npz(path):
        arrays = read_npz(path)
        found = _found(path, "", arrays, names, wanted)
        rows = _npz_rows(path, arrays, found, _named_mask(path, "", arrays, mask_names, keys.mask))
    else:
        rows = [
            _json_row(path, number, row, _found(path, f"line {number}", row, names, wanted), mask_names, keys.mask)
            for number, row in read_rows(path)
        ]
    if not rows:
        raise FileError(path, "", "holds no responses")
    return rows


def _found(
    path: Path, place: str, row: Mapping[str, Any], names: Mapping[str, tuple[str, ...]], wanted: Iterable[str]
) -> dict[str, str]:
    found = {side: name for side, candidates in names.items() if (name := field(row, candidates)) is not None}
    trainer, rollout = found.get("trainer"), found.get("rollout")
    guessed = trainer in ONE_SIDE and rollout in ONE_SIDE and len(names["rollout"]) > 1
    if trainer is not None and (trainer == rollout or guessed):
        del found["rollout"]  # the names of one side do not say whose they are
    for side in wanted:
        if side not in found:
            expected = ", ".join(name for name in names[side] if name != trainer)
            there = ", ".join(sorted(map(str, row))[:12]) or "nothing"
            raise FileError(path, place, f"no logprobs of the {side}: expected one of {expected}; there is {there}")
    return found


def _named_mask(path: Path, place: str, row: Mapping[str, Any], names: tuple[str, ...], given: str | None) -> str | None:
    name = field(row, names)
    if name is None and given is not None:
        raise FileError(path, place, f"no mask under {given!r}")
    return name


def _npz_rows(path: Path, arrays: Mapping[str, NDArray[Any]], found: Mapping[str, str], mask_name: str | None) -> list[Row]:
    sides = {side: _matrix(path, name, arrays[name]) for side, name in found.items()}
    shape = next(iter(sides.values())).shape
    mask = _matrix(path, mask_name, arrays[mask_name]) if mask_name else None
    tokens_name, sample_name = field(arrays, TOKENS), field(arrays, SAMPLE_MASK)
    tokens = _matrix(path, tokens_name, arrays[tokens_name]) if tokens_name else None
    names = {**{name: sides[side] for side, name in found.items()}, mask_name or "": mask, tokens_name or "": tokens}
    for name, array in names.items():
        if array is not None and array.shape != shape:
            first = next(iter(found.values()))
            raise FileError(path, f"key {name!r}", f"shape {array.shape}, but {first!r} has {shape}")
    flags = None if mask is None else _flags(path, f"key {mask_name!r}", mask)
    if sample_name is not None:
        whole = _list(path, f"key {sample_name!r}", arrays[sample_name])
        if len(whole) != shape[0]:
            raise FileError(path, f"key {sample_name!r}", f"{len(whole)} values for {shape[0]} rows")
        kept = _flags(path, f"key {sample_name!r}", whole)[:, np.newaxis]
        flags = np.broadcast_to(kept, shape) if flags is None else flags & kept
    return [
        Row(
            place=f"row {number}",
            logprobs={side: array[number].astype(np.float64) for side, array in sides.items()},
            mask=None if flags is None else flags[number],
            tokens=None if tokens is None else tokens[number],
        )
        for number in range(shape[0])
    ]


def _matrix(path: Path, name: str, values: NDArray[Any]) -> NDArray[Any]:
    try:
        array = numeric(values, name)
    except CheckInputError as error:
        raise FileError(path, f"key {name!r}", str(error)) from None
    if array.ndim == 1:
        array = array[np.newaxis, :]
    if array.ndim != 2:
        raise FileError(path, f"key {name!r}", f"expected [responses, positions], got shape {array.shape}")
    return array


def _json_row(
    path: Path, number: int, row: Mapping[str, Any], found: Mapping[str, str], mask_names: tuple[str, ...], given: str | None
) -> Row:
    place = f"line {number}"
    logprobs = {side: _list(path, f"{place}, {name}", row[name]).astype(np.float64) for side, name in found.items()}
    first = next(iter(found))
    length = len(logprobs[first])

    def fits(name: str, values: Sequence[Any] | NDArray[Any]) -> None:
        if len(values) != length:
            raise FileError(path, place, f"{len(values):,} values in {name}, but {length:,} in {found[first]}")

    for side, values in logprobs.items():
        fits(found[side], values)
    mask = None
    if (name := _named_mask(path, place, row, mask_names, given)) is not None:
        flags = _list(path, f"{place}, {name}", row[name])
        fits(name, flags)
        mask = _flags(path, f"{place}, {name}", flags)
    if (name := field(row, SAMPLE_MASK)) is not None:
        flags = _list(path, f"{place}, {name}", row[name] if isinstance(row[name], list) else [row[name]])
        if len(flags) != 1:
            raise FileError(path, place, f"{len(flags):,} values in {name}, expected one for the row")
        kept = bool(_flags(path, f"{place}, {name}", flags)[0])
        mask = (np.ones(length, dtype=np.bool_) if mask is None else mask) & kept
    tokens = None
    if (name := field(row, TOKENS)) is not None and isinstance(row[name], list):
        tokens = np.asarray(_unwrapped(row[name]), dtype=np.object_)
        fits_tokens = tokens.ndim == 1 and len(tokens) == length
        tokens = tokens if fits_tokens else None  # prompt and response ids beside logprobs of the response alone
    return Row(place, logprobs, mask, tokens)


def _list(path: Path, place: str, values: Any) -> NDArray[Any]:
    """A list of numbers; null is NaN, and a list that holds one list is that list."""
    values = _unwrapped(values)
    if isinstance(values, list):
        values = [float("nan") if value is None else value for value in values]
    try:
        array = numeric(values, "values")
    except CheckInputError as error:
        raise FileError(path, place, str(error)) from None
    if array.ndim != 1:
        raise FileError(path, place, f"expected a list of numbers, got shape {array.shape}")
    return array


def _unwrapped(values: Any) -> Any:
    return values[0] if isinstance(values, list) and len(values) == 1 and isinstance(values[0], list) else values


def _flags(path: Path, place: str, values: NDArray[Any]) -> Bools:
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise FileError(path, place, "a mask that holds NaN or null")
    flags: Bools = values != 0
    return flags


def _same_responses(path: Path, rows: Sequence[Row], other: Path, others: Sequence[Row]) -> None:
    if len(rows) != len(others):
        raise FileError(other, "", f"{len(others):,} responses, but {path} has {len(rows):,}")
    for row, twin in zip(rows, others, strict=True):
        length = len(next(iter(row.logprobs.values())))
        found = len(next(iter(twin.logprobs.values())))
        if found != length:
            raise FileError(other, twin.place, f"{found:,} logprobs, but {path}, {row.place} has {length:,}")
        if row.tokens is None or twin.tokens is None:
            continue
        different = np.flatnonzero(np.asarray(row.tokens != twin.tokens))
        if row.mask is not None:
            different = different[row.mask[different]]
        if len(different):
            at = int(different[0])
            raise FileError(
                other,
                twin.place,
                f"token {at} is {twin.tokens[at]}, but {row.tokens[at]} in {path}, {row.place}: not the same tokens",
            )


def _common_mask(rows: Sequence[Row]) -> Bools:
    mask = np.ones(len(next(iter(rows[0].logprobs.values()))), dtype=np.bool_)
    for row in rows:
        if row.mask is not None:
            mask = mask & row.mask
    return mask


def _filled(rows: Sequence[Floats], width: int) -> Floats:
    filled = np.full((len(rows), width), np.nan)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled

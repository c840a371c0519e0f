"""A batch whose arrays have been looked at: what has the wrong shape or type is left out, with the reason, and never raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tocsin.batch.arrays import Ops
from tocsin.batch.inputs import TOKEN_FIELDS, Batch
from tocsin.batch.tokens import TokenBlock

Vector = npt.NDArray[Any]
PER_RESPONSE: Final = ("advantages", "raw_advantages", "first_minibatch")
"""Fields of [B] (advantages also of [B, T]) that are spread over the tokens of a response."""
FLAGS: Final = frozenset({"mask", "loss_mask", "first_minibatch"})
"""Fields that are bool in a block."""
SAMPLE_FIELDS: Final = {
    "rewards": "rewards",
    "prompts": "group",
    "correct": "correct",
    "components": "components",
    "domains": "domains",
    "kept": "kept",
    "response_lengths": "lengths",
    "truncated": "truncated",
    "responses": "responses",
    "prompt_texts": "prompt_texts",
}
"""Per-response field of `Batch` -> where `Samples` has it."""


@dataclass(frozen=True)
class Tokens:
    """The token arrays of a batch, all of one shape."""

    ops: Ops
    rows: int
    """B"""
    arrays: Mapping[str, Any]
    """By field: [B, T], or [N] when packed."""
    per_row: Mapping[str, Any]
    """By field: [B]."""
    mask: Any
    """[B, T] or [N], bool; None = every token counts."""
    lengths: Sequence[int] | None
    """B whole numbers when packed, else None."""

    def fields(self) -> frozenset[str]:
        """What a block will have."""
        return frozenset(self.arrays) | frozenset(self.per_row)

    def blocks(self) -> Iterator[TokenBlock]:
        """The batch in blocks of whole responses, in order; none for a batch without token arrays or without responses."""
        if not self.arrays and self.mask is None:
            return
        if self.lengths is None:
            yield from self._padded()
        else:
            yield from self._packed(self.lengths)

    def laid(self, x: Any) -> Any:
        """[n] values, one per token under the mask, in the shape of the token arrays; 0 where the mask is 0."""
        some = self.mask if self.mask is not None else next(iter(self.arrays.values()))
        return self.ops.lay(x, None if self.mask is None else self.ops.places(self.mask), tuple(some.shape))

    def _padded(self) -> Iterator[TokenBlock]:
        some = self.mask if self.mask is not None else next(iter(self.arrays.values()))
        width = int(some.shape[1])
        step = max(1, self.ops.block_tokens // max(1, width))
        for first in range(0, self.rows, step):
            last = min(first + step, self.rows)
            part = slice(first, last)
            mask = None if self.mask is None else self.mask[part]
            counts = self.ops.full(last - first, width) if mask is None else self.ops.count_rows(mask)
            yield self._block(part, part, mask, counts, (last - first) * width)

    def _packed(self, lengths: Sequence[int]) -> Iterator[TokenBlock]:
        first = start = 0
        while first < self.rows:
            last, stop = first + 1, start + lengths[first]
            while last < self.rows and stop - start + lengths[last] <= self.ops.block_tokens:
                stop += lengths[last]
                last += 1
            counts = self.ops.array(np.array(lengths[first:last], dtype=np.int64))
            mask = None if self.mask is None else self.mask[start:stop]
            if mask is not None:
                counts = self.ops.count_segments(mask, counts)
            yield self._block(slice(first, last), slice(start, stop), mask, counts, stop - start)
            first, start = last, stop

    def _block(self, rows: slice, part: slice, mask: Any, counts: Any, size: int) -> TokenBlock:
        ops = self.ops
        places = None if mask is None else ops.places(mask)
        tokens = size if places is None else len(places)
        if places is None or tokens == size:
            taken = {name: array[part].reshape(-1) for name, array in self.arrays.items()}
        else:
            taken = {name: ops.pick(array[part], places) for name, array in self.arrays.items()}
        for name, array in self.per_row.items():
            taken[name] = ops.repeat(array[rows], counts, tokens)
        for name, array in taken.items():
            if name in FLAGS:
                taken[name] = ops.flags(array)
            elif name != "token_ids":
                taken[name] = ops.floats(array)
        return TokenBlock(ops, rows.start, counts, taken, tokens)


@dataclass(frozen=True)
class Samples:
    """The per-response arrays of a batch, on the host: [S] is small."""

    size: int
    """S; B when there is no per-response array, 0 when there is nothing at all."""
    rewards: Vector | None = None
    """[S], float64"""
    group: Vector | None = None
    """[S], whole numbers: index into `prompt_ids`."""
    prompt_ids: Sequence[str] = ()
    """[P]: one id per group, in order of appearance."""
    correct: Vector | None = None
    """[S], bool"""
    components: Mapping[str, Vector] = field(default_factory=dict)
    """{component: [S]}, float64"""
    domains: Sequence[str] | None = None
    kept: Vector | None = None
    """[S], bool"""
    lengths: Vector | None = None
    """[S], whole numbers as float64; taken from the mask when S = B and none were given."""
    truncated: Vector | None = None
    """[S], bool"""
    responses: Sequence[str] | None = None
    prompt_texts: Sequence[str] | None = None
    token_ids: Sequence[Vector] | None = None
    """[S] arrays of ids under the mask, when S = B: for measures that compare responses. Copied to the host when first used."""


@dataclass(frozen=True)
class Checked:
    """A batch that measures can rely on."""

    batch: Batch
    """Losses and norms as vectors of float64, gradients and scores as given; None where they are no numbers."""
    ops: Ops
    tokens: Tokens
    samples: Samples
    problems: Mapping[str, str]
    """By field (`components[name]` for one component): why it was left out."""

    def has(self, name: str) -> bool:
        """Whether a field is there and usable."""
        if name in self.problems:
            return False
        if name in TOKEN_FIELDS or name in PER_RESPONSE:
            return name == "mask" or name in self.tokens.fields()
        if name in SAMPLE_FIELDS:
            found = getattr(self.samples, SAMPLE_FIELDS[name])
            return found is not None and not (isinstance(found, Mapping) and not found)
        value = getattr(self.batch, name)
        return value is not None and not (isinstance(value, Mapping) and not value)


def check(batch: Batch) -> Checked:
    """Look at every array of a batch. Raises nothing for what is in it."""
    # Imported here, as they build the types above.
    from tocsin.batch.check_rest import check_rest
    from tocsin.batch.check_samples import check_samples
    from tocsin.batch.check_tokens import check_tokens

    problems: dict[str, str] = {}
    tokens = check_tokens(batch, problems)
    samples = check_samples(batch, tokens, problems)
    return Checked(check_rest(batch, problems), tokens.ops, tokens, samples, problems)

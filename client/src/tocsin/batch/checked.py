"""A batch whose arrays have been looked at: what has the wrong shape or type is left out, with the reason, and never raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy.typing as npt

from tocsin.batch.arrays import Ops
from tocsin.batch.inputs import TOKEN_FIELDS, Batch
from tocsin.batch.tokens import TokenBlock

Vector = npt.NDArray[Any]
_PER_RESPONSE: Final = ("advantages", "raw_advantages", "first_minibatch")
"""Fields of [B] (advantages also of [B, T]) that are spread over the tokens of a response."""
_FLAGS: Final = frozenset({"mask", "loss_mask", "first_minibatch"})


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
    """[B, T], bool; None = every token counts."""
    lengths: Any
    """[B] when packed, else None."""

    def fields(self) -> frozenset[str]:
        """What a block will have."""
        return frozenset(self.arrays) | frozenset(self.per_row)

    def blocks(self) -> Iterator[TokenBlock]:
        """The batch in blocks of whole responses, in order."""
        raise NotImplementedError  # A


@dataclass(frozen=True)
class Samples:
    """The per-response arrays of a batch, on the host: [S] is small."""

    size: int
    """S; 0 when there is no per-response array."""
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
    """[S] arrays of ids under the mask, when S = B: for measures that compare responses."""


@dataclass(frozen=True)
class Checked:
    """A batch that measures can rely on."""

    batch: Batch
    """As given: for fields that need no check (norms, losses)."""
    ops: Ops
    tokens: Tokens
    samples: Samples
    problems: Mapping[str, str]
    """By field: why it was left out."""

    def has(self, name: str) -> bool:
        """Whether a field is there and usable."""
        if name in self.problems:
            return False
        if name in TOKEN_FIELDS or name in _PER_RESPONSE:
            return name == "mask" or name in self.tokens.fields()
        value = getattr(self.batch, name)
        return value is not None and not (isinstance(value, Mapping) and not value)


def check(batch: Batch) -> Checked:
    """Look at every array of a batch. Raises nothing for what is in it."""
    raise NotImplementedError  # A

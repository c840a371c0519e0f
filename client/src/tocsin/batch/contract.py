"""The seam of the batch package: what a measure is, and how its results come out.

Token measures fold blocks of tokens (a block is small enough for the processor's cache, so many passes over it cost little);
sample measures are functions of whole per-response arrays. Both yield scalars that may still lie on the device; `summarize`
copies all of them in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from tocsin.batch.arrays import Ops
from tocsin.batch.inputs import Settings
from tocsin.batch.tokens import TokenBlock
from tocsin.wire import Groups

Scalar = Any
"""A Python number, or an array of one value on the batch's device; None = nothing to compute it from (an empty batch)."""


class OnHost(NamedTuple):
    """A result that is made of scalars once they are on the host: where their values decide whether there is a result at all.

    A share of the tokens with positive advantage is such a one: on a device nobody knows yet whether there are any.
    """

    inputs: tuple[Scalar, ...]
    compute: Callable[..., float | None]
    """Called with the inputs as Python floats, in this order; None = nothing to compute it from."""
    why_none: str | None = None
    """What to tell in `skipped` when it gives None; None = an empty batch explains itself."""


def quotient(part: Scalar, whole: Scalar) -> OnHost:
    """part / whole; None when the whole is 0."""
    return OnHost((part, whole), _divide)


def _divide(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass
class Found:
    """What a measure found."""

    metrics: dict[str, Scalar | OnHost | Mapping[str, Scalar | OnHost] | None] = field(default_factory=dict)
    """By canonical name; a mapping for metrics with a label."""
    skipped: dict[str, str] = field(default_factory=dict)
    """What could not be computed, by metric or measure, and why, for a person."""
    groups: Groups | None = None


class TokenMeasure(Protocol):
    """Made anew for each batch, fed its blocks in order, asked once."""

    name: ClassVar[str]
    """As told in `Summary.skipped` when inputs are missing."""
    needs: ClassVar[tuple[str, ...]]
    """Fields of `Batch`, all of which must be there (`mask` always is: a missing one means all tokens). A field that a measure
    can also do without is asked for with `block.has`, and stands in an attribute `uses`: a tuple like this one."""

    def __init__(self, ops: Ops, settings: Settings) -> None: ...

    def add(self, block: TokenBlock) -> None:
        """Fold one block; it holds at least one response, maybe no token."""

    def finish(self) -> Found:
        """The results; None values when there was no token at all."""

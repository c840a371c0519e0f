"""A2: the advantages as they weigh the update, token by token."""

from __future__ import annotations

from typing import ClassVar

from tocsin.batch.arrays import Ops
from tocsin.batch.contract import Found, Scalar, quotient
from tocsin.batch.inputs import Settings
from tocsin.batch.moments import Spread
from tocsin.batch.tokens import TokenBlock


class Advantages:
    """The advantages that enter the loss, over response tokens (one value per response counts once for each of its tokens).

    advantage_mean, _std, _max, _min     the deviation is that of the population
    positive_advantage_token_ratio       share of tokens with A > 0
    zero_advantage_token_ratio           share of tokens with A exactly 0: of tokens, where the group measures count groups

    Mask: under it only. No token: None. A NaN makes the first four NaN and counts in neither share. The mean is weighted by
    length: in GRPO it is away from 0 as soon as good and bad responses differ in length. What must be 0 is another mean: see
    advantage_group_mean_max.
    """

    name: ClassVar[str] = "advantages"
    needs: ClassVar[tuple[str, ...]] = ("advantages",)

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._spread = Spread(ops)
        self._positive: Scalar = 0
        self._zero: Scalar = 0

    def add(self, block: TokenBlock) -> None:
        advantages = block["advantages"]
        self._spread.add(advantages)
        self._positive = self._positive + self._ops.count(advantages > 0)
        self._zero = self._zero + self._ops.count(advantages == 0)

    def finish(self) -> Found:
        tokens = self._spread.count
        return Found(
            {
                **self._spread.metrics("advantage"),
                "positive_advantage_token_ratio": quotient(self._positive, tokens),
                "zero_advantage_token_ratio": quotient(self._zero, tokens),
            }
        )


class RawAdvantages:
    """raw_advantage_mean, _std, _max, _min: the advantages before batch normalisation, over response tokens.

    Masks, empty batches and NaN as in `Advantages`.
    """

    name: ClassVar[str] = "raw_advantages"
    needs: ClassVar[tuple[str, ...]] = ("raw_advantages",)

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._spread = Spread(ops)

    def add(self, block: TokenBlock) -> None:
        self._spread.add(block["raw_advantages"])

    def finish(self) -> Found:
        return Found(self._spread.metrics("raw_advantage"))

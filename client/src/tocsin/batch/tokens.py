"""The tokens of a batch under the mask, in blocks of whole responses.

The mask is applied before anything else, so that what lies under its zeros (-inf, NaN, garbage) meets no arithmetic.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from tocsin.batch.arrays import Ops

Array = Any
LOG_CLAMP: Final = 20.0
"""Log ratios are clamped to +-20 before exp: e^20 is beyond any ratio that means something, and float32 holds its square."""


class TokenBlock:
    """Some responses of a batch: [n] tokens under the mask, response after response.

    Attributes named like fields of `Batch` are [n] arrays of floats, or None where the batch has none. Derived arrays are made
    once, when first used, and shared by all measures.
    """

    def __init__(self, ops: Ops, first: int, counts: Array, arrays: dict[str, Array], tokens: int) -> None:
        self.ops = ops
        self.first = first
        """Index of the block's first response in the batch."""
        self.counts = counts
        """[rows]: tokens of each response."""
        self.tokens = tokens
        """n, as a Python number."""
        self._arrays = arrays

    @property
    def rows(self) -> int:
        """Responses in this block."""
        return len(self.counts)

    def has(self, *names: str) -> bool:
        """Whether the batch has these fields."""
        return all(name in self._arrays for name in names)

    def __getitem__(self, name: str) -> Array:
        """[n]: a field of the batch. Raises KeyError where the batch has none."""
        return self._arrays[name]

    def mean_per_row(self, x: Array) -> Array:
        """[rows]: the mean over each response's tokens; NaN for a response without any (see `filled`)."""
        return self.ops.segment_sum(x, self.counts) / self.counts

    @cached_property
    def filled(self) -> Array:
        """[rows], bool: responses with at least one token."""
        return self.counts > 0

    @cached_property
    def gap(self) -> Array:
        """l = old - rollout logprob, nats."""
        return self["old_logprobs"] - self["rollout_logprobs"]

    @cached_property
    def abs_gap(self) -> Array:
        """|l|."""
        return abs(self.gap)

    @cached_property
    def weight(self) -> Array:
        """w = exp(clamp(l, +-20)): the untruncated importance weight of a token."""
        return self.ops.exp(self.ops.clip(self.gap, -LOG_CLAMP, LOG_CLAMP))

    @cached_property
    def k3(self) -> Array:
        """w - l - 1 of each token, nats: a KL estimate that is never negative. By expm1, as w - 1 would be rounding near 0.

        The fuse of w holds for l as well above +20, where w - l - 1 would turn negative for l > e^20.
        """
        low = self.ops.clip(self.gap, None, LOG_CLAMP)
        return self.ops.clip(self.ops.expm1(self.ops.clip(low, -LOG_CLAMP, None)) - low, 0.0, None)  # rounding may go below 0

    @cached_property
    def row_gap(self) -> Array:
        """[rows], float64: sum of l over each response; 0 for a response without tokens."""
        return self.ops.segment_sum(self.gap, self.counts)

    @cached_property
    def log_ratio(self) -> Array:
        """new - old logprob, nats."""
        return self["new_logprobs"] - self["old_logprobs"]

    @cached_property
    def ratio(self) -> Array:
        """exp(clamp(new - old, +-20)): the policy ratio of PPO."""
        return self.ops.exp(self.ops.clip(self.log_ratio, -LOG_CLAMP, LOG_CLAMP))

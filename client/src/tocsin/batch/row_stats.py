"""Statistics over the responses of a batch: vectors of [B] that lie on the batch's device."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.contract import OnHost, Scalar
from tocsin.batch.moments import Spread


def row_metrics(ops: Ops, name: str, x: Array) -> dict[str, Scalar]:
    """{name}_mean, _std, _max, _min over [n] values, n > 0. The deviation is divided by n - 1, and None for one value."""
    spread = Spread(ops)
    spread.add(x)
    found = spread.metrics(name)
    found[f"{name}_std"] = OnHost((spread.squares, spread.max, spread.min), partial(_sample_std, len(x)))
    return found


def _sample_std(n: int, squares: float, highest: float, lowest: float) -> float | None:
    if n < 2:
        return None
    return 0.0 if highest == lowest and math.isfinite(highest) else math.sqrt(squares / (n - 1))


def effective_ratio(mean: Scalar, variance: Scalar) -> OnHost:
    """(sum w)^2 / (n sum w^2) of weights w >= 0: effective sample size / n, in (0, 1]. None when all weights are 0.

    From their mean and population variance: mean^2 / (mean^2 + variance), which is exactly 1 without any spread.
    """
    return OnHost((mean, variance), _effective_ratio, "all weights are 0")


def _effective_ratio(mean: float, variance: float) -> float | None:
    return 1.0 / (1.0 + variance / mean**2) if mean else None


def share(ops: Ops, flags: Array, n: int) -> Scalar:
    """How many of n are true, as a ratio."""
    return ops.count(flags) / n


class Weighted(NamedTuple):
    """Mean, population variance and deviation of values that count more than once."""

    mean: Scalar
    variance: Scalar
    std: OnHost


def weighted(ops: Ops, x: Array, counts: Array, total: Scalar) -> Weighted:
    """Of [n] values that count `counts` times each; total = sum(counts) > 0."""
    mean = ops.dot(x, counts) / total
    variance = ops.dot((x - mean) ** 2, counts) / total
    return Weighted(mean, variance, OnHost((variance, ops.max(x), ops.min(x)), _population_std))


def _population_std(variance: float, highest: float, lowest: float) -> float:
    return 0.0 if highest == lowest and math.isfinite(highest) else math.sqrt(variance)

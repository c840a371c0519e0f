"""Statistics over the responses of a batch: vectors of [B] that lie on the batch's device."""

from __future__ import annotations

import math
from functools import partial

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


def effective_ratio(total: Scalar, squares: Scalar, n: int) -> OnHost:
    """(sum w)^2 / (n sum w^2), in (0, 1]: effective sample size / n. None when all weights are 0."""
    return OnHost((total, squares), partial(_effective_ratio, n), "all weights are 0")


def _effective_ratio(n: int, total: float, squares: float) -> float | None:
    if squares == 0.0:
        return None
    ratio = total * (total / squares) / n
    return min(ratio, 1.0) if ratio == ratio else ratio  # rounding may go above 1


def share(ops: Ops, flags: Array, n: int) -> Scalar:
    """How many of n are true, as a ratio."""
    return ops.count(flags) / n


def weighted_spread(ops: Ops, x: Array, counts: Array, total: Scalar) -> tuple[Scalar, OnHost]:
    """Mean and population deviation of [n] values that count `counts` times each; total = sum(counts) > 0."""
    mean = ops.dot(x, counts) / total
    squares = ops.dot((x - mean) ** 2, counts)
    return mean, OnHost((squares, total, ops.max(x), ops.min(x)), _population_std)


def _population_std(squares: float, total: float, highest: float, lowest: float) -> float:
    return 0.0 if highest == lowest and math.isfinite(highest) else math.sqrt(squares / total)

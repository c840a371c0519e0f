"""The Beta-binomial formulas of the zero-variance signals."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, lgamma, sqrt
from typing import Final

MODEL_ERROR: Final = 0.05
"""What the model itself may be off by, in share of groups; part of every z."""


def compare(observed: float, expected: float, variance: float) -> tuple[float, float, float]:
    """Expected share, excess, and z with the model error in it."""
    excess = observed - expected
    return expected, excess, excess / sqrt(variance + MODEL_ERROR * MODEL_ERROR)


def group_probabilities(size: int, a: float, b: float) -> tuple[float, float]:
    """Chance that all of `size` responses are right, and that all are wrong, under Beta(a, b)."""
    common = lgamma(a + b) - lgamma(a + b + size)
    return exp(lgamma(a + size) - lgamma(a) + common), exp(lgamma(b + size) - lgamma(b) + common)


def after_histories(
    size: int, alpha: float, beta: float, histories: Iterable[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """`group_probabilities` of each prompt with k successes in n tries, as two lists; (0, 0) leaves the prior as it is."""
    unseen_right, unseen_wrong = group_probabilities(size, alpha, beta)
    rights, wrongs = [], []
    for won, tries in histories:
        if not tries:
            rights.append(unseen_right)
            wrongs.append(unseen_wrong)
            continue
        a, b = alpha + won, beta + tries - won  # written out, as it runs for every group of every record
        total = a + b
        common = lgamma(total) - lgamma(total + size)
        rights.append(exp(lgamma(a + size) - lgamma(a) + common))
        wrongs.append(exp(lgamma(b + size) - lgamma(b) + common))
    return rights, wrongs

"""The Beta-binomial formulas of the zero-variance signals."""

from __future__ import annotations

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

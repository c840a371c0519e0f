"""The line and the level against fractions; Mann-Kendall is tested with the signal that uses it most (ess_decline)."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Provenance
from collector.series import Series
from collector.signals.trend import LEAST, explained, level, line

NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0]))


def fitted(values: list[float]) -> tuple[Fraction, Fraction, Fraction]:
    """(slope, mean, share of the variance) without rounding."""
    exact = [Fraction(value) for value in values]
    count = len(exact)
    zero = Fraction(0)
    middle, mean = Fraction(count - 1, 2), sum(exact, zero) / count
    spread = sum(((place - middle) ** 2 for place in range(count)), zero)
    slope = sum(((place - middle) * (value - mean) for place, value in enumerate(exact)), zero) / spread
    variance = sum(((value - mean) ** 2 for value in exact), zero)
    return slope, mean, slope**2 * spread / variance if variance else zero


@settings(max_examples=300)
@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_line_equals_the_one_of_fractions(samples: list[float]) -> None:
    known = [value for value in samples if math.isfinite(value)]
    found = line(samples)
    if len(known) < LEAST:
        assert found is None
        return
    assert found is not None
    slope, mean, share = fitted(known)
    scale = max(map(abs, known))
    assert found[0] == pytest.approx(float(slope), rel=1e-9, abs=1e-12 * scale)
    assert found[1] == pytest.approx(float(mean), rel=1e-9, abs=1e-12 * scale)
    assert list(found[2]) == known
    if share and max(known) - min(known) > 1e-6 * scale:
        assert explained(*found) == pytest.approx(float(share), abs=1e-6)


@pytest.mark.parametrize("huge", [1.7e308, 1e308, 9e306])
def test_numbers_that_cannot_be_added_or_multiplied_give_no_line_or_a_finite_one(huge: float) -> None:
    for signs in ([1.0] * 20, [(-1.0) ** n for n in range(20)], [1.0] * 10 + [-1.0] * 10):
        found = line([sign * huge for sign in signs])
        assert found is None or (math.isfinite(found[0]) and math.isfinite(found[1]))


@settings(max_examples=200)
@given(st.lists(st.one_of(NUMBERS, st.sampled_from([1.7e308, -1.7e308])), min_size=1, max_size=12), st.integers(0, 12))
def test_level_is_the_mean_of_what_is_finite(samples: list[float], step: int) -> None:
    series = Series(Provenance.SIGNAL)
    for at, value in enumerate(samples):
        series.put(at, value)
    known = [Fraction(value) for value in samples[: step + 1][-3:] if math.isfinite(value)]
    found = level(series, step, 3)
    if not known:
        assert found is None
    else:
        assert found == pytest.approx(float(sum(known) / len(known)), rel=1e-9, abs=1e-9 * max(map(abs, map(float, known))))

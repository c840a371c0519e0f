"""Functions of windows that take another way for long windows give what they give for short ones, bit for bit."""

from __future__ import annotations

import math
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import functions

SAMPLES = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]), st.floats(min_value=-1.0, max_value=1.0), st.floats()
)


def bits(value: float) -> bytes:
    return b"nan" if value != value else struct.pack("d", value)


@pytest.mark.parametrize("name", ["min", "max"])
@given(samples=st.lists(SAMPLES, min_size=1, max_size=24), copies=st.integers(1, 12))
def test_extremes_of_long_windows(name: str, samples: list[float], copies: int) -> None:
    window = samples * copies
    function, choose = functions.WINDOW_FUNCTIONS[name], min if name == "min" else max
    numbers = [value for value in window if value == value]
    expected = choose(numbers) if numbers else math.nan
    found = function(array("d", window))
    assert found is not None and bits(found) == bits(expected)

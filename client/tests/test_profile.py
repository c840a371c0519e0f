"""The profile of generated examples holds here too, also where only the client's tests are run."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st


@given(st.none())
def test_no_example_is_measured_by_the_clock(nothing: None) -> None:
    assert settings.default is not None and settings.default.deadline is None

"""Windows: exact, bounded, in step order whatever the order of arrival."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collector.model import Provenance
from collector.series import SLACK, Series, window


def series(*pairs: tuple[int, float]) -> Series:
    made = Series(Provenance.EXACT)
    for step, value in pairs:
        made.put(step, value)
    return made


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(allow_nan=False)), max_size=60))
def test_put_keeps_the_last_value_of_each_step_in_order(pairs: list[tuple[int, float]]) -> None:
    made = series(*pairs)
    expected = sorted(dict(pairs).items())
    assert list(made.steps) == [step for step, _ in expected]
    assert list(made.values) == [value for _, value in expected]


def test_put_says_whether_the_step_is_new() -> None:
    made = series((1, 1.0), (3, 3.0))
    assert made.put(2, 2.0)
    assert not made.put(2, 2.5)
    assert made.at(2) == 2.5


@given(st.sets(st.integers(0, 40)), st.integers(-1, 41), st.integers(0, 10), st.integers(0, 3))
def test_window_ends_at_the_step(steps: set[int], at: int, count: int, offset: int) -> None:
    made = series(*[(step, float(step)) for step in sorted(steps)])
    seen = [float(step) for step in sorted(steps) if step <= at]
    seen = seen[: max(0, len(seen) - offset)]
    assert list(window(made, at, count, offset)) == (seen[-count:] if count else [])


@given(st.sets(st.integers(0, 40)), st.integers(0, 41))
def test_cut_forgets_the_step_and_later_ones(steps: set[int], at: int) -> None:
    made = series(*[(step, float(step)) for step in sorted(steps)])
    made.cut(at)
    assert list(made.steps) == sorted(step for step in steps if step < at)
    assert list(made.values) == [float(step) for step in made.steps]


def test_trim_keeps_the_newest_and_the_arrays() -> None:
    made = series(*[(step, float(step)) for step in range(100)])
    append = made.values.append  # the hot path holds on to it
    made.trim(10)
    assert list(made.steps) == list(range(90, 100))
    append(7.0)
    assert made.values[-1] == 7.0


def test_absent_step_has_no_value() -> None:
    made = series((1, 1.0), (3, 3.0))
    assert made.at(2) is None
    assert Series(Provenance.RAW).at(0) is None
    assert SLACK > 0

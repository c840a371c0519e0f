"""Whatever is given to a check, it returns a report or raises CheckInputError: a check may stand in a training job."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tocsin.checks import CheckInputError, Report, accumulation, consistency, digests, mask_table, weight_sync


class Strange:
    """Has a length and nothing else."""

    def __len__(self) -> int:
        return 3


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=3), st.binary(max_size=3),
    st.just(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)), st.builds(Strange), st.builds(object),
)  # fmt: skip
KINDS = ("?", "i1", "u8", "f2", "f4", "f8", "c8", "M8[s]", "m8[s]", "S2", "U2", "O")
ARRAYS = st.sampled_from(KINDS).flatmap(
    lambda kind: arrays.arrays(
        kind, st.sampled_from([(), (0,), (3,), (2, 3), (2, 3, 1)]), elements=PLAIN if kind == "O" else None
    )
)
VALUES = st.one_of(
    PLAIN,
    ARRAYS,
    st.lists(PLAIN, max_size=3),
    st.lists(st.lists(st.floats(), max_size=3), max_size=3),
    arrays.arrays("f8", (2, 3)),
    st.lists(st.integers(0, 1), min_size=3, max_size=3),
)
STATES = st.one_of(
    VALUES, st.dictionaries(st.one_of(st.sampled_from(["a", "b", "m.a"]), st.integers(0, 1)), VALUES, max_size=3)
)


def answered(check: Any, *given: Any, **how: Any) -> None:
    try:
        report = check(*given, **how)
    except CheckInputError as error:
        assert str(error)
    else:
        assert isinstance(report, Report)
        assert str(report).startswith(report.check)
        assert report.plain()["passed"] is report.passed


@settings(max_examples=200)
@given(VALUES, VALUES, VALUES, VALUES)
def test_consistency(a: Any, b: Any, c: Any, mask: Any) -> None:
    answered(consistency, a, b, c, mask)
    answered(consistency, a, None, a)


@settings(max_examples=200)
@given(STATES, STATES)
def test_accumulation(first: Any, second: Any) -> None:
    answered(accumulation, first, second, 2, 3)
    answered(accumulation, first, first)


@settings(max_examples=200)
@given(VALUES, VALUES, VALUES, VALUES, VALUES)
def test_mask_table(tokens: Any, sources: Any, attention: Any, loss: Any, reward: Any) -> None:
    answered(mask_table, tokens, sources, attention, loss, reward)
    answered(mask_table, tokens, ["policy"] * 3, [1, 1, 1], [0, 1, 1], reward)


@settings(max_examples=200)
@given(STATES, STATES)
def test_weight_sync(source: Any, target: Any) -> None:
    answered(weight_sync, source, target)
    answered(weight_sync, source, target, {"m.": ""}, as_type="bfloat16")
    answered(weight_sync, source, source)
    try:
        assert all(isinstance(text, str) for text in digests(source).values())
    except CheckInputError as error:
        assert str(error)


def test_numbers_as_wide_as_they_come() -> None:
    wide = np.array([[-1.0, -2.0]], dtype=np.longdouble)
    assert consistency(wide, wide, wide).passed
    assert accumulation(wide, wide).passed
    assert weight_sync({"w": wide}, {"w": wide.astype(np.float32)}).passed

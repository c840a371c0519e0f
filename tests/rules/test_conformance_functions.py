"""The rule language on the conformance vectors: values of functions, comparisons and absence.

Where a vector says that we differ (`diverge`), the test asserts our documented difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rules import functions
from rules.compile import Compiler
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Frame, NothingFires
from rules.language import LanguageError, parse
from rules.operands import Scope
from tests.kit import vectors
from tests.kit.conformance import condition, fill, number, quantity, same, series_cases


def test_f01_changes() -> None:
    vector = vectors.alerting()["F01"]
    for case, name in series_cases(vector):
        run = fill(vector["series"][name], vector["dt_s"], vector["at_s"])
        same(quantity(f"changes(x[{case['window_s']}s])", run), case["expect"][name])


def test_f03_changes_with_nan() -> None:
    vector = vectors.alerting()["F03"]
    for case, name in series_cases(vector):
        run = fill(vector["series"][name], vector["dt_s"], vector["at_s"])
        same(quantity(f"changes(x[{case['window_s']}s])", run), case["expect"][name])


def test_f04_delta_is_last_minus_first_without_extrapolation() -> None:
    vector = vectors.alerting()["F04"]
    assert "diverge" in vector
    case = vector["cases"][0]
    for name, expected in case["expect_raw_last_minus_first"].items():
        run = fill(vector["series"][name], vector["dt_s"], vector["at_s"])
        same(quantity(f"delta(x[{case['window_s']}s])", run), expected)


def test_f05_the_last_difference_is_delta_over_two_records() -> None:
    vector = vectors.alerting()["F05"]
    case = vector["range_cases"][0]
    for at, expected in zip(case["at_s"], case["expect"]["a"], strict=True):
        run = fill(vector["series"]["a"], vector["dt_s"], at)
        same(quantity("delta(x[2])", run), expected)


def test_f06_slope_is_per_step() -> None:
    vector = vectors.alerting()["F06"]
    for case in vector["cases"]:
        for name, expected in case["expect_per_step"].items():
            run = fill(vector["series"][name], vector["dt_s"], vector["at_s"])
            same(quantity(f"slope(x[{case['window_s']}s])", run), expected)
            same(quantity(f"slope(x[{case['last_n']}])", run), expected)
            same(quantity(f"slope(x[{case['window_s']}s]) / {vector['dt_s']}", run), case["expect"][name])


def test_f08_slope_through_infinity_is_nan() -> None:
    vector = vectors.alerting()["F08"]
    for case, name in series_cases(vector):
        run = fill(vector["series"][name], vector["dt_s"], vector["at_s"])
        same(quantity(f"slope(x[{case['window_s']}s])", run), case["expect"][name])


def whole(function: Callable[[functions.Samples], float | None], samples: Sequence[Any]) -> float | None:
    return function([value for value in map(number, samples) if value is not None])


@pytest.mark.parametrize("vector_id", ["F10", "F11"])
def test_std_is_the_population_statistic(vector_id: str) -> None:
    vector = vectors.alerting()[vector_id]
    case = vector["cases"][0]
    samples = vector["series"]["a"]
    same(whole(functions.std, samples), case["expect"]["a"], vector["tol"])
    deviation = whole(functions.std, samples)
    assert deviation is not None
    same(deviation**2, case["expect_variance"]["a"], vector["tol"])


def test_f11_a_zscore_on_a_constant_series_is_degenerate() -> None:
    run = fill([*vectors.alerting()["F11"]["series"]["a"], 2.0], 1)
    frame = Frame(run, NothingFires())
    compiled = Compiler(Scope()).condition(parse("zscore(x[4]) > 3"))
    assert compiled is not None
    assert compiled(frame) == UNKNOWN
    assert frame.why.startswith("degenerate")


def test_f12_mad() -> None:
    vector = vectors.alerting()["F12"]
    for case, name in series_cases(vector):
        same(whole(functions.mad, vector["series"][name]), case["expect"][name])


def test_f13_quantile_and_its_error_outside_of_0_to_1() -> None:
    vector = vectors.alerting()["F13"]
    assert "diverge" in vector
    for case in vector["cases"]:
        for name, expected in case["expect"].items():
            run = fill(vector["series"][name], 1)
            expression = f"quantile({case['q']}, x[{len(vector['series'][name])}])"
            if 0 <= case["q"] <= 1:
                same(quantity(expression, run), expected, vector["tol"])
            else:
                compiler = Compiler(Scope())
                assert compiler.quantity(parse(expression)) is None
                assert "outside 0..1" in compiler.errors[0].message


def test_f14_min_max_last_count() -> None:
    vector = vectors.alerting()["F14"]
    for case, name in series_cases(vector):
        samples = vector["series"][name]
        function = functions.WINDOW_FUNCTIONS[case["stat"]]
        same(whole(function, samples), case["expect"][name])
        same(quantity(f"{case['stat']}(x[{len(samples)} steps])", fill(samples, 1)), case["expect"][name])


def test_f15_mean() -> None:
    vector = vectors.alerting()["F15"]
    for case in vector["cases"]:
        for name, expected in case["expect"].items():
            same(whole(functions.mean, vector["series"][name][: case.get("first_n")]), expected)


def test_f16_a_comparison_with_a_non_finite_operand_is_neither_true_nor_false() -> None:
    vector = vectors.alerting()["F16"]
    assert "diverge" in vector
    samples = vector["series"]
    for case in vector["cases"]:
        if case["rhs"] == "NaN":
            with pytest.raises(LanguageError):  # there is no NaN literal to compare with
                compiler = Compiler(Scope(known={"x"}))
                assert compiler.condition(parse(f"x {case['op']} NaN")) is not None
                raise compiler.errors[0]
            continue
        for slot, spelled in enumerate(samples):
            truth = condition(f"x {case['op']} {case['rhs']}", fill(samples, 1, slot))
            value = number(spelled)
            if value is None:
                assert truth == UNKNOWN
            elif not math.isfinite(value):
                assert truth == NON_FINITE
            else:
                assert truth == (TRUE if slot in case["true_at"] else FALSE)


def test_f17_absent() -> None:
    vector = vectors.alerting()["F17"]
    for case in vector["cases"]:
        run = fill(vector["series"].get(case["of"], []), vector["dt_s"], case["at_s"])
        assert condition(f"absent(x[{case['window_s']}s])", run) == (TRUE if case["absent"] else FALSE)


def test_f18_a_value_does_not_outlive_its_record() -> None:
    """Differs from the lookback of the source: a bare metric is UNKNOWN without a sample, a window by time sees it."""
    vector = vectors.alerting()["F18"]
    samples, dt = vector["series"], vector["dt_s"]
    for case in vector["cases"]:
        run = fill(samples, dt, case["at_s"])
        current = case["at_s"] / dt
        carried = current.is_integer() and current < len(samples) and number(samples[int(current)]) is not None
        same(quantity("x", run), samples[int(current)] if carried else None)
    for case in vector["count_cases"]:
        same(quantity(f"count(x[{case['window_s']}s])", fill(samples, dt, case["at_s"])), case["count"])

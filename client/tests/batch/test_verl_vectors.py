"""All inputs and all values of verl's rollout correction, by the names that docs/measures gives them.

verl computes in float32 throughout. Where its numbers are differences of nearly equal ones, the digits that it lost are lost in
the expected values as well, and no rtol brings them back: k3 of one token is 1 + l + ... - l - 1, with an error of an ulp of 1,
and a variance is E[x^2] - E[x]^2, with an error of an ulp of E[x^2]. Those get that much of absolute tolerance, and nothing
more: the slow oracle in float64 holds us to 1e-7 elsewhere, and here too where the input allows it.
"""

from __future__ import annotations

import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit import mismatch_oracle, vectors
from tests.kit.batches import LIBRARIES, assert_close
from tocsin.batch import Batch, Bounds, Settings, summarize
from tocsin.batch.importance import Level, importance_weights
from tocsin.batch.rejection import OPTIONS, rejection_mask

DOCS = Path(__file__).resolve().parents[3] / "docs" / "measures"
ULP = float(np.finfo(np.float32).eps)
RELATIVE = 2e-4
CASES = range(6)
FORMS = [(library, dtype) for library in LIBRARIES for dtype in (np.float32, np.float64)]
forms = pytest.mark.parametrize(("library", "dtype"), FORMS, ids=[f"{a}-{b.__name__}" for a, b in FORMS])


def verl_names(page: str) -> dict[str, list[str]]:
    """The table of verl's names of a page: {verl's: ours, by column}."""
    text = (DOCS / page).read_text(encoding="utf-8").partition("## verl's names")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", cells) for name, cells in rows}


def bounds_of(threshold: str) -> Bounds:
    lower, _, upper = threshold.rpartition("_")
    return (float(lower) if lower else None), float(upper)


class Case:
    """One case of the file, as arrays of one library and type."""

    def __init__(self, number: int, library: str, dtype: Any) -> None:
        cases = vectors.rollout_correction()
        assert len(cases) == len(CASES)
        content = cases[number]
        make = LIBRARIES[library]
        self.mask = np.array(content["response_mask"], dtype=bool)
        self.longest = int(self.mask.sum(1).max())
        self.old = make(np.array(content["old_log_prob"], dtype=np.float32).astype(dtype))
        self.rollout = make(np.array(content["rollout_log_prob"], dtype=np.float32).astype(dtype))
        self.given_mask = make(self.mask)
        self.expected: dict[str, Any] = content["expected"]

    def summarize(self, settings: Settings) -> dict[str, Any]:
        return summarize(Batch(mask=self.given_mask, old_logprobs=self.old, rollout_logprobs=self.rollout), settings).metrics

    def of(self, kind: str) -> dict[tuple[str, ...], Any]:
        """The expected values whose key begins with this kind, by the rest of the key."""
        parts = {tuple(key.split("/")): value for key, value in self.expected.items()}
        return {key[1:]: value for key, value in parts.items() if key[0] == kind}


def check(found: float | None, expected: float, absolute: float, told: str, square: float = 0.0) -> None:
    """`square` > 0 compares squares, whose absolute tolerance it is (deviations)."""
    assert found is not None, told
    if square:
        assert abs(found**2 - expected**2) <= 2 * RELATIVE * expected**2 + square, f"{told}: {found} for {expected}"
    else:
        assert abs(found - expected) <= RELATIVE * abs(expected) + absolute, f"{told}: {found} for {expected}"


@forms
@pytest.mark.parametrize("number", CASES)
def test_off_policy(number: int, library: str, dtype: Any) -> None:
    case = Case(number, library, dtype)
    names = verl_names("mismatch.md")
    expected = case.expected["offpolicy"]
    assert set(names) == set(expected)
    found = case.summarize(Settings())
    for name, value in expected.items():
        check(found[names[name][0]], value, ULP, name)


@forms
@pytest.mark.parametrize("number", CASES)
def test_importance_weights(number: int, library: str, dtype: Any) -> None:
    case = Case(number, library, dtype)
    names = verl_names("importance.md")
    seen = set()
    levels: tuple[Level, ...] = ("token", "sequence")
    for level, threshold in product(levels, ("2.0", "0.5_5.0")):
        value = case.expected[f"is/{level}/{threshold}"]
        bounds = bounds_of(threshold)
        found = case.summarize(Settings(is_bounds=bounds))
        square = 2 * ULP * max(1.0, value["metrics"]["rollout_is_mean"] ** 2)
        for name, number_expected in value["metrics"].items():
            ours = names[name][0 if level == "token" else 1]
            check(found[ours], number_expected, ULP, f"{level} {threshold} {name}", square if name == "rollout_is_std" else 0.0)
            seen.add(name)
        weights = importance_weights(case.old, case.rollout, case.given_mask, level=level, bounds=bounds)
        np.testing.assert_allclose(np.asarray(weights.corrected), np.array(value["weights"]), rtol=RELATIVE, atol=0)
    assert seen == set(names)
    assert len(case.of("is")) == 4


@forms
@pytest.mark.parametrize("number", CASES)
def test_rejection(number: int, library: str, dtype: Any) -> None:
    case = Case(number, library, dtype)
    names = verl_names("rejection.md")
    assert {option for option, _ in case.of("rs")} == set(OPTIONS)
    for (option, threshold), value in case.of("rs").items():
        bounds = bounds_of(threshold)
        found = case.summarize(Settings(rejection={option: bounds}))
        # Errors of single tokens add up in a sum over a response.
        token = 2 * ULP * (case.longest if option.startswith("seq_sum") else 1)
        low, high = mismatch_oracle.interval(option, bounds)
        square = 2 * ULP * min(high, value["metrics"][f"rollout_rs_{option}_max"]) ** 2 + token**2
        for key, number_expected in value["metrics"].items():
            label = option if key.startswith(f"rollout_rs_{option}_") else "all"
            name = key.removeprefix(f"rollout_rs_{option}_").removeprefix("rollout_rs_")
            deviation = square if name == "std" else token**2 if name == "seq_std" else 0.0
            check(found[names[name][0]][label], number_expected, token, f"{option} {name} in {low} .. {high}", deviation)
        left = rejection_mask(case.old, case.rollout, case.given_mask, rejection={option: bounds})
        assert int(np.asarray(left).sum()) == value["kept_tokens"]


@forms
@pytest.mark.parametrize("number", CASES)
def test_rules_together_mask_what_any_of_them_masks(number: int, library: str, dtype: Any) -> None:
    case = Case(number, library, dtype)
    rejection = {option: bounds_of(threshold) for option, threshold in case.of("rs")}
    alone = [
        np.asarray(rejection_mask(case.old, case.rollout, case.given_mask, rejection={o: b})) for o, b in rejection.items()
    ]
    together = np.asarray(rejection_mask(case.old, case.rollout, case.given_mask, rejection=rejection))
    assert (together == np.logical_and.reduce(alone)).all()
    found = case.summarize(Settings(rejection=rejection))
    assert found["rejection_masked_token_ratio"]["all"] == pytest.approx(1 - together.sum() / case.mask.sum())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("number", CASES)
def test_the_oracle_agrees_where_float32_does_not(number: int, library: str) -> None:
    """On verl's inputs in float64 the oracle and we agree to 1e-7, so the tolerances above are verl's rounding and not ours."""
    case = Case(number, library, np.float64)
    old, rollout = np.asarray(case.old), np.asarray(case.rollout)
    responses = [
        [(float(old[row, at]), float(rollout[row, at])) for at in np.flatnonzero(case.mask[row])] for row in range(len(old))
    ]
    rejection = {option: bounds_of(threshold) for option, threshold in case.of("rs")}
    found = case.summarize(Settings(rejection=rejection))
    assert_close(found, mismatch_oracle.mismatch(responses, 1.0), 1e-7, 1e-13)
    assert_close(found, mismatch_oracle.importance(responses, (None, 2.0)), 1e-7, 1e-13)
    assert_close(found, mismatch_oracle.rejection(responses, rejection), 1e-7, 1e-11)
    assert math.isfinite(found["chi2_seq"])

"""A1, rejection rules: against plain Python, alone and together, and bounds without sense."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import mismatch_oracle
from tests.kit.batches import LIBRARIES, Drawn, assert_close, drawn_batches
from tocsin.batch import Batch, Bounds, Settings, summarize
from tocsin.batch.rejection import NAMES, OPTIONS, limits, rejection_mask

RATIOS: tuple[Bounds, ...] = ((0.5, 2.0), (0.9, 1.1), (None, 1.5), (0.7, None))
SIZES: tuple[Bounds, ...] = ((None, 0.05), (None, 1e-5), (1e-6, 0.5), (None, None))
rules = st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=4, unique=True).flatmap(
    lambda options: st.fixed_dictionaries(
        {option: st.sampled_from(RATIOS if option.endswith("k1") else SIZES) for option in options}
    )
)


@settings(max_examples=200)
@given(drawn_batches(least_tokens=1), st.sampled_from(sorted(LIBRARIES)), rules, st.booleans())
def test_as_plain_python_has_it(drawn: Drawn, library: str, rejection: dict[str, Bounds], packed: bool) -> None:
    batch = drawn.packed(library) if packed else drawn.batch(library)
    expected = mismatch_oracle.rejection(drawn.tokens("old_logprobs", "rollout_logprobs"), rejection)
    found = summarize(batch, Settings(rejection=rejection)).metrics
    assert_close(found, expected, 1e-7, 1e-11)
    assert set(NAMES) == {name for name in found if name.startswith("rejection")} == set(expected)


@settings(max_examples=50)
@given(drawn_batches(least_tokens=1), st.sampled_from(sorted(LIBRARIES)), rules)
def test_the_mask_is_what_all_rules_leave(drawn: Drawn, library: str, rejection: dict[str, Bounds]) -> None:
    batch = drawn.batch(library)
    left = rejection_mask(batch.old_logprobs, batch.rollout_logprobs, batch.mask, rejection=rejection)
    assert type(left) is type(batch.old_logprobs)
    kept = np.asarray(left)
    assert kept.dtype == bool
    assert not (kept & ~drawn.mask).any()
    for row, response in enumerate(drawn.tokens("old_logprobs", "rollout_logprobs")):
        expected = [True] * len(response)
        for option, bounds in rejection.items():
            low, high = mismatch_oracle.interval(option, bounds)
            judged = mismatch_oracle.statistic(option, response) if response else []
            expected = [was and low <= value <= high for was, value in zip(expected, judged, strict=True)]
        assert kept[row][drawn.mask[row]].tolist() == expected


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_token_that_is_no_number_is_masked(library: str) -> None:
    make = LIBRARIES[library]
    old = make(np.array([[-1.0, math.nan], [-1.0, -1.0], [-1.0, -math.inf]]))
    rollout = make(np.full((3, 2), -1.0))
    expected = {"token": [[True, False], [True, True], [True, False]], "seq": [[False] * 2, [True] * 2, [False] * 2]}
    for option in OPTIONS:
        left = rejection_mask(old, rollout, rejection={option: (None, 2.0)})
        assert left.tolist() == expected[option.split("_", maxsplit=1)[0]], option
        found = summarize(Batch(old_logprobs=old, rollout_logprobs=rollout), Settings(rejection={option: (None, 2.0)}))
        assert_close(found.metrics["rejection_masked_sequence_ratio"], {option: 2 / 3, "all": 2 / 3})  # type: ignore[arg-type]  # labelled


@pytest.mark.parametrize(
    ("option", "bounds", "expected"),
    [
        ("token_k1", (0.5, 2.0), (math.log(0.5), math.log(2.0))),
        ("token_k1", (None, 4.0), (-math.log(4.0), math.log(4.0))),
        ("seq_sum_k1", (0.5, None), (math.log(0.5), math.inf)),
        ("seq_mean_k2", (None, 0.1), (-math.inf, 0.1)),
        ("seq_max_k3", (0.1, 0.2), (0.1, 0.2)),
        ("token_k3", (None, None), (-math.inf, math.inf)),
    ],
)
def test_what_bounds_mean(option: str, bounds: Bounds, expected: tuple[float, float]) -> None:
    assert limits(option, bounds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("option", "bounds", "told"),
    [
        ("seq_max_k1", (None, 2.0), "unknown rejection option 'seq_max_k1'; there are token_k1"),
        ("k3", (None, 2.0), "unknown rejection option"),
        ("token_k1", (0.0, 2.0), "expected ratios above 0"),
        ("token_k1", (None, -1.0), "expected ratios above 0"),
        ("token_k1", (None, 0.5), "nothing lies between"),
        ("token_k2", (0.5, 0.1), "nothing lies between"),
        ("token_k2", (None, math.nan), "nothing lies between"),
        ("token_k2", 0.1, r"expected \(lower, upper\)"),
        ("token_k2", (0.1,), r"expected \(lower, upper\)"),
        ("token_k2", ("low", 0.1), r"expected \(lower, upper\)"),
    ],
)
def test_bounds_without_sense_cost_their_option(option: str, bounds: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        limits(option, bounds)
    batch = Batch(old_logprobs=np.zeros((1, 2)), rollout_logprobs=np.zeros((1, 2)))
    found = summarize(batch, Settings(rejection={option: bounds, "token_k3": (None, 0.1)}))
    assert told.split(";", maxsplit=1)[0].replace("\\", "") in found.skipped[f"rejection[{option}]"]
    assert found.metrics["rejection_masked_token_ratio"] == {"token_k3": 0.0, "all": 0.0}


def test_no_rule_no_metric() -> None:
    batch = Batch(old_logprobs=np.zeros((1, 2)), rollout_logprobs=np.zeros((1, 2)))
    found = summarize(batch)
    assert not [name for name in found.metrics if name.startswith("rejection")]
    assert found.skipped["rejection"] == "no option in Settings.rejection"
    with pytest.raises(ValueError, match="at least one option"):
        rejection_mask(np.zeros((1, 2)), np.zeros((1, 2)), rejection={})


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_empty_batch_has_every_name_and_no_number(library: str) -> None:
    empty = LIBRARIES[library](np.zeros((2, 3), dtype=np.float32))
    nothing = LIBRARIES[library](np.zeros((2, 3), dtype=bool))
    rejection: dict[str, Bounds] = {"token_k2": (None, 0.1), "seq_sum_k1": (0.5, 2.0)}
    found = summarize(Batch(old_logprobs=empty, rollout_logprobs=empty, mask=nothing), Settings(rejection=rejection)).metrics
    assert set(NAMES) <= set(found)
    for name in NAMES:
        labels = [*rejection, "all"] if "masked" in name else [*rejection]
        assert found[name] == dict.fromkeys(labels), name

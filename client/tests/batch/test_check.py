"""What is taken of a batch and what is left out, with the words that tell it."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from tests.kit.batches import LIBRARIES, block_size
from tocsin.batch import Batch
from tocsin.batch.checked import check

ONES = np.ones((2, 3), dtype=np.float32)


def problems(**fields: Any) -> dict[str, str]:
    return dict(check(Batch(**fields)).problems)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"mask": ONES, "old_logprobs": np.ones((2, 4)), "entropy": np.ones((3, 2))},
            {
                "old_logprobs": "shape [2, 4], expected [B, T] = [2, 3] by the mask",
                "entropy": "shape [3, 2], expected [B, T] = [2, 3] by the mask",
            },
        ),
        (
            {"old_logprobs": ONES, "new_logprobs": ONES, "entropy": np.ones((2, 4))},
            {"entropy": "shape [2, 4], expected [B, T] = [2, 3] by 2 of 3 token arrays"},
        ),
        (
            {"old_logprobs": ONES, "entropy": np.ones((2, 4))},
            {"entropy": "shape [2, 4], expected [B, T] = [2, 3] by 1 of 2 token arrays"},
        ),
        ({"old_logprobs": np.ones(5)}, {"old_logprobs": "shape [5], expected [B, T], or packed [N] with lengths"}),
        (
            {"old_logprobs": ONES, "lengths": [2, 3]},
            {"old_logprobs": "shape [2, 3], expected [N] = [5] by lengths"},
        ),
        (
            {"old_logprobs": ONES, "advantages": np.ones(3)},
            {"advantages": "shape [3], expected [B, T] = [2, 3] or one value per response by 1 of 1 token arrays"},
        ),
        (
            {"old_logprobs": ONES, "first_minibatch": ONES},
            {"first_minibatch": "shape [2, 3], expected [B] = [2] by 1 of 1 token arrays"},
        ),
        ({"advantages": np.ones(2)}, {"advantages": "shape [2], expected [B, T], or packed [N] with lengths"}),
        (
            {"advantages": np.ones(2), "lengths": [3, 4]},
            {"advantages": "one value per response, and no token array or mask says which tokens it is for"},
        ),
        (
            {"old_logprobs": np.ones(2), "advantages": np.ones(2), "lengths": [2, 0]},
            {"advantages": "packed tokens and responses are 2 both: it may be one value for each of either"},
        ),
        (
            {"old_logprobs": ONES, "mask": "110"},
            {"mask": "mask is no array of numbers: TypeError: numbers were expected, these are <U3"},
        ),
        ({"rewards": [1, 2], "correct": [1, 0, 1]}, {"correct": "3 values, expected [S] = [2] by rewards"}),
        (
            {"correct": [1, 0, 1], "kept": [1, 1], "prompts": ["a", "b", "c"]},
            {"kept": "2 values, expected [S] = [3] by 2 of 3 fields"},
        ),
        ({"rewards": np.ones((2, 2))}, {"rewards": "shape [2, 2], expected [S]"}),
        ({"correct": [True, None, False]}, {"correct": "1 of 3 are neither true nor false"}),
        ({"prompts": ["a", None]}, {"prompts": "1 of 2 are None, expected an id for each response"}),
        ({"prompts": "ab"}, {"prompts": "a list with one entry per response was expected, this is str"}),
        ({"responses": ["a", 3]}, {"responses": "entry 1 is int, expected text"}),
        (
            {"rewards": [1, 2], "components": {"a": [1, 2], "b": [1]}},
            {"components[b]": "1 values, expected [S] = [2] by rewards"},
        ),
        ({"components": [1, 2]}, {"components": "a mapping of names to arrays was expected, this is list"}),
        ({"loss": "high"}, {"loss": "TypeError: numbers were expected, these are <U4"}),
        ({"completion_tokens": 1.5}, {"completion_tokens": "TypeError: a whole number was expected, this is 1.5"}),
        ({"grads": {"w": "x"}}, {"grads": "TypeError: [w] is no array of numbers: numbers were expected, these are <U1"}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_what_is_left_out_and_why(fields: dict[str, Any], expected: dict[str, str]) -> None:
    assert {name: reason for name, reason in problems(**fields).items() if name in expected} == expected


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (
            {"mask": np.ones(6)},
            r"not used, as mask was left out: shape \[6\], expected \[B, T\] = \[2, 3\] by 1 of 1 token arrays",
        ),
        ({"mask": object()}, "not used, as mask was left out: mask is no array of numbers"),
        ({"lengths": [3, -1]}, "not used, as lengths was left out: entry 1 is -1, expected whole numbers of tokens"),
        ({"lengths": [3, 1.5]}, "entry 1 is 1.5, expected whole numbers"),
        ({"lengths": [3, math.nan]}, "entry 1 is nan, expected whole numbers"),
        ({"lengths": [[3, 3]]}, r"shape \[1, 2\], expected \[B\]"),
    ],
)
def test_without_its_mask_or_lengths_no_token_is_trusted(broken: dict[str, Any], told: str) -> None:
    """All of them would be counted, padding as well: worse than nothing."""
    checked = check(Batch(**{"old_logprobs": ONES, **broken}))
    assert re.search(told, checked.problems["old_logprobs"])
    assert not checked.tokens.arrays
    assert list(checked.tokens.blocks()) == []
    assert not checked.has("old_logprobs")


@pytest.mark.parametrize("library", LIBRARIES)
def test_blocks_of_a_padded_batch(library: str) -> None:
    make = LIBRARIES[library]
    old = np.array([[1.0, 2.0, 9.0], [9.0, 9.0, 9.0], [3.0, 9.0, 4.0]], dtype=np.float32)
    mask = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]])
    checked = check(Batch(old_logprobs=make(old), mask=make(mask), advantages=make(np.array([0.5, 0.6, 0.7]))))
    (block,) = checked.tokens.blocks()
    assert block["old_logprobs"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert block["advantages"].tolist() == [0.5, 0.5, 0.7, 0.7]
    assert block.counts.tolist() == [2, 0, 2]
    assert (block.first, block.rows, block.tokens) == (0, 3, 4)
    assert checked.samples.lengths is not None
    assert checked.samples.lengths.tolist() == [2.0, 0.0, 2.0]


@pytest.mark.parametrize("library", LIBRARIES)
def test_blocks_of_a_packed_batch_hold_whole_responses(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = LIBRARIES[library]
    lengths = [2, 0, 5, 1, 1]
    values = np.arange(9, dtype=np.float64)
    with block_size(monkeypatch, 3):
        checked = check(Batch(old_logprobs=make(values), lengths=lengths, advantages=make(np.arange(5) * 0.1)))
        blocks = list(checked.tokens.blocks())
    assert [block.counts.tolist() for block in blocks] == [[2, 0], [5], [1, 1]]  # one that is larger than a block is one
    assert [block.first for block in blocks] == [0, 2, 3]
    assert [value for block in blocks for value in block["old_logprobs"].tolist()] == values.tolist()
    assert blocks[1]["advantages"].tolist() == pytest.approx([0.2] * 5)
    assert checked.samples.lengths is not None
    assert checked.samples.lengths.tolist() == lengths


@pytest.mark.parametrize(
    "other",
    [
        np.full((2, 3), -1.5),
        [[-1.5] * 3] * 2,
        np.full((3, 2), -1.5).T,
        np.full((2, 6), -1.5, dtype=np.float16)[:, ::2],
        np.broadcast_to(np.float32(-1.5), (2, 3)),
        torch.full((2, 3), -1.5, dtype=torch.bfloat16, requires_grad=True),
        torch.full((3, 2), -1.5, dtype=torch.float16).t(),
        np.array([[-1.5, -1.5, -1.5], [-1.5, -1.5, -1.5]], dtype=object),
    ],
    ids=lambda array: type(array).__name__,
)
@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_of_all_kinds_meet(library: str, other: Any) -> None:
    checked = check(Batch(old_logprobs=LIBRARIES[library](ONES), new_logprobs=other))
    assert not checked.problems
    (block,) = checked.tokens.blocks()
    assert type(block["old_logprobs"]) is type(block["new_logprobs"])
    assert block.log_ratio.tolist() == [-2.5] * 6


def test_prompts_of_all_kinds_are_grouped_by_their_text() -> None:
    kinds: list[Any] = [
        3,
        3.0,
        np.int64(3),
        torch.tensor(3),
        "3",
        np.str_("3"),
        2.5,
        (1, 2),
        [1, 2],
        torch.tensor([1, 2]),
        True,
    ]
    samples = check(Batch(prompts=kinds)).samples
    assert samples.group is not None
    assert samples.group.tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 4]
    assert samples.prompt_ids == ("3", "2.5", "(1, 2)", "[1, 2]", "True")


@pytest.mark.parametrize(
    "prompts", [np.array([7, 7, 8]), torch.tensor([7, 7, 8]), ["7", "7", "8"], (7, 7, 8), np.array(["7", "7", "8"])]
)
def test_prompts_may_be_an_array(prompts: Any) -> None:
    samples = check(Batch(prompts=prompts)).samples
    assert samples.prompt_ids == ("7", "8")
    assert samples.size == 3


def test_a_whole_prompt_as_an_id_becomes_its_digest() -> None:
    text = "What is the meaning of life? " * 10
    samples = check(Batch(prompts=[text, text, text + "!"])).samples
    assert samples.prompt_ids[0] == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert len(samples.prompt_ids) == 2


def test_lone_surrogates_in_a_prompt_are_text_too() -> None:
    assert len(check(Batch(prompts=["\ud800" * 200])).samples.prompt_ids[0]) == 32


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_are_taken_as_vectors_and_none_as_nan(library: str) -> None:
    make = LIBRARIES[library]
    samples = check(Batch(rewards=make(np.array([[1.0], [0.5]])), response_lengths=[3, None])).samples
    assert samples.rewards is not None
    assert samples.rewards.tolist() == [1.0, 0.5]
    assert samples.lengths is not None
    assert math.isnan(samples.lengths[1])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("library", LIBRARIES)
def test_token_ids_of_each_response_under_the_mask(library: str, packed: bool) -> None:
    make = LIBRARIES[library]
    ids, mask = np.array([[5, 6, 7], [8, 9, 0]]), np.array([[True, True, False], [True, False, True]])
    if packed:
        batch = Batch(token_ids=make(ids.reshape(-1)), mask=make(mask.reshape(-1)), lengths=[3, 3], rewards=[1, 2])
    else:
        batch = Batch(token_ids=make(ids), mask=make(mask), rewards=[1, 2])
    rows = check(batch).samples.token_ids
    assert rows is not None
    assert [row.tolist() for row in rows] == [[5, 6], [8, 0]]
    assert rows[-1].tolist() == [8, 0]
    assert [row.tolist() for row in rows[:1]] == [[5, 6]]
    with pytest.raises(IndexError):
        rows[2]


def test_token_ids_keep_their_digits() -> None:
    """float32 has no 2^24 + 1: ids that pass through it would collide."""
    large = np.array([[2**24 + 1, 2**24]])
    (block,) = check(Batch(token_ids=large)).tokens.blocks()
    assert block["token_ids"].tolist() == large[0].tolist()


def test_filtered_groups_leave_token_arrays_alone() -> None:
    """S responses generated, B trained on: what needs S = B is not made up."""
    samples = check(Batch(old_logprobs=ONES, mask=ONES, token_ids=ONES.astype(np.int64), rewards=[1.0, 0.0, 0.5])).samples
    assert samples.size == 3
    assert samples.lengths is None
    assert samples.token_ids is None

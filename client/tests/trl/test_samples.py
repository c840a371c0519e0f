"""The responses of a step: ids of groups, rewards, lengths. No trainer needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.trl.samples import batches_of, digest, group_ids, responses_of
from tocsin.trl.trace import Generation


def generation(rewards: Any, **given: Any) -> Generation:
    """A generation of this process alone, of one-token completions unless told otherwise."""
    table = np.asarray(rewards, dtype=np.float64)
    rows = len(table)
    fields: dict[str, Any] = {
        "prompts": [f"p{row // 2}" for row in range(rows)],
        "completions": [f"c{row}" for row in range(rows)],
        "rewards": table,
        "reward_names": [f"f{column}" for column in range(table.shape[1])],
        "reward_weights": None,
        "first": 0,
        "token_ids": [[5]] * rows,
    }
    return Generation(**{**fields, **given})


class Image:
    """As PIL's: pixels, and a repr with an address in it."""

    def __init__(self, pixels: bytes) -> None:
        self._pixels = pixels
        self.size = (1, len(pixels))

    def tobytes(self) -> bytes:
        return self._pixels


def test_the_id_of_a_prompt_is_the_same_in_every_process() -> None:
    assert digest("3+1=") == "f2f4c798f733493f", "it is on the wire: a change of it cuts the history of every prompt"
    assert digest([{"role": "user", "content": "3+1="}]) == digest([{"content": "3+1=", "role": "user"}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"), ("a", ["a"]), (["a", "b"], ["ab"]), ([["a"], "b"], [["a", "b"]]), ({"a": "b"}, ["a", "b"]), ("1", 1),
        ([{"content": "x"}], [{"content": "x"}, {"content": ""}]), (None, "None"), ("\ud800", "\ud801"),
        ([{"image": Image(b"\0\1")}], [{"image": Image(b"\1\0")}]), ([{"image": Image(b"\0")}], [{"image": Image(b"\0\0")}]),
    ],
    ids=str,
)  # fmt: skip
def test_different_prompts_have_different_ids(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_what_has_an_address_in_its_text_has_the_same_id_all_the_same() -> None:
    assert digest([{"image": Image(b"\0\1")}]) == digest([{"image": Image(b"\0\1")}])
    assert digest([object()]) == digest([object()])


def test_a_prompt_that_comes_twice_in_a_step_is_two_groups() -> None:
    ids = group_ids(["a", "a", "b", "b", "a", "a"], 2)
    assert ids[0] == ids[1] == digest("a")
    assert ids[4] == ids[5] == f"{digest('a')}#2"
    assert len(set(ids)) == 3


def test_an_environment_may_change_the_prompt_within_a_group() -> None:
    assert len(set(group_ids(["a: 1", "a: 2", "b: 1", "b: 2"], 2))) == 2


@pytest.mark.parametrize("size", [None, 0, 4])
def test_without_whole_groups_equal_prompts_are_one(size: int | None) -> None:
    assert group_ids(["a", "b", "a"], size) == [digest("a"), digest("b"), digest("a")]


def test_rewards_are_weighted_and_what_does_not_apply_is_left_out() -> None:
    nan = math.nan
    found = responses_of([generation([[1, nan], [0, 4], [nan, nan], [2, 2]], reward_weights=np.array([1.0, 0.5]))], 2)
    assert found is not None
    assert np.array_equal(found.rewards, [1.0, 2.0, nan, 3.0], equal_nan=True)
    assert np.array_equal(found.components["f1"], [nan, 4, nan, 2], equal_nan=True)
    assert found.correct is None, "no function is known to judge"


def test_names_that_do_not_fit_the_rewards_are_replaced() -> None:
    found = responses_of([generation([[1, 2], [3, 4]], reward_names=["only"])], 2)
    assert found is not None and list(found.components) == ["reward_0", "reward_1"]


@pytest.mark.parametrize(
    ("name", "expected"), [("accuracy_reward", [True, False]), ("reasoning_accuracy_reward", [True, False])]
)
def test_functions_of_trl_that_judge_are_known(name: str, expected: list[bool]) -> None:
    found = responses_of([generation([[0.1, 1], [9, 0]], reward_names=["length", name])], 2)
    assert found is not None and found.correct is not None and found.correct.tolist() == expected


def test_generations_are_joined_in_their_order() -> None:
    one, two = generation([[1], [2]]), generation([[3], [4]], prompts=["q", "q"], token_ids=[[1, 2], [3]])
    found = responses_of([one, two], 2)
    assert found is not None
    assert (found.rewards.tolist(), found.lengths.tolist(), found.own.tolist()) == ([1, 2, 3, 4], [1, 1, 2, 1], [0, 1, 2, 3])
    assert found.ids == [digest("p0")] * 2 + [digest("q")] * 2
    (batch,) = batches_of(found)
    assert batch.lengths is not None and batch.token_ids is not None
    assert (batch.lengths.tolist(), batch.token_ids.tolist()) == ([1, 1, 2, 1], [5, 5, 1, 2, 3])


def test_of_several_processes_the_tokens_are_this_ones() -> None:
    """Two generations; this is the second of three processes, with two responses in each."""
    parts = [
        generation(
            np.arange(6)[:, None] + 10 * turn, first=2, token_ids=[[1] * (turn + 1), [2] * (turn + 2)], endings=frozenset({2})
        )
        for turn in range(2)
    ]
    found = responses_of(parts, 2)
    assert found is not None and not found.alone
    assert found.own.tolist() == [2, 3, 8, 9]
    own, everything = batches_of(found)
    assert everything.rewards is not None and len(everything.rewards) == 12
    assert everything.response_lengths is None and everything.token_ids is None
    assert own.rewards is not None and own.response_lengths is not None and own.truncated is not None
    assert own.rewards.tolist() == [2, 3, 12, 13]
    assert own.response_lengths.tolist() == [1, 2, 2, 3]
    assert own.truncated.tolist() == [True, False, True, False]


def test_a_response_without_a_reward_is_no_sample_of_it() -> None:
    nan = math.nan
    found = responses_of([generation([[1.0], [nan], [nan], [nan], [3.0], [3.0]])], 2)
    assert found is not None
    every, scored = batches_of(found)  # without a judge there is no third
    assert every.rewards is None and every.response_lengths is not None and len(every.response_lengths) == 6
    assert scored.rewards is not None and scored.rewards.tolist() == [1, 3, 3]
    assert scored.prompts == [digest("p0"), digest("p2"), digest("p2")]


def test_tokens_of_tools_are_no_length() -> None:
    mask = np.array([[1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
    found = responses_of([generation([[1]] * 3, token_ids=[[7, 7, 7], [7, 7, 7, 7], [7, 7]], tool_mask=mask)], None)
    assert found is not None
    # The last is truncated and TRL has zeroed its mask: no tool writes a whole response.
    assert found.lengths.tolist() == [2, 4, 2]


def test_empty_completions_are_not_cut_and_unknown_endings_say_nothing() -> None:
    cut = responses_of([generation([[1]] * 3, token_ids=[[], [9], [2]], endings=frozenset({2}))], None)
    assert cut is not None and cut.truncated is not None and cut.truncated.tolist() == [False, True, False]
    unknown = responses_of([generation([[1]])], None)
    assert unknown is not None and unknown.truncated is None


def test_no_generation_is_no_responses() -> None:
    assert responses_of([], 4) is None


_CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(one=_CONTENT, other=_CONTENT)
def test_ids_are_equal_exactly_where_prompts_are(one: Any, other: Any) -> None:
    def told_apart(value: Any) -> Any:
        """1 and True and 1.0 are equal in Python, and not the same prompt."""
        if isinstance(value, list):
            return [told_apart(item) for item in value]
        if isinstance(value, dict):
            return {key: told_apart(item) for key, item in value.items()}
        return type(value).__name__, value

    assert (digest(one) == digest(other)) == (told_apart(one) == told_apart(other))

"""Per-sample dumps of verl: what its rows say, and what is made of them."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tests.kit import dumps
from tests.kit.dump_formats import MADE, holds, told


@pytest.mark.parametrize("uid", [True, False])
@pytest.mark.parametrize("acc", [True, False])
def test_verl(uid: bool, acc: bool) -> None:
    found = told("verl-rollouts", dumps.verl_rows(MADE, 3, uid=uid, acc=acc))
    holds(found, dumps.rewards(MADE))
    holds(found, dumps.characters(MADE))
    assert not [name for name in found.metrics if name.startswith("response_length")]
    components = found.metrics["reward_component_mean"]
    assert isinstance(components, dict) and components["format"] == pytest.approx(0.5)
    assert set(components) == ({"format", "acc"} if acc else {"format"})


def test_verl_groups_of_one_prompt_stay_apart_by_uid_and_its_id_by_the_text() -> None:
    """A prompt drawn twice in a step is two groups; in another step it is the same prompt under another uid."""
    rows = dumps.verl_rows(MADE[:4], 1) + [
        {**row, "uid": row["uid"].replace("0001-", "0009-"), "request_id": f"x{at}"}
        for at, row in enumerate(dumps.verl_rows(MADE[:4], 1))
    ]
    found, again = told("verl-rollouts", rows), told("verl-rollouts", dumps.verl_rows(MADE[:4], 2))
    assert found.groups is not None and again.groups is not None
    assert found.groups.prompt == [again.groups.prompt[0], f"{again.groups.prompt[0]}#2"] and found.groups.size == 4


def test_verl_a_rollout_in_pieces_counts_once_with_its_last_output() -> None:
    rows = dumps.verl_rows(MADE, 3)
    pieces = [{**row, "output": "only the beginning", "uid": row["uid"]} for row in rows[:4]]
    later = [{**row, "uid": row["uid"].removesuffix("_0") + "_1"} for row in rows[:4]]
    found = told("verl-rollouts", [*pieces, *later, *rows[4:]])
    holds(found, dumps.rewards(MADE))
    holds(found, dumps.characters(MADE))


def test_verl_copies_of_a_request_count_once() -> None:
    rows = dumps.verl_rows(MADE, 3, uid=False)
    found = told("verl-rollouts", [*rows, *rows[:3]])
    holds(found, dumps.rewards(MADE))
    assert found.notes == ["copies of one sample in a step count once"]


def test_verl_aborted_samples_are_counted_and_are_no_lengths() -> None:
    made = [dataclasses.replace(MADE[0], response=""), *MADE[1:]]
    found = told("verl-rollouts", dumps.verl_rows(made, 3))
    assert found.metrics["aborted_ratio"] == pytest.approx(1 / len(made))
    holds(found, dumps.rewards(made))
    texts = [len(sample.response) for sample in MADE[1:]]
    holds(found, {"response_chars_mean": sum(texts) / len(texts)})


def test_verl_graded_scores_say_nothing_of_correct_unless_told() -> None:
    made = [dataclasses.replace(sample, reward=sample.reward * 0.5 + 0.1) for sample in MADE]
    rows = dumps.verl_rows(made, 3, acc=False)
    assert "correct_ratio" not in told("verl-rollouts", rows).metrics
    found = told("verl-rollouts", rows, {"correct_above": 0.5})
    holds(found, {"correct_ratio": dumps.rewards(MADE)["correct_ratio"]})


def test_verl_scores_of_minus_one_and_one_are_binary() -> None:
    rows = [{**row, "score": row["score"] * 2 - 1} for row in dumps.verl_rows(MADE, 3, acc=False)]
    holds(told("verl-rollouts", rows), {"correct_ratio": dumps.rewards(MADE)["correct_ratio"]})


def test_verl_a_score_that_is_no_number_is_told_and_not_swallowed() -> None:
    """The literal NaN, as Python writes it: the mean is NaN, the group has one, the others are what they were."""
    rows = dumps.verl_rows(MADE, 3)
    rows[4] = {**rows[4], "score": math.nan, "acc": False}
    found = told("verl-rollouts", rows)
    mean = found.metrics["reward_mean"]
    assert isinstance(mean, float) and math.isnan(mean)
    assert found.groups is not None
    assert [math.isnan(float(value or 0)) for value in found.groups.reward_mean].count(True) == 1
    assert [rollout.picked for rollout in found.rollouts if math.isnan(float(rollout.reward or 0))] == ["worst"]


def test_verl_old_dumps_write_everything_as_text() -> None:
    rows = [{key: str(value) for key, value in row.items()} for row in dumps.verl_rows(MADE, 3, uid=False)]
    found = told("verl-rollouts", rows)
    holds(found, dumps.rewards(MADE))


def test_verl_kept_groups_only_when_told() -> None:
    found = told("verl-rollouts", dumps.verl_rows(MADE, 3), {"filter_groups": True})
    assert found.groups is None and "zero_variance_group_ratio" not in found.metrics
    holds(found, dumps.characters(MADE))

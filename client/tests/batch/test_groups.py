"""Prompt groups: by hand, against plain loops, and as the record has them."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.token_batches import close, measured, number
from tocsin import wire
from tocsin.batch import Settings, Summary

REWARD_METRICS = (
    *("zero_variance_group_ratio", "near_zero_std_group_ratio"),
    *("reward_group_std_mean", "reward_group_std_min", "reward_group_range_mean"),
)
CORRECT_METRICS = ("group_all_correct_ratio", "group_all_wrong_ratio", "group_pass_ratio")


def by_prompt(prompts: list[Any], values: list[Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for prompt, value in zip(prompts, values, strict=True):
        groups.setdefault(prompt, []).append(value)
    return groups


def oracle(prompts: list[Any], rewards: list[float], near: float = 1e-3) -> dict[str, float | None]:
    groups = [values for values in by_prompt(prompts, rewards).values() if len(values) > 1]
    if not groups:
        return dict.fromkeys(REWARD_METRICS)
    stds = [0.0 if all(value == values[0] for value in values) else statistics.stdev(values) for values in groups]
    spread = [std for std, values in zip(stds, groups, strict=True) if any(value != values[0] for value in values)]
    return {
        "zero_variance_group_ratio": (len(groups) - len(spread)) / len(groups),
        "near_zero_std_group_ratio": sum(std < near for std in spread) / len(groups),
        "reward_group_std_mean": statistics.fmean(stds),
        "reward_group_std_min": min(spread, default=None),
        "reward_group_range_mean": statistics.fmean(max(values) - min(values) for values in groups),
    }


def hand() -> Summary:
    """Four groups of four, not in order: all correct, all wrong, one of four, two of four."""
    prompts = ["w", "c", "m", "h"] * 4
    rewards = [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1]
    return measured(prompts=prompts, rewards=rewards, correct=[reward > 0 for reward in rewards])


def test_by_hand() -> None:
    summary = hand()
    assert number(summary, "zero_variance_group_ratio") == 0.5
    assert number(summary, "group_all_correct_ratio") == 0.25
    assert number(summary, "group_all_wrong_ratio") == 0.25
    assert number(summary, "group_pass_ratio") == 0.75
    assert number(summary, "correct_ratio") == 7 / 16
    assert number(summary, "reward_group_std_mean") == pytest.approx((0.5 + math.sqrt(1 / 3)) / 4)
    assert number(summary, "reward_group_std_min") == 0.5
    assert number(summary, "reward_group_range_mean") == 0.5
    assert number(summary, "near_zero_std_group_ratio") == 0.0
    assert number(summary, "generated_groups") == 4.0
    assert number(summary, "group_size") == 4.0


def test_the_block_of_the_record() -> None:
    groups = hand().groups
    assert groups is not None
    assert (groups.size, groups.prompt, groups.success) == (4, ["w", "c", "m", "h"], [0, 4, 1, 2])
    assert groups.reward_mean == [0.0, 1.0, 0.25, 0.5]
    assert groups.reward_std == [0.0, 0.0, 0.5, math.sqrt(1 / 3)]


@settings(max_examples=150)
@given(data=st.data())
def test_any_groups_against_the_oracle(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30))
    prompts = data.draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    values = st.sampled_from([0.0, 0.1, 1 / 3, 1.0, 1.0 + 1e-5]) | st.floats(-1e3, 1e3)
    rewards = data.draw(st.lists(values, min_size=count, max_size=count))
    correct = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    summary = measured(prompts=prompts, rewards=rewards, correct=correct)
    for name, expected in oracle(prompts, rewards).items():
        if expected is None:
            assert summary.metrics[name] is None, name
        else:
            assert close(number(summary, name), expected, 1e-9, 1e-12), name
    verdicts = list(by_prompt(prompts, correct).values())
    assert number(summary, "group_all_correct_ratio") == sum(all(group) for group in verdicts) / len(verdicts)
    assert number(summary, "group_all_wrong_ratio") == sum(not any(group) for group in verdicts) / len(verdicts)
    assert number(summary, "group_pass_ratio") == sum(any(group) for group in verdicts) / len(verdicts)
    groups = summary.groups
    assert groups is not None
    wire.check_groups(groups)
    assert groups.prompt == [str(prompt) for prompt in dict.fromkeys(prompts)]
    sizes = [len(group) for group in verdicts]
    assert sizes.count(groups.size) == max(map(sizes.count, sizes))
    assert groups.success == [sum(group) if len(group) == groups.size else None for group in verdicts]
    for mean, group in zip(groups.reward_mean, by_prompt(prompts, rewards).values(), strict=True):
        assert mean == pytest.approx(statistics.fmean(group), abs=1e-9)


@pytest.mark.parametrize("reward", [0.1, 1 / 3, 0.1 + 0.2, math.pi, 1e-300, -7e20])
@pytest.mark.parametrize("make", [np.float64, np.float32, np.float16, "torch", "bfloat16"])
def test_equal_rewards_are_equal_whatever_their_sum_rounds_to(reward: float, make: Any) -> None:
    for size in (2, 3, 5, 6, 7, 8, 10, 12, 16, 33):
        if isinstance(make, str):
            rewards: Any = torch.full((size,), reward, dtype=torch.bfloat16 if make == "bfloat16" else torch.float32)
        else:
            with np.errstate(over="ignore"):
                rewards = np.full(size, reward, dtype=make)
        if not math.isfinite(float(rewards[0])):
            continue  # -7e20 is no float16
        summary = measured(prompts=["p"] * size, rewards=rewards)
        assert number(summary, "zero_variance_group_ratio") == 1.0
        assert number(summary, "reward_group_std_mean") == 0.0
        assert number(summary, "reward_std") == 0.0
        assert summary.metrics["reward_group_std_min"] is None
        assert summary.groups is not None
        assert summary.groups.reward_mean == [float(rewards[0])]
        assert summary.groups.reward_std == [0.0]


def test_rewards_that_differ_in_the_last_digit_are_near_zero_and_not_zero() -> None:
    summary = measured(prompts=["p", "p", "q", "q"], rewards=[0.3, 0.1 + 0.2, 0.0, 1.0])
    assert number(summary, "zero_variance_group_ratio") == 0.0
    assert number(summary, "near_zero_std_group_ratio") == 0.5
    assert number(summary, "reward_group_std_min") == pytest.approx(abs(0.3 - (0.1 + 0.2)) / math.sqrt(2), rel=1e-6)
    other = measured(Settings(near_zero_std=0.9), prompts=["p", "p", "q", "q"], rewards=[0.3, 0.1 + 0.2, 0.0, 1.0])
    assert number(other, "near_zero_std_group_ratio") == 1.0


def test_groups_of_one_have_no_spread_but_a_verdict() -> None:
    summary = measured(prompts=[1, 2, 2, 3], rewards=[1, 0, 1, 0], correct=[1, 0, 1, 0])
    assert number(summary, "zero_variance_group_ratio") == 0.0
    assert number(summary, "reward_group_std_mean") == pytest.approx(math.sqrt(0.5))
    assert number(summary, "group_all_correct_ratio") == pytest.approx(1 / 3)
    assert number(summary, "group_all_wrong_ratio") == pytest.approx(1 / 3)
    alone = measured(prompts=[1, 2, 3], rewards=[1, 0, 1])
    assert {name: alone.metrics[name] for name in REWARD_METRICS} == dict.fromkeys(REWARD_METRICS)
    assert alone.groups is not None
    assert (alone.groups.size, alone.groups.reward_std) == (1, [None, None, None])


def test_unequal_groups_keep_all_but_their_count() -> None:
    prompts = ["a"] * 3 + ["b"] * 3 + ["short"] * 2 + ["long"] * 5
    groups = measured(prompts=prompts, rewards=np.arange(13.0), correct=[1] * 13).groups
    assert groups is not None
    assert (groups.size, groups.success) == (3, [3, 3, None, None])
    assert groups.reward_mean == [1.0, 4.0, 6.5, 10.0]
    tie = measured(prompts=["a", "b", "b"], correct=[1, 1, 0]).groups
    assert tie is not None
    assert (tie.size, tie.success, tie.reward_mean) == (2, [None, 1], [])


def test_what_a_filter_did() -> None:
    prompts = ["a", "a", "b", "b", "c", "c"]
    summary = measured(prompts=prompts, rewards=[0, 0, 0, 1, 1, 1], kept=[0, 0, 1, 0, 0, 0])
    assert number(summary, "filtered_groups") == 2.0  # of "b" one response was kept
    assert number(summary, "generated_groups") == 3.0
    assert number(summary, "zero_variance_group_ratio") == pytest.approx(2 / 3)  # before filtering
    nobody_knows = measured(prompts=prompts)
    assert nobody_knows.skipped["filtered_groups"] == "needs kept"
    assert "filtered_groups" not in nobody_knows.metrics


def test_rewards_that_are_not_finite() -> None:
    prompts = ["nan", "nan", "inf", "inf", "mixed", "mixed", "fine", "fine"]
    rewards = [math.nan, math.nan, math.inf, math.inf, 1.0, math.nan, 0.0, 1.0]
    summary = measured(prompts=prompts, rewards=rewards)
    assert number(summary, "zero_variance_group_ratio") == 0.0
    assert number(summary, "near_zero_std_group_ratio") == 0.0
    assert number(summary, "reward_group_std_min") == pytest.approx(math.sqrt(0.5))
    assert math.isnan(number(summary, "reward_group_std_mean"))
    assert math.isnan(number(summary, "reward_group_range_mean"))
    groups = summary.groups
    assert groups is not None
    record = wire.StepRecord(run="r", step=1, time=1.0, groups=groups)
    for content_type in (wire.JSON, wire.MSGPACK):
        decoded = wire.decode(wire.encode(record, content_type), content_type).record
        assert isinstance(decoded, wire.StepRecord)
        assert decoded.groups is not None
        means = [wire.metric_value(value) for value in decoded.groups.reward_mean]
        assert [str(mean) for mean in means] == ["nan", "inf", "nan", "0.5"]


def test_finite_rewards_that_overflow_give_no_infinity() -> None:
    summary = measured(prompts=["far", "far", "one"], rewards=[1.7e308, -1.7e308, 1.0])
    assert summary.groups is not None
    assert summary.groups.reward_mean == [0.0, 1.0]
    assert summary.groups.reward_std == [None, None]
    assert summary.metrics["reward_group_range_mean"] is None
    assert summary.skipped["reward_group_range_mean"].startswith("overflow")
    assert number(summary, "zero_variance_group_ratio") == 0.0


def test_more_groups_than_a_record_holds() -> None:
    full = measured(prompts=list(range(wire.MAX_GROUPS)), rewards=np.zeros(wire.MAX_GROUPS))
    assert full.groups is not None
    assert len(full.groups.prompt) == wire.MAX_GROUPS
    assert "groups" not in full.skipped
    count = wire.MAX_GROUPS + 10
    summary = measured(prompts=list(range(count)), rewards=np.zeros(count), correct=np.zeros(count))
    assert summary.groups is not None
    wire.check_groups(summary.groups)
    assert len(summary.groups.prompt) == len(summary.groups.success) == wire.MAX_GROUPS
    assert summary.skipped["groups"] == f"10 of {count} groups are not in the record, which holds {wire.MAX_GROUPS}"
    assert number(summary, "generated_groups") == count


@pytest.mark.parametrize("fields", [{}, {"prompts": ["a"]}, {"rewards": [1.0]}, {"prompts": [], "rewards": []}])
def test_what_is_missing_makes_no_block(fields: dict[str, Any]) -> None:
    summary = measured(**fields)
    assert summary.groups is None
    assert "groups" in summary.skipped


def test_no_response_gives_none() -> None:
    summary = measured(prompts=[], rewards=[], correct=[], kept=[])
    assert {name: summary.metrics[name] for name in (*REWARD_METRICS, *CORRECT_METRICS)} == dict.fromkeys(
        (*REWARD_METRICS, *CORRECT_METRICS)
    )
    assert summary.metrics["group_size"] is None
    assert number(summary, "generated_groups") == number(summary, "filtered_groups") == 0.0

"""What group-relative advantages can never be: beyond the bound, or away from 0 where all rewards are equal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.kit.token_batches import cut_blocks, measured, number
from tocsin.batch import Settings, Summary

SIZES = (2, 3, 4, 8, 16, 64, 256, 1024)
IRRATIONAL = (0.1, 1 / 3, 0.1 + 0.2, 0.7 * 3, math.pi)


def normalised(rewards: Any, size: int, *, ddof: int = 1, epsilon: float = 0.0) -> Any:
    """(r - mean) / (std + epsilon) by group of consecutive responses, in the type of the rewards, as trainers do it."""
    groups = rewards.reshape(-1, size)
    if isinstance(groups, torch.Tensor):
        mean, std = groups.mean(1, keepdim=True), groups.std(1, keepdim=True, correction=ddof)
    else:
        mean, std = groups.mean(1, keepdims=True), groups.std(1, keepdims=True, ddof=ddof)
    return ((groups - mean) / (std + epsilon)).reshape(-1)


def one_hot(size: int, dtype: Any = np.float32) -> Any:
    rewards = np.zeros(size, dtype=dtype)
    rewards[size // 3] = 1
    return rewards


def excess(advantages: Any, size: int | None = None, **fields: Any) -> float:
    mask = fields.pop("mask", np.ones((len(advantages), 2)))
    return number(measured(Settings(group_size=size), advantages=advantages, mask=mask, **fields), "advantage_bound_excess")


@pytest.mark.parametrize("size", SIZES)
def test_one_reward_apart_meets_the_bound_and_is_no_bug(size: int) -> None:
    for rewards in (one_hot(size), 1 - one_hot(size), one_hot(size) * 0.3 + 0.1):
        for given in (rewards, torch.from_numpy(rewards)):
            assert excess(normalised(given, size), size) == pytest.approx(0.0, abs=1e-4 * math.sqrt(size))
            assert excess(normalised(given, size), size) <= 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_storing_them_in_half_precision_is_no_bug(dtype: str) -> None:
    rounded_up = 0
    for size in (*range(2, 60), *SIZES):
        advantages = normalised(torch.from_numpy(one_hot(size)), size).to(getattr(torch, dtype))
        assert excess(advantages, size) <= 0.0
        rounded_up += float(advantages.max()) > (size - 1) / math.sqrt(size) * (1 + 1e-4)
    assert rounded_up > 10  # the type matters: as float32 these would be beyond


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_biased_deviation_is_one(size: int) -> None:
    found = excess(normalised(one_hot(size), size, ddof=0), size)
    assert found == pytest.approx(math.sqrt(size - 1) - (size - 1) / math.sqrt(size), rel=1e-3, abs=1e-5)
    assert found > 0


@pytest.mark.parametrize("size", [3, 4, 8, 16, 64])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_biased_deviation_is_seen_through_half_precision(size: int, dtype: str) -> None:
    assert excess(normalised(torch.from_numpy(one_hot(size)), size, ddof=0).to(getattr(torch, dtype)), size) > 0


def test_the_plain_difference_is_told_elsewhere() -> None:
    assert excess(np.array([0.5, -0.5]), 4) == pytest.approx(0.5 - 1.5)
    assert excess(np.array([0.5, -9.0]), 4) == pytest.approx(9.0 - 1.5)
    assert excess(np.zeros(2), 4) == -1.5


def test_random_rewards_stay_within() -> None:
    random = np.random.default_rng(0)
    for size in SIZES:
        rewards = random.choice([0.0, 0.1, 1.0], size=(50 * size,)).astype(np.float32)
        assert excess(normalised(rewards, size, epsilon=1e-6), size) <= 0.0


def test_group_size_is_the_largest_group_where_the_settings_do_not_say() -> None:
    prompts = ["a", "b", "b", "b", "a", "b", "c"]  # sizes 2, 4, 1
    fields: dict[str, Any] = {"prompts": prompts, "mask": np.ones((7, 1))}
    assert excess(np.full(7, 1.0), **fields) == pytest.approx(1.0 - 1.5)
    assert excess(np.full(7, 1.0), 9, **fields) == pytest.approx(1.0 - 8 / 3)


def test_only_where_the_bound_holds() -> None:
    fields: dict[str, Any] = {"advantages": np.array([9.0, -9.0]), "mask": np.ones((2, 1))}
    for settings, why in (
        (Settings(), "needs group_size in the settings, or prompts"),
        (Settings(group_size=1), "a group of 1 has no std"),
        (Settings(group_size=4, advantage="gae"), "the bound holds for group_std, advantage is 'gae'"),
    ):
        summary = measured(settings, **fields)
        assert summary.skipped["advantage_bound_excess"] == why
        assert "advantage_bound_excess" not in summary.metrics


def test_raw_advantages_are_judged_where_there_are_any() -> None:
    # Batch normalisation moves and stretches: neither bound nor zeros survive it.
    raw = np.array([0.5, -0.5, 0.0, 0.0])
    fields: dict[str, Any] = {
        "advantages": raw * 10 + 1,
        "mask": np.ones((4, 1)),
        "rewards": [1, 0, 1, 1],
        "prompts": [1, 1, 2, 2],
    }
    assert number(measured(**fields), "advantage_zero_group_max") == 1.0
    assert number(measured(**fields), "advantage_bound_excess") > 0
    assert number(measured(**fields, raw_advantages=raw), "advantage_zero_group_max") == 0.0
    assert number(measured(**fields, raw_advantages=raw), "advantage_bound_excess") < 0


def identical(reward: float, size: int, advantages: Any, rewards: Any) -> Summary:
    """Two groups: one with rewards that are all equal, one with a spread, which is no bug."""
    mixed = np.concatenate([np.asarray(rewards, dtype=np.float32), one_hot(size)])
    both = np.concatenate([np.asarray(advantages), normalised(one_hot(size), size, epsilon=1e-6)])
    prompts = ["equal"] * size + ["mixed"] * size
    return measured(advantages=both, rewards=mixed, prompts=prompts, mask=np.ones((2 * size, 3)))


@pytest.mark.parametrize("reward", IRRATIONAL)
def test_identical_irrational_rewards_have_zero_variance_and_the_bug_shows(reward: float) -> None:
    seen = 0
    for size in range(2, 40):
        rewards = np.full(size, reward, dtype=np.float32)
        naive = np.zeros(size, dtype=np.float32)
        mean = np.float32(0)
        for value in rewards:
            mean += value
        mean /= np.float32(size)
        std = np.sqrt(np.sum((rewards - mean) ** 2, dtype=np.float32) / np.float32(size - 1))
        naive = (rewards - mean) / (std + np.float32(1e-6))
        summary = identical(reward, size, naive, rewards)
        assert number(summary, "zero_variance_group_ratio") == 0.5
        assert number(summary, "advantage_zero_group_max") == float(np.abs(naive).max())
        seen += bool(naive.any())
    assert seen > 5  # the bug is real: these sizes do not average to the reward itself


@pytest.mark.parametrize("reward", IRRATIONAL)
def test_a_careful_baseline_shows_no_bug(reward: float) -> None:
    for size in range(2, 20):
        assert number(identical(reward, size, np.zeros(size), np.full(size, reward)), "advantage_zero_group_max") == 0.0


def test_identical_rewards_that_torch_normalises_naively() -> None:
    worst = 0.0
    for size in range(2, 65):
        rewards = torch.full((size,), 0.1)
        advantages = normalised(rewards, size, epsilon=1e-4)
        summary = measured(advantages=advantages, rewards=rewards, prompts=["p"] * size, mask=torch.ones(size, 2))
        assert number(summary, "zero_variance_group_ratio") == 1.0
        assert number(summary, "advantage_zero_group_max") == pytest.approx(float(advantages.abs().max()))
        worst = max(worst, number(summary, "advantage_zero_group_max"))
    assert worst > 1e-6


@pytest.mark.parametrize("library", ["numpy", "torch", "accelerator"])
@pytest.mark.parametrize("block", [1, 4, 1 << 16])
def test_per_token_advantages_masks_and_filtering(monkeypatch: pytest.MonkeyPatch, library: str, block: int) -> None:
    cut_blocks(monkeypatch, block, library)
    # Five responses in two groups; the third was not kept. Group "a" is dead, and one of its tokens has an advantage.
    rewards, prompts, kept = [1.0, 1.0, 0.0, 0.0, 1.0], ["a", "a", "b", "b", "b"], [1, 1, 0, 1, 1]
    advantages = np.array([[0.0, 0.0, math.nan], [0.25, -0.5, 99.0], [1.0, 1.0, -1.0], [0.7, 0.7, 0.7]])
    mask = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]])
    if library != "numpy":
        fields: dict[str, Any] = {"advantages": torch.from_numpy(advantages), "mask": torch.from_numpy(mask)}
    else:
        fields = {"advantages": advantages, "mask": mask}
    summary = measured(rewards=rewards, prompts=prompts, kept=kept, **fields)
    assert number(summary, "advantage_zero_group_max") == 0.5
    assert number(summary, "advantage_bound_excess") == pytest.approx(1.0 - 2 / math.sqrt(3))
    assert number(summary, "advantage_group_mean_max") == 0.0625  # of "a": "b" is not whole
    for more in ({}, {"kept": [1, 1, 0, 0, 1]}):  # the second would leave three, and four were trained on
        unknown = measured(rewards=rewards, prompts=prompts, **fields, **more)
        for name in ("advantage_zero_group_max", "advantage_group_mean_max"):
            assert unknown.skipped[name] == "needs kept, to know which of the generated responses are trained on"


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_whole_groups_have_the_mean_zero(make: Any, dtype: str) -> None:
    random = np.random.default_rng(0)
    size, count = 8, 12
    rewards = random.normal(size=size * count)
    tensor = normalised(torch.from_numpy(rewards), size, epsilon=1e-6).to(getattr(torch, dtype))
    advantages = tensor if make is torch.tensor or dtype == "bfloat16" else tensor.numpy()
    order = random.permutation(size * count)  # groups need not lie together
    mask = np.arange(9) < random.integers(1, 10, (size * count, 1))  # nor be of one length
    prompts = np.repeat(np.arange(count), size)
    right = measured(advantages=advantages[order], prompts=prompts[order], mask=mask)
    assert 0 <= number(right, "advantage_group_mean_max") < (1e-2 if dtype == "bfloat16" else 1e-6)
    # Gathered in another order than the prompts: each response has another one's advantage.
    wrong = measured(advantages=advantages[random.permutation(order)], prompts=prompts[order], mask=mask)
    assert number(wrong, "advantage_group_mean_max") > 0.3


def test_group_mean_by_hand() -> None:
    advantages = np.array([[1.0, 3.0, math.nan], [-1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [-0.25, -0.25, -0.25], [9.0, 9.0, 9.0]])
    mask = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]])
    fields: dict[str, Any] = {"advantages": advantages, "prompts": ["a", "a", "b", "b", "one"]}
    # a: mean of 2 and -1, for a response weighs the same whatever its length; b: 0.125; the group of one has no baseline
    assert number(measured(**fields, mask=mask), "advantage_group_mean_max") == 0.5
    mask[1] = 0  # "a" is no longer whole
    assert number(measured(**fields, mask=mask), "advantage_group_mean_max") == 0.125
    mask[2] = 0
    assert measured(**fields, mask=mask).metrics["advantage_group_mean_max"] is None
    assert measured(advantages=advantages, mask=mask).skipped["advantage_group_mean_max"] == "needs prompts"


def test_filtered_groups_need_not_be_whole() -> None:
    fields: dict[str, Any] = {"advantages": np.array([1.0, -1.0, 5.0]), "mask": np.ones((3, 1)), "prompts": [1, 1, 2, 2, 3, 3]}
    assert number(measured(**fields, kept=[1, 1, 0, 0, 1, 0]), "advantage_group_mean_max") == 0.0
    assert measured(**fields, kept=[1, 0, 1, 0, 1, 0]).metrics["advantage_group_mean_max"] is None


def test_the_precision_bug_is_a_group_mean_too() -> None:
    summary = measured(advantages=np.full(8, 0.0075), rewards=np.full(8, 0.1), prompts=["p"] * 8, mask=np.ones((8, 2)))
    assert number(summary, "advantage_group_mean_max") == pytest.approx(0.0075)


def test_what_is_no_dead_group() -> None:
    fields: dict[str, Any] = {"advantages": np.ones(5), "mask": np.ones((5, 1))}
    # a group of one; one with a spread in the last digit; one with NaN
    rewards = [1.0, 0.1 + 0.2, 0.3, math.nan, math.nan]
    summary = measured(rewards=rewards, prompts=["one", "two", "two", "nan", "nan"], **fields)
    assert summary.metrics["advantage_zero_group_max"] is None
    assert measured(rewards=rewards, **fields).skipped["advantage_zero_group_max"] == "needs prompts"
    assert "gae" in measured(Settings(advantage="gae"), rewards=rewards, **fields).skipped["advantage_zero_group_max"]


@pytest.mark.parametrize("advantage", ["group_std", "group_mean", "batch_std", "leave_one_out"])
def test_every_group_baseline_gives_dead_groups_nothing(advantage: str) -> None:
    summary = measured(
        Settings(advantage=advantage),
        advantages=np.array([0.0, 0.0, 1e-7]),
        mask=np.ones((3, 1)),
        rewards=[0.1] * 3,
        prompts=[1] * 3,
    )
    assert number(summary, "advantage_zero_group_max") == pytest.approx(1e-7)


def test_responses_without_a_token_have_no_say() -> None:
    fields: dict[str, Any] = {"advantages": np.array([7.0, 0.0]), "rewards": [1.0, 1.0], "prompts": ["p", "p"]}
    assert number(measured(**fields, mask=np.array([[0, 0], [1, 0]])), "advantage_zero_group_max") == 0.0
    for nothing in ({"mask": np.zeros((2, 2))}, {"old_logprobs": np.zeros((2, 0))}, {"lengths": [0, 0], "old_logprobs": []}):
        empty = measured(**fields, **nothing)
        for name in ("advantage_zero_group_max", "advantage_bound_excess", "advantage_group_mean_max"):
            assert empty.metrics[name] is None


def test_nan_is_an_answer() -> None:
    summary = measured(advantages=np.array([math.nan, 0.0]), rewards=[1.0, 1.0], prompts=["p", "p"], mask=np.ones((2, 1)))
    for name in ("advantage_zero_group_max", "advantage_bound_excess", "advantage_group_mean_max"):
        assert math.isnan(number(summary, name))


def test_no_response_at_all() -> None:
    summary = measured(Settings(group_size=4), advantages=np.zeros(0), rewards=[], prompts=[], mask=np.zeros((0, 3)))
    assert summary.metrics["advantage_bound_excess"] is None
    assert summary.metrics["advantage_zero_group_max"] is None
    assert summary.metrics["advantage_group_mean_max"] is None
    assert measured().skipped["advantage_groups"] == "needs advantages or raw_advantages"


def test_packed_responses_of_which_only_token_ids_are_known() -> None:
    """As TRL's adapter gives them: advantages by response, no array with a number for each token."""
    advantages = np.array([0.0, 9.0, 0.25, 0.0])
    packed: dict[str, Any] = {"lengths": np.array([2, 0, 1, 3]), "token_ids": np.arange(6)}
    summary = measured(rewards=np.ones(4), prompts=["a", "a", "b", "b"], advantages=advantages, **packed)
    assert number(summary, "advantage_zero_group_max") == 0.25, "the response without a token has no say"


@pytest.mark.parametrize("size", [0, -3, 10**9, math.inf, math.nan])
def test_a_group_size_that_makes_no_sense_gives_no_nonsense(size: float) -> None:
    config = Settings.from_config({"group_size": size})
    value = measured(config, advantages=np.array([2.0]), mask=np.ones((1, 1))).metrics.get("advantage_bound_excess")
    assert value is None or (isinstance(value, float) and math.isfinite(value) and value < 0)

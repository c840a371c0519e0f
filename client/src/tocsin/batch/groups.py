"""A3: the prompt groups of a step, before any filtering, and the `groups` block of its record.

All of it is on the host: S responses in P groups are small. Rewards are float64, which holds every float16, bfloat16 and
float32 exactly, so rewards that were equal are equal here.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from tocsin import wire
from tocsin.batch.checked import Checked, Samples, Vector
from tocsin.batch.contract import Found
from tocsin.batch.inputs import Settings

_REWARD_GROUP_METRICS: Final = (
    "zero_variance_group_ratio",
    "near_zero_std_group_ratio",
    "reward_group_std_mean",
    "reward_group_std_min",
    "reward_group_range_mean",
)


class GroupTable(NamedTuple):
    """One row per group, in order of appearance."""

    group: Vector
    """[S], whole numbers: the group of each response."""
    sizes: Vector
    """[P], whole numbers, 1 or more."""
    lowest: Vector
    """[P]: smallest reward; NaN if there is one in the group."""
    highest: Vector
    """[P]"""
    mean: Vector
    """[P]: exactly the reward where all are equal, whatever rounding does to their sum."""
    std: Vector
    """[P]: unbiased (divided by G - 1), exactly 0 where all rewards are equal; NaN for a group of one."""
    equal: Vector
    """[P], bool: two or more responses whose rewards are finite and all the same, told by max == min. A computed deviation
    does not tell it: rewards of 0.1 have a mean that is not 0.1."""


def group_table(samples: Samples) -> GroupTable:
    """The table of a batch with rewards and prompts. Raises ValueError without them."""
    if samples.rewards is None or samples.group is None:
        raise ValueError("a group table needs rewards and prompts")
    group, sizes = samples.group, _sizes(samples)
    order = np.argsort(group, kind="stable")
    rewards, starts = samples.rewards[order], np.cumsum(sizes) - sizes
    lowest, highest = np.minimum.reduceat(rewards, starts), np.maximum.reduceat(rewards, starts)
    equal = (lowest == highest) & np.isfinite(lowest)
    mean = np.where(equal, lowest, np.add.reduceat(rewards, starts) / sizes)
    squares = np.add.reduceat((rewards - np.repeat(mean, sizes)) ** 2, starts)
    std = np.where(sizes > 1, np.sqrt(squares / np.maximum(sizes - 1, 1)), np.nan)
    return GroupTable(group, sizes, lowest, highest, mean, std, equal & (sizes > 1))


def reward_groups(checked: Checked, settings: Settings) -> Found:
    """Measures of how the rewards spread within groups. Groups of one response have no spread and are left out.

    zero_variance_group_ratio     share of groups whose rewards are all equal (max == min, exactly)
    near_zero_std_group_ratio     share of groups that are not, but whose std is below `Settings.near_zero_std`: noise that the
                                  normalisation blows up to full advantages
    reward_group_std_mean         reward, mean over groups of the unbiased std
    reward_group_std_min          reward, smallest std of the groups with any spread; None if no group has any
    reward_group_range_mean       reward, mean over groups of max - min

    No mask: all generated responses. No group of two or more: None. A group with a NaN or infinite reward has neither zero
    variance nor a small one; it makes the means NaN (and leaves the minimum to the others).
    """
    table = group_table(checked.samples)
    several = table.sizes > 1
    count = int(np.count_nonzero(several))
    if count == 0:
        return Found(dict.fromkeys(_REWARD_GROUP_METRICS))
    std, reach = table.std[several], (table.highest - table.lowest)[several]
    spread = std[(reach > 0) & np.isfinite(std)]
    return Found(
        {
            "zero_variance_group_ratio": np.count_nonzero(table.equal) / count,
            "near_zero_std_group_ratio": np.count_nonzero(spread < settings.near_zero_std) / count,
            "reward_group_std_mean": float(std.mean()),
            "reward_group_std_min": float(spread.min()) if len(spread) else None,
            "reward_group_range_mean": float(reach.mean()),
        }
    )


def correct_groups(checked: Checked, settings: Settings) -> Found:
    """Measures of who was right, by the verdicts in `correct`.

    group_all_correct_ratio, group_all_wrong_ratio   share of groups with every response correct, with none
    group_pass_ratio                                 share of groups with at least one correct response: pass@G

    No mask, no rewards: all generated responses, groups of one included. No group: None.
    """
    sizes, right = _successes(checked.samples)
    count = len(sizes)
    if count == 0:
        return Found(dict.fromkeys(("group_all_correct_ratio", "group_all_wrong_ratio", "group_pass_ratio")))
    return Found(
        {
            "group_all_correct_ratio": np.count_nonzero(right == sizes) / count,
            "group_all_wrong_ratio": np.count_nonzero(right == 0) / count,
            "group_pass_ratio": np.count_nonzero(right > 0) / count,
        }
    )


def group_counts(checked: Checked, settings: Settings) -> Found:
    """How many groups there are.

    generated_groups   groups generated for this step, filtered ones included
    filtered_groups    groups of which no response was kept; needs `kept`, without which nobody knows whether a filter ran
    group_size         responses per group, the most common number (of several, the larger); None without a group
    """
    samples = checked.samples
    found = Found({"generated_groups": float(len(samples.prompt_ids)), "group_size": _size(_sizes(samples))})
    if samples.kept is None or samples.group is None:
        found.skipped["filtered_groups"] = "needs kept"
    else:
        left = np.bincount(samples.group, weights=samples.kept, minlength=len(samples.prompt_ids))
        found.metrics["filtered_groups"] = float(np.count_nonzero(left == 0))
    return found


def groups_block(checked: Checked, settings: Settings) -> Found:
    """The `groups` of the step's record: prompt ids, success counts, mean and unbiased std of the rewards, before filtering.

    The record has one size for all groups: the most common number of responses. A group of another size keeps its prompt, mean
    and std, but has no success count (k of G would say something else). More groups than a record may hold: the first ones.
    """
    samples = checked.samples
    if samples.rewards is None and samples.correct is None:
        return Found(skipped={"groups": "needs rewards or correct"})
    size = _size(_sizes(samples))
    if size is None:
        return Found(skipped={"groups": "no group in the batch"})
    found = Found()
    count = len(samples.prompt_ids)
    if count > wire.MAX_GROUPS:
        found.skipped["groups"] = (
            f"{count - wire.MAX_GROUPS} of {count} groups are not in the record, which holds {wire.MAX_GROUPS}"
        )
    part = slice(wire.MAX_GROUPS)
    groups = wire.Groups(size=size, prompt=list(samples.prompt_ids[part]))
    if samples.correct is not None:
        sizes, right = _successes(samples)
        pairs = zip(sizes[part].tolist(), right[part].tolist(), strict=True)
        groups.success = [int(k) if members == size else None for members, k in pairs]
    if samples.rewards is not None:
        table = group_table(samples)
        groups.reward_mean = _told(table.mean, table)[part]
        groups.reward_std = _told(table.std, table)[part]
    found.groups = groups
    return found


def _told(values: Vector, table: GroupTable) -> list[float | str | None]:
    """None where finite rewards gave no finite value: the deviation of a group of one, squares that overflowed."""
    known = np.isfinite(values) | ~np.isfinite(table.lowest) | ~np.isfinite(table.highest)
    return [value if there else None for value, there in zip(values.tolist(), known.tolist(), strict=True)]


def _sizes(samples: Samples) -> Vector:
    return (
        np.bincount(samples.group, minlength=len(samples.prompt_ids))
        if samples.group is not None
        else np.zeros(0, dtype=np.int64)
    )


def _successes(samples: Samples) -> tuple[Vector, Vector]:
    """[P] responses and [P] correct ones of each group. Raises ValueError without prompts or verdicts."""
    if samples.group is None or samples.correct is None:
        raise ValueError("success counts need prompts and correct")
    right = np.bincount(samples.group[samples.correct], minlength=len(samples.prompt_ids))
    return _sizes(samples), right


def _size(sizes: Vector) -> int | None:
    """The most common one; of several, the larger."""
    if not len(sizes):
        return None
    votes = Counter(sizes.tolist())
    return int(max(votes, key=lambda size: (votes[size], size)))

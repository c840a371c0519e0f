"""A2: what group-relative advantages can never be: a number above 0 is a bug in how they were made."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from tocsin.batch.arrays import Array
from tocsin.batch.checked import Checked, Tokens, Vector
from tocsin.batch.contract import Found, OnHost
from tocsin.batch.groups import group_table
from tocsin.batch.inputs import Settings

_GROUP_BASELINES: Final = frozenset({"group_std", "group_mean", "batch_std", "leave_one_out"})
"""Ways to make advantages (`Settings.advantage`) that give 0 to every response of a group whose rewards are all equal."""
_ROUNDING: Final = 1e-4
"""What mean and deviation in float32 may put on top, relative. A deviation that is wrongly biased adds 1 / (2 G), so up to
thousands of responses per group it is seen."""
_UNIT_ROUNDOFF: Final = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""What storing them adds, by the type in which the advantages were given."""


class _Rows(NamedTuple):
    """The advantages of each response, on the device."""

    largest: Array
    """[B]: largest |A| of its tokens; -inf for a response without a token."""
    mean: Array
    """[B]: mean A of its tokens; anything for a response without a token."""
    filled: Array
    """[B], bool: has a token."""


def advantage_groups(checked: Checked, settings: Settings) -> Found:
    """advantage_bound_excess, advantage_zero_group_max and advantage_group_mean_max.

    advantage_bound_excess = max |A| - (G - 1)/sqrt(G). With A = (r - mean)/std over G rewards and the unbiased std, no A is
        beyond this bound; a group in which one reward differs from all others meets it (a biased std reaches sqrt(G - 1)).
        Only for `Settings.advantage` "group_std". G is `Settings.group_size`, else the largest group of the batch; as the
        bound grows with G, smaller groups (after filtering) are only judged less strictly. An excess within rounding
        (1e-4 of the bound; 2^-8 more of it for bfloat16, 2^-11 for float16) is told as 0, so that above 0 is a bug.
    advantage_zero_group_max = largest |A| in groups of two or more whose rewards are all equal; None without such a group.
        It is 0 unless the baseline was made of rounded numbers: the float32 mean of eight rewards of 0.1 is not 0.1, and the
        difference, divided by a deviation that is as small, becomes an advantage of every response of the group.
    advantage_group_mean_max = largest |mean over a group's responses of A|, over groups of which every response is trained on;
        None without one. A response's A is the mean over its tokens, so that long responses do not weigh more: 0 but for
        rounding (1e-6 in float32, 1e-2 in bfloat16) where the baseline is the mean of the group itself.

    The last two are for advantages with a group baseline (`Settings.advantage` group_std, group_mean, batch_std,
    leave_one_out) and no penalty by token in the rewards. All look at `raw_advantages` where there are any, for batch
    normalisation moves zeros. Mask: responses without a token are left out. Empty batch: None. A NaN advantage gives NaN;
    groups with a non-finite reward are not equal.
    """
    name = "raw_advantages" if checked.has("raw_advantages") else "advantages"
    if not checked.has(name):
        return Found(skipped={"advantage_groups": "needs advantages or raw_advantages"})
    found = Found()
    rows = _rows(checked, name)
    _bound(found, checked, settings, rows, getattr(checked.batch, name))
    _baseline(found, checked, settings, rows)
    return found


def _rows(checked: Checked, name: str) -> _Rows:
    tokens, ops = checked.tokens, checked.ops
    if name in tokens.per_row:
        given = ops.floats(tokens.per_row[name])
        filled = _token_counts(tokens) > 0
        return _Rows(ops.where(filled, abs(given), -math.inf), given, filled)
    alone = dataclasses.replace(tokens, arrays={name: tokens.arrays[name]}, per_row={})
    parts = [
        (ops.segment_max(abs(block[name]), block.counts), block.mean_per_row(block[name]), block.filled)
        for block in alone.blocks()
    ]
    if not parts:
        nothing = ops.array([])
        return _Rows(nothing, nothing, nothing)
    return _Rows(*(ops.join(arrays) for arrays in zip(*parts, strict=True)))


def _token_counts(tokens: Tokens) -> Array:
    """[B]: how many tokens of each response are under the mask."""
    ops = tokens.ops
    if tokens.lengths is not None:
        lengths = ops.array(list(tokens.lengths))
        return lengths if tokens.mask is None else ops.count_segments(tokens.mask, lengths)
    if tokens.mask is not None:
        return ops.count_rows(tokens.mask)
    return ops.full(tokens.rows, int(next(iter(tokens.arrays.values())).shape[1]))


def _bound(found: Found, checked: Checked, settings: Settings, rows: _Rows, given: Any) -> None:
    metric = "advantage_bound_excess"
    if settings.advantage != "group_std":
        found.skipped[metric] = f"the bound holds for group_std, advantage is {settings.advantage!r:.40}"
        return
    size = settings.group_size
    if size is None and checked.samples.group is not None:
        size = int(np.bincount(checked.samples.group).max(initial=0))
    if size is None:
        found.skipped[metric] = "needs group_size in the settings, or prompts"
        return
    if size < 2:
        found.skipped[metric] = f"a group of {size} has no std"
        return
    bound = (size - 1) / math.sqrt(size)
    slack = bound * (_ROUNDING + _UNIT_ROUNDOFF.get(str(getattr(given, "dtype", "")).removeprefix("torch."), 0.0))
    found.metrics[metric] = (
        OnHost((checked.ops.max(rows.largest),), partial(_excess, bound, slack)) if len(rows.largest) else None
    )


def _excess(bound: float, slack: float, largest: float) -> float | None:
    if largest < 0:
        return None  # -inf: no response had a token
    return 0.0 if bound < largest <= bound + slack else largest - bound


def _baseline(found: Found, checked: Checked, settings: Settings, rows: _Rows) -> None:
    """What holds because the baseline is made of the group's own rewards."""
    zero_group, group_mean = "advantage_zero_group_max", "advantage_group_mean_max"
    samples = _samples_of_rows(checked)
    reason = ""
    if settings.advantage not in _GROUP_BASELINES:
        reason = f"needs a group baseline, advantage is {settings.advantage!r:.40}"
    elif checked.samples.group is None:
        reason = "needs prompts"
    elif samples is None:
        reason = "needs kept, to know which of the generated responses are trained on"
    if reason or checked.samples.group is None or samples is None:
        found.skipped[zero_group] = found.skipped[group_mean] = reason
        return
    group = checked.samples.group[samples]
    found.metrics[group_mean] = _largest_group_mean(checked, rows, checked.samples.group, group)
    if checked.samples.rewards is None:
        found.skipped[zero_group] = "needs rewards"
    else:
        found.metrics[zero_group] = _largest_of(checked, rows.largest, group_table(checked.samples).equal[group])


def _largest_of(checked: Checked, values: Array, which: Vector) -> OnHost | None:
    """The largest of those values, of which some below 0 stand for none; None if there is no other."""
    if not which.any():
        return None
    ops = checked.ops
    return OnHost((ops.max(ops.where(ops.flags(ops.array(which)), values, -1.0)),), _unless_none)


def _unless_none(largest: float) -> float | None:
    return None if largest < 0 else largest


def _largest_group_mean(checked: Checked, rows: _Rows, all_groups: Vector, group: Vector) -> OnHost | None:
    """Of the groups of two or more that are whole: all of their responses have trained tokens."""
    ops, count = checked.ops, len(checked.samples.prompt_ids)
    generated = np.bincount(all_groups, minlength=count)
    trained = np.bincount(group, minlength=count)
    order, sizes = ops.array(np.argsort(group, kind="stable")), ops.array(trained)
    sums = ops.segment_sum(ops.pick(ops.where(rows.filled, rows.mean, 0.0), order), sizes)
    whole = ops.count_segments(ops.pick(rows.filled, order), sizes) == sizes
    means = ops.where(whole, abs(sums) / sizes, -1.0)
    return _largest_of(checked, means, (trained == generated) & (generated > 1))


def _samples_of_rows(checked: Checked) -> Vector | None:
    """[B]: which of the S generated responses each trained one is; None if nobody knows."""
    rows, samples = checked.tokens.rows, checked.samples
    if rows == samples.size:
        return np.arange(rows)
    if samples.kept is not None and np.count_nonzero(samples.kept) == rows:
        return np.flatnonzero(samples.kept)
    return None

"""A2: what group-relative advantages can never be. Either number above 0 is a bug in how they were made."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any, Final

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


def advantage_groups(checked: Checked, settings: Settings) -> Found:
    """advantage_bound_excess and advantage_zero_group_max.

    advantage_bound_excess = max |A| - (G - 1)/sqrt(G). With A = (r - mean)/std over G rewards and the unbiased std, no A is
        beyond this bound; a group in which one reward differs from all others meets it (a biased std reaches sqrt(G - 1)).
        Only for `Settings.advantage` "group_std". G is `Settings.group_size`, else the largest group of the batch; as the
        bound grows with G, smaller groups (after filtering) are only judged less strictly. An excess within rounding
        (1e-4 of the bound; 2^-8 more of it for bfloat16, 2^-11 for float16) is told as 0, so that above 0 is a bug.
    advantage_zero_group_max = largest |A| in groups of two or more whose rewards are all equal; None without such a group.
        It is 0 unless the baseline was made of rounded numbers: the float32 mean of eight rewards of 0.1 is not 0.1, and the
        difference, divided by a deviation that is as small, becomes an advantage of every response of the group. For
        advantages with a group baseline: `Settings.advantage` group_std, group_mean, batch_std, leave_one_out; not when a
        penalty for each token was added to the rewards.

    Both look at `raw_advantages` where there are any, for batch normalisation moves zeros. Mask: responses without a token are
    left out. Empty batch: None. A NaN advantage gives NaN; groups with a non-finite reward are not equal.
    """
    name = "raw_advantages" if checked.has("raw_advantages") else "advantages"
    if not checked.has(name):
        return Found(skipped={"advantage_groups": "needs advantages or raw_advantages"})
    found = Found()
    largest = _largest_per_row(checked, name)
    _bound(found, checked, settings, largest, getattr(checked.batch, name))
    _zero_groups(found, checked, settings, largest)
    return found


def _largest_per_row(checked: Checked, name: str) -> Array:
    """[B], on the device: largest |advantage| of each response, -inf for one without a token."""
    tokens, ops = checked.tokens, checked.ops
    if name in tokens.per_row:
        largest, counts = abs(ops.floats(tokens.per_row[name])), _token_counts(tokens)
        return largest if counts is None else ops.where(counts > 0, largest, -math.inf)
    alone = dataclasses.replace(tokens, arrays={name: tokens.arrays[name]}, per_row={})
    parts = [ops.segment_max(abs(block[name]), block.counts) for block in alone.blocks()]
    return ops.join(parts) if parts else ops.array([])


def _token_counts(tokens: Tokens) -> Array | None:
    """[B]: how many tokens of each response are under the mask; None if each has some, there being no mask."""
    ops = tokens.ops
    counts = None if tokens.lengths is None else ops.array(list(tokens.lengths))
    if tokens.mask is None:
        padded = next(iter(tokens.arrays.values()), None)
        return ops.full(tokens.rows, 0) if counts is None and padded is not None and padded.shape[1] == 0 else counts
    return ops.count_rows(tokens.mask) if counts is None else ops.count_segments(tokens.mask, counts)


def _bound(found: Found, checked: Checked, settings: Settings, largest: Array, given: Any) -> None:
    metric = "advantage_bound_excess"
    if settings.advantage != "group_std":
        found.skipped[metric] = f"the bound holds for group_std, advantage is {settings.advantage!r:.40}"
        return
    size = settings.group_size
    if size is None and checked.has("prompts"):
        size = int(np.bincount(checked.samples.group).max(initial=0)) if checked.samples.group is not None else None
    if size is None or size < 2:
        found.skipped[metric] = (
            "needs group_size in the settings, or prompts" if size is None else f"a group of {size} has no std"
        )
        return
    bound = (size - 1) / math.sqrt(size)
    slack = bound * (_ROUNDING + _UNIT_ROUNDOFF.get(str(getattr(given, "dtype", "")).removeprefix("torch."), 0.0))
    found.metrics[metric] = OnHost((checked.ops.max(largest),), partial(_excess, bound, slack)) if len(largest) else None


def _excess(bound: float, slack: float, largest: float) -> float | None:
    if largest < 0:
        return None  # -inf: no response had a token
    return 0.0 if bound < largest <= bound + slack else largest - bound


def _zero_groups(found: Found, checked: Checked, settings: Settings, largest: Array) -> None:
    metric = "advantage_zero_group_max"
    if settings.advantage not in _GROUP_BASELINES:
        found.skipped[metric] = f"needs a group baseline, advantage is {settings.advantage!r:.40}"
        return
    missing = [name for name in ("rewards", "prompts") if not checked.has(name)]
    if missing:
        found.skipped[metric] = f"needs {', '.join(missing)}"
        return
    samples = _samples_of_rows(checked)
    if samples is None:
        found.skipped[metric] = "needs `kept`, to know which of the rewards belong to the responses that are trained on"
        return
    table = group_table(checked.samples)
    dead = table.equal[table.group[samples]]
    if not dead.any():
        found.metrics[metric] = None
        return
    largest = checked.ops.take(largest, checked.ops.flags(checked.ops.array(dead)))
    found.metrics[metric] = OnHost((checked.ops.max(largest),), _unless_empty)


def _unless_empty(largest: float) -> float | None:
    return None if largest < 0 else largest


def _samples_of_rows(checked: Checked) -> Vector | None:
    """[B]: which of the S generated responses each trained one is; None if nobody knows."""
    rows, samples = checked.tokens.rows, checked.samples
    if rows == samples.size:
        return np.arange(rows)
    if samples.kept is not None and np.count_nonzero(samples.kept) == rows:
        return np.flatnonzero(samples.kept)
    return None

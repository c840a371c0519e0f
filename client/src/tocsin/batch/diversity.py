"""A4: whether the responses to one prompt still differ, and whether responses still depend on their prompt.

Responses are compared as texts; where a batch has no texts, by their token ids under the mask (when every generated response is
trained on). Not the other way round, as token ids are missing in steps that filter groups, and the unit must not change from
step to step.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import accumulate
from statistics import median
from typing import Any, Final

import numpy as np

from tocsin.batch.arrays import ops_of
from tocsin.batch.checked import Checked, Vector
from tocsin.batch.contract import Found
from tocsin.batch.inputs import Settings
from tocsin.batch.short import short

EDIT_UNITS: Final = 2048
"""Characters (or tokens) of a response that are compared, from its beginning: a pair then costs 0.3 ms at most."""


def unique(checked: Checked, settings: Settings) -> Found:
    """unique_response_ratio: distinct responses / responses, over the batch. 1 when no two are the same, 1/S when all are.

    No response: None. Two responses are the same when every character (or token) is.
    """
    responses = _responses(checked)
    if responses is None:
        return Found(skipped={"unique": "needs responses or token_ids"})
    if not responses:
        return Found({"unique_response_ratio": None})
    keys: Sequence[Hashable] = [item if isinstance(item, str) else item.tobytes() for item in responses]
    return Found({"unique_response_ratio": len(set(keys)) / len(keys)})


def edit_distance(checked: Checked, settings: Settings) -> Found:
    """response_edit_distance_median: median over pairs of responses of one group of their Levenshtein distance, divided by the
    length of the longer one; 0 = the same, 1 = nothing in common.

    In characters (tokens where there are no texts), of the first EDIT_UNITS of each response. `edit_pairs` pairs, drawn from
    all pairs of the batch without repetition and the same ones for the same `seed`; all of them where there are no more.
    No pair (every group has one response): None. Needs rapidfuzz.
    """
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        return Found(skipped={"edit_distance": "needs rapidfuzz: pip install tocsin[batch]"})
    responses, group = _responses(checked), checked.samples.group
    if responses is None or group is None:
        return Found(skipped={"edit_distance": "needs prompts, and responses or token_ids"})
    distances = []
    for left, right in _pairs(group, max(1, int(settings.edit_pairs)), settings.seed):
        one, other = (item if isinstance(item, str) else item.tolist() for item in (responses[left], responses[right]))
        distances.append(Levenshtein.normalized_distance(one[:EDIT_UNITS], other[:EDIT_UNITS]))
    return Found({"response_edit_distance_median": median(distances) if distances else None})


def retrieval(checked: Checked, settings: Settings) -> Found:
    """retrieval_accuracy and retrieval_chance, from `retrieval_scores` [N, P], log-probability of response n under prompt p.

    retrieval_accuracy   share of the N responses whose own prompt (`retrieval_own`) scores highest among the P prompts. Where m
                         prompts share the highest score and the own one is among them, the response counts 1/m, as a draw among
                         them would give: scores that tell nothing give chance, not 1
    retrieval_chance     1/P: what responses give that ignore their prompt

    No response or no prompt: None. NaN makes the accuracy NaN. -inf is a score as any other. Nothing is masked.
    Source: the mutual-information test for template collapse; entropy alone calls diverse templates healthy.
    """
    ops = ops_of([checked.batch.retrieval_scores])  # where the scores lie; the token arrays may be elsewhere, or none
    scores = ops.floats(ops.array(checked.batch.retrieval_scores))
    if len(scores.shape) != 2:
        return Found(skipped={"retrieval": f"retrieval_scores has shape {list(scores.shape)}, expected [N, P]"})
    count, prompts = (int(size) for size in scores.shape)
    own = short(checked.batch.retrieval_own)
    if len(own) != count:
        return Found(skipped={"retrieval": f"retrieval_own has {len(own)} values for {count} responses"})
    if not count or not prompts:
        return Found({"retrieval_accuracy": None, "retrieval_chance": 1 / prompts if prompts else None})
    wrong = np.flatnonzero(~((own >= 0) & (own < prompts) & (own == np.floor(own))))
    if len(wrong):
        return Found(skipped={"retrieval": f"retrieval_own[{wrong[0]}] is {own[wrong[0]]}, expected a column of {prompts}"})
    flat, width = scores.reshape(-1), ops.full(count, prompts)
    best = ops.segment_max(flat, width)
    ties = ops.segment_sum(ops.floats(flat == ops.repeat(best, width)), width)
    mine = ops.pick(flat, ops.array(np.arange(count) * prompts + own.astype(np.int64)))
    won = ops.sum(ops.where(mine == best, 1 / ties, 0.0)) / count
    unknown = ops.count(flat != flat)
    return Found({"retrieval_accuracy": ops.where(unknown > 0, np.nan, won), "retrieval_chance": 1 / prompts})


def _responses(checked: Checked) -> Sequence[Any] | None:
    """[S]: the texts, else vectors of token ids, else None."""
    samples = checked.samples
    return samples.responses if samples.responses is not None else samples.token_ids


def _pairs(group: Vector, budget: int, seed: int) -> list[tuple[int, int]]:
    """At most `budget` different pairs of responses of one group, drawn from all of them with equal chances."""
    order = np.argsort(group, kind="stable")
    members = [part.tolist() for part in np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(part) > 1]
    ends = list(accumulate(len(part) * (len(part) - 1) // 2 for part in members))
    total = ends[-1] if ends else 0
    chosen = range(total) if total <= budget else sorted(random.Random(seed).sample(range(total), budget))
    found = []
    at = 0
    for number in chosen:
        while number >= ends[at]:
            at += 1
        found.append(_pair(members[at], number - (ends[at - 1] if at else 0)))
    return found


def _pair(members: Sequence[int], number: int) -> tuple[int, int]:
    """The pair of this number among all pairs of the members: (0, 1), (0, 2) ... (1, 2) ..."""
    first = 0
    while number >= (row := len(members) - 1 - first):
        number -= row
        first += 1
    return members[first], members[first + 1 + number]

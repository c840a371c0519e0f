"""The few responses of a step that travel in its record: those that a person would ask for first."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

SAMPLE: Final = 8
"""Responses per record: the first, the worst, the best, the longest, and others at random."""


class Picked(NamedTuple):
    """A response of the step and why it is in the sample."""

    at: int
    why: str
    """first | worst | best | longest | random"""


def pick(lengths: Sequence[int], scores: Sequence[float | None] | None, step: int, size: int = SAMPLE) -> list[Picked]:
    """At most `size` different responses of the N of a step; the same ones whenever it is asked for the same step.

    lengths   [N], characters of each response
    scores    [N], rewards (None: unknown); without them nothing is worst or best

    Worst is a NaN if there is one, as nothing is more in need of a reader, else the lowest score; best the highest; of equals
    the first. A response that is several of these is there once, for the first of its reasons, and random ones fill its place.
    """
    count = len(lengths)
    wanted: list[Picked] = [Picked(0, "first")] if count else []
    if scores is not None:
        known = [(score, index) for index, score in enumerate(scores) if score is not None]
        if known:
            worst = min(known, key=lambda item: (not math.isnan(item[0]), 0.0 if math.isnan(item[0]) else item[0], item[1]))
            wanted.append(Picked(worst[1], "worst"))
        if numbers := [(score, index) for score, index in known if not math.isnan(score)]:
            wanted.append(Picked(min(numbers, key=lambda item: (-item[0], item[1]))[1], "best"))
    if count:
        wanted.append(Picked(max(range(count), key=lambda index: (lengths[index], -index)), "longest"))
    found: dict[int, Picked] = {}
    for item in wanted[:size]:
        found.setdefault(item.at, item)
    others = [index for index in range(count) if index not in found]
    chosen = random.Random(step).sample(others, min(len(others), size - len(found)))
    return [*found.values(), *(Picked(index, "random") for index in sorted(chosen))]

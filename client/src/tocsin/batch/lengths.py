"""A4: how long the responses are, by correctness, and how many a limit has cut. All of it on the host: [S] is small.

Lengths are generated tokens of every response, before any filtering; where the batch gives none they are counted from the mask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from tocsin.batch.checked import Checked, Vector
from tocsin.batch.contract import Found
from tocsin.batch.inputs import Settings

EQUAL_RESPONSES: Final = 8
"""So many responses do not end at the same token by themselves ..."""
EQUAL_TOKENS: Final = 64
"""... unless they are short: a choice of one letter always has one token."""
_KIBI: Final = 1024


def lengths(checked: Checked, settings: Settings) -> Found:
    """response_length_mean, _p99 (linear between order statistics), _max, _min, in tokens.

    No response: None. NaN goes through to all four.
    """
    given = checked.samples.lengths
    if given is None or not len(given):
        return Found(dict.fromkeys(f"response_length_{part}" for part in ("mean", "p99", "max", "min")))
    return Found(
        {
            "response_length_mean": float(given.mean()),
            "response_length_p99": float(np.quantile(given, 0.99)),
            "response_length_max": float(given.max()),
            "response_length_min": float(given.min()),
        }
    )


def lengths_by_correctness(checked: Checked, settings: Settings) -> Found:
    """response_length_correct_mean and response_length_incorrect_mean, in tokens; None for a side without responses.

    NaN goes through to its own side.
    """
    given, correct = checked.samples.lengths, checked.samples.correct
    if given is None or correct is None:
        return Found(skipped={"lengths_by_correctness": "needs response_lengths and correct"})
    return Found(
        {"response_length_correct_mean": _mean(given[correct]), "response_length_incorrect_mean": _mean(given[~correct])}
    )


def truncation(checked: Checked, settings: Settings) -> Found:
    """Shares of the generated responses that a length limit has cut.

    truncated_ratio            as `truncated` says; without it, the share that has `max_response_length` tokens or more
    truncated_ratio_by_limit   by limit ("8k" is 8,192 tokens, other numbers in full): the share that has so many tokens or
                               more; for each of `length_limits` below `max_response_length`, and for that one itself

    No response: None. A NaN length reaches no limit.

    min = max = limit: EQUAL_RESPONSES or more responses that all have one length, EQUAL_TOKENS or more, were all cut, whatever
    else is said or not said of them. Then truncated_ratio is 1, the length counts as the limit where none is known, and
    `skipped` says so.
    """
    samples = checked.samples
    given = samples.lengths
    maximum = _limit(settings.max_response_length)
    found = Found()
    same = None if given is None else _same_length(given, maximum)
    if samples.truncated is not None:
        found.metrics["truncated_ratio"] = _share(samples.truncated)
    elif given is not None and (maximum is not None or same is not None):
        found.metrics["truncated_ratio"] = _share(given >= (maximum or same))
    else:
        found.skipped["truncated_ratio"] = "needs truncated, or response_lengths and Settings.max_response_length"
    if given is None:
        found.skipped["truncated_ratio_by_limit"] = "needs response_lengths"
        return found
    if same is not None:
        if found.metrics["truncated_ratio"] != 1.0:
            said = f"truncated says {found.metrics['truncated_ratio']:.3g}"
            found.skipped["truncated_ratio"] = f"all {len(given)} responses have {same} tokens: taken as cut, though {said}"
            found.metrics["truncated_ratio"] = 1.0
        elif maximum is None:
            found.skipped["truncated_ratio_by_limit"] = f"all {len(given)} responses have {same} tokens: taken as the limit"
            maximum = same
    below = {limit for item in _listed(settings.length_limits) if (limit := _limit(item)) is not None}
    if maximum is not None:
        below = {limit for limit in below if limit < maximum} | {maximum}
    by_limit: dict[str, Any] = {label(limit): _share(given >= limit) for limit in sorted(below)}
    found.metrics["truncated_ratio_by_limit"] = by_limit
    return found


def label(limit: int) -> str:
    """A limit's name: "8k" for 8,192, "1000" for 1,000."""
    return f"{limit // _KIBI}k" if limit % _KIBI == 0 else str(limit)


def _same_length(given: Vector, maximum: int | None) -> int | None:
    """The one length of all responses, where that can only be a limit's doing."""
    if len(given) < EQUAL_RESPONSES or not EQUAL_TOKENS <= given[0] < np.inf or not (given == given[0]).all():
        return None
    return int(given[0]) if maximum is None or given[0] >= maximum else None


def _limit(value: object) -> int | None:
    """A limit as a number; None for what cannot be one."""
    try:
        number = int(value)  # type: ignore[call-overload]  # whatever a configuration holds: what is no number raises
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number > 0 else None


def _listed(values: object) -> list[object]:
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []


def _mean(values: Vector) -> float | None:
    return float(values.mean()) if len(values) else None


def _share(flags: Vector) -> float | None:
    return float(flags.mean()) if len(flags) else None

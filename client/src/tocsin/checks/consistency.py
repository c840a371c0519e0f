"""Check 1: do the trainer and the rollout engine give the same tokens the same probabilities?

With frozen weights, dropout off and the same tokens, compute the logprobs three times: A and B by the trainer, C by the rollout
engine. A=B tests that the trainer repeats itself, A=C that the two engines agree. The hard criterion needs no threshold of
taste: weights have not moved, so a token whose ratio is already outside the clip range would be taken for a policy update.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tocsin.checks.case import Case
from tocsin.checks.causes import causes
from tocsin.checks.pair import Pair, compare, measure, place_table, tokens_under, worst_table
from tocsin.checks.report import Number, Report, Table, percent, shown
from tocsin.checks.values import CheckInputError, mask_of, rows_of

CLIPPED_LIMIT: Final = 0.001
"""Share of tokens that may be outside the clip range before the first update."""
HEALTHY_GAP: Final = 0.001
"""Mean |l| below this is the usual picture of a matched pair of engines."""
STOP_GAP: Final = 0.01
"""Mean |l| from here on is a reason not to train. Some healthy set-ups (LoRA, FP8, MoE) lie between 0.004 and 0.02: measure
your own on a run that you trust, and pass it."""
POSITIVE_LOGPROB: Final = 1e-3
"""A log-probability is at most 0; rounding may lift it by less than this."""
_ROWS: Final = (
    ("tokens", "tokens"),
    ("not finite", "nonfinite"),
    ("mean |l|", "mean"),
    ("p99 |l|", "p99"),
    ("p99.9 |l|", "p999"),
    ("max |l|", "max"),
    ("KL k1", "k1"),
    ("its standard error", "k1_error"),
    ("KL k3", "k3"),
    ("k1 / k3", "k1_k3_ratio"),
    ("clipped below", "clipped_low_ratio"),
    ("clipped above", "clipped_high_ratio"),
)


def consistency(
    a: Any,
    b: Any,
    c: Any,
    mask: Any = None,
    clip: tuple[float, float] = (0.2, 0.28),
    *,
    healthy: float = HEALTHY_GAP,
    stop: float = STOP_GAP,
    clipped_limit: float = CLIPPED_LIMIT,
    worst: int = 10,
) -> Report:
    """Compare the logprobs that two engines give to the same tokens under the same weights.

    a, b, c   [responses, positions] or [positions], natural log-probabilities of the sampled tokens: A and B by the trainer,
              C by the rollout engine. numpy, torch or lists, any float type. `b` may be None: then repeatability is not tested.
    mask      the same shape, non-zero for the tokens to compare (those that the policy generated); None for all. What stands
              under a zero is never read into a number.
    clip      (low, high): the policy loss clips ratios outside [1 - low, 1 + high].
    healthy, stop   mean |l| below `healthy` is not worth a word, from `stop` on the check fails; between them it notes it.
    clipped_limit   fails when more than this share of tokens would be clipped although nothing was trained.
    worst     how many of the tokens furthest apart to list.

    The report's numbers are named "A=C.mean" and so on, see `pair.measure`. It fails also for a logprob that is not finite or
    above 0 under the mask. Raises CheckInputError for shapes that do not fit, an empty mask, and limits that are no limits.
    """
    _check_limits(clip, healthy, stop, clipped_limit)
    first, third = rows_of(a, "A"), rows_of(c, "C")
    second = None if b is None else rows_of(b, "B")
    for name, array in (("B", second), ("C", third)):
        if array is not None and array.shape != first.shape:
            raise CheckInputError(f"{name}: shape {array.shape}, but A has {first.shape}")
    counted = mask_of(mask, first.shape)
    tokens = tokens_under(counted)
    if not len(tokens.row):
        raise CheckInputError(f"no token to compare: the mask of shape {counted.shape} is empty")
    engines = compare(("A", "C"), first, third, counted, tokens)
    repeat = None if second is None else compare(("A", "B"), first, second, counted, tokens)
    pairs = [each for each in (repeat, engines) if each is not None]
    measured = {each.name: measure(each, clip) for each in pairs}
    failed = {each.name: _failures(each, measured[each.name], clip, stop, clipped_limit) for each in pairs}
    failed[engines.name] += _positive(engines)
    if repeat is not None:
        failed[repeat.name] += _positive(repeat, both=False)
    warnings = [text for each in pairs for text in _warnings(each, measured[each.name], healthy, stop)]
    if repeat is None:
        warnings.append("without B it is not known whether the trainer repeats itself; a gap may be the trainer's own")
    mean = measured[engines.name]["mean"]
    suspicious = bool(failed[engines.name]) or (mean is not None and mean >= healthy)
    details = (place_table(engines, clip), worst_table(engines, worst))
    case = Case(first, third, counted, engines, repeat, healthy, stop, suspicious)
    return Report(
        check="consistency",
        numbers={f"{name}.{key}": value for name, numbers in measured.items() for key, value in numbers.items()},
        failures=tuple(text for texts in failed.values() for text in texts),
        warnings=tuple(warnings),
        hints=tuple(causes(case)),
        tables=(_summary(measured, clip), *(table for table in details if table.rows)),
    )


def _check_limits(clip: tuple[float, float], healthy: float, stop: float, clipped_limit: float) -> None:
    try:
        low, high = clip
    except (TypeError, ValueError):
        raise CheckInputError(f"clip: expected (low, high), got {clip!r}") from None
    if not (0 < low < 1 and 0 < high < math.inf):
        raise CheckInputError(f"clip: expected (low, high) with 0 < low < 1 and high > 0, got {clip}")
    if not 0 <= healthy <= stop:
        raise CheckInputError(f"expected 0 <= healthy <= stop, got {healthy} and {stop}")
    if not 0 <= clipped_limit <= 1:
        raise CheckInputError(f"clipped_limit: expected a share from 0 to 1, got {clipped_limit}")


def _failures(
    pair: Pair, numbers: dict[str, Number], clip: tuple[float, float], stop: float, clipped_limit: float
) -> list[str]:
    found = []
    if lost := len(pair.lost.row):
        sides = f"{pair.first_name}: {pair.lost_first:,}, {pair.second_name}: {pair.lost_second:,}"
        place = f"row {pair.lost.row[0]}, position {pair.lost.column[0]}"
        of = lost + len(pair.first)
        found.append(f"{pair.name}: {lost:,} of {of:,} tokens have no finite logprob ({sides}), the first in {place}")
    share, mean = numbers["clipped_ratio"], numbers["mean"]
    if share is not None and share > clipped_limit:
        count = round(share * len(pair.first))
        found.append(
            f"{pair.name}: {percent(share)} of the tokens ({count:,} of {len(pair.first):,}) would already be clipped at "
            f"[{1 - clip[0]:g}, {1 + clip[1]:g}] with unchanged weights; the limit is {percent(clipped_limit)}"
        )
    if mean is not None and mean >= stop:
        found.append(f"{pair.name}: mean |l| is {shown(mean)}; the stop line is {shown(stop)}")
    return found


def _positive(pair: Pair, both: bool = True) -> list[str]:
    """A and C are looked at in one pair, B in the other."""
    found = []
    sides = ((pair.first_name, pair.first), (pair.second_name, pair.second))
    for name, values in sides if both else sides[1:]:
        above = np.flatnonzero(values > POSITIVE_LOGPROB)
        if len(above):
            place = f"row {pair.tokens.row[above[0]]}, position {pair.tokens.column[above[0]]}"
            value = shown(float(values[above[0]]))
            found.append(
                f"{name}: {len(above):,} of {len(values):,} values are above 0, so no logprobs; the first is {value} in {place}"
            )
    return found


def _warnings(pair: Pair, numbers: dict[str, Number], healthy: float, stop: float) -> list[str]:
    mean = numbers["mean"]
    if mean is None or not healthy <= mean < stop:
        return []
    lines = f"healthy is below {shown(healthy)}, the stop line is {shown(stop)}"
    return [f"{pair.name}: mean |l| is {shown(mean)}; {lines}: compare it with a run that you trust"]


def _summary(measured: dict[str, dict[str, Number]], clip: tuple[float, float]) -> Table:
    rows = []
    for label, key in _ROWS:
        values = [numbers[key] for numbers in measured.values()]
        share = key.startswith("clipped")
        rows.append((label, *("-" if value is None else percent(value) if share else shown(value) for value in values)))
    title = f"l = first - second; ratio = exp(l); clip range [{1 - clip[0]:g}, {1 + clip[1]:g}]"
    return Table(title, ("number", *measured), tuple(rows), frozenset({"number"}))

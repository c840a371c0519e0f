"""Where the gap between trainer and rollout engine sits, asked when no single cause explains it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from tocsin.checks.case import DISTINCT, HALF, Case
from tocsin.checks.report import Hint, counted, listed, percent, shown
from tocsin.checks.values import Bools, Floats

STANDS_OUT: Final = 3.0
"""How many times larger the gap of a place must be than that of the rest, in the mean and in the median."""


def _stands_out(gap: Floats, here: Bools) -> bool:
    """Whether the gap is larger in general here than elsewhere: a few tokens far out lift a mean, not a median."""
    return bool(np.count_nonzero(here) > 1 and np.median(gap[here]) > STANDS_OUT * np.median(gap[~here]))


def _one_place(case: Case) -> Hint | None:
    """The first or the last token of the responses holds most of the gap."""
    gap, place, total = case.engines.gap, case.engines.tokens.place(), float(np.sum(case.engines.gap))
    for number, name, reason in (
        (0, "first", "the prompts may differ (chat template, BOS, a trailing space)"),
        (5, "last", "the end may be treated differently (EOS, stop strings, the last position of a buffer)"),
    ):
        here = place == number
        share, tokens = float(np.sum(gap[here])) / total, float(np.mean(here))
        if share > HALF and tokens < 0.1 and _stands_out(gap, here):
            return Hint(
                f"{name}_token", f"the {name} tokens, {percent(tokens)} of all, hold {percent(share)} of the gap: {reason}"
            )
    return None


def _few_rows(case: Case) -> Hint | None:
    """A quarter of the rows or less holds nine tenths of the gap."""
    sums = case.row_sums(case.engines.gap)
    used = np.flatnonzero(case.row_sums(np.ones(len(case.engines.gap))))
    order = used[np.argsort(-sums[used], kind="stable")]
    shares = np.cumsum(sums[order]) / np.sum(sums)
    worst = order[: int(np.argmax(shares >= 0.9)) + 1]
    if len(worst) > len(used) // 4 or not _stands_out(case.engines.gap, np.isin(case.engines.tokens.row, worst)):
        return None
    return Hint(
        "few_rows",
        f"{counted(len(worst), 'row')} of {len(used):,} hold {percent(float(shares[len(worst) - 1]))} of the gap "
        f"({listed(map(str, sorted(worst.tolist())))}): did another replica with other weights generate them, or was their "
        "text tokenised again?",
    )


def _grows(case: Case) -> Hint | None:
    """The gap grows along the response, its first and last token apart."""
    gap, place = case.engines.gap, case.engines.tokens.place()
    early, late = gap[place == 1], gap[place == 4]
    if min(len(early), len(late)) < DISTINCT:
        return None
    if np.mean(late) < STANDS_OUT * np.mean(early) or not np.median(late) > STANDS_OUT * np.median(early):
        return None
    return Hint(
        "grows",
        f"mean |l| grows from {shown(float(np.mean(early)))} in the first quarter to {shown(float(np.mean(late)))} in the "
        "last: positions (RoPE scaling) or the precision of the KV cache may differ",
    )


def _one_sided(case: Case) -> Hint | None:
    """k1 is far beyond k3 and beyond chance: not noise, but another distribution."""
    log_ratio = case.engines.log_ratio
    k1, k3 = float(np.mean(-log_ratio)), float(np.mean(np.expm1(np.clip(log_ratio, -20, 20)) - log_ratio))
    error = float(np.std(log_ratio)) / math.sqrt(len(log_ratio))
    if abs(k1) < 3 * k3 or abs(k1 - k3) < 5 * error or len(log_ratio) < DISTINCT:
        return None
    more = "C gives" if k1 > 0 else "A gives"
    return Hint(
        "one_sided",
        f"k1 is {shown(k1)} and k3 {shown(k3)}: {more} these tokens more probability throughout, which noise does not do; "
        "other weights, another temperature, top-p or top-k on one side do",
    )


PLACES: Final[tuple[Callable[[Case], Hint | None], ...]] = (_one_place, _few_rows, _grows, _one_sided)

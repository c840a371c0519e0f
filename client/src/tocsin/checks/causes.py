"""Probable causes of a gap between trainer and rollout engine. A cause is named only when the numbers back it.

Each cause is one hypothesis. Where it can be undone ("C is shifted by one"), that is done, and what is left of the gap decides;
else the gap must have the form that only this cause gives it (temperature, top-p). The text gives the numbers. Where no
hypothesis explains the gap, the second list says where the gap sits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tocsin.checks.case import DISTINCT, HALF, Case
from tocsin.checks.pair import usable
from tocsin.checks.report import Hint, percent, shown
from tocsin.checks.rounding import coarsest_grid, round_to
from tocsin.checks.values import Bools
from tocsin.checks.whereabouts import PLACES

SHIFTS: Final = (-1, 1, -2, 2)
MIN_TOKENS: Final = 8
"""Fewer tokens than this may agree by chance."""
SAME: Final = 0.2
"""A shifted or exchanged row explains a row's gap when it leaves less than this share of it."""
SLOPE: Final = 0.03
"""How far the ratio of the spreads of C and A must be from 1 to speak of a temperature."""
CORRELATED: Final = 0.25
"""Correlation of l with A and with C from which a temperature is possible; see `_temperature`."""
ONE_SIGN: Final = 0.01
"""Share of tokens that noise may put on the other side of a one-sided gap."""
PERMUTATION_ROWS: Final = 32
PERMUTATION_POSITIONS: Final = 256
FAR: Final = 50.0
"""Stands for the gap to a value that is not finite."""


def causes(case: Case) -> Iterator[Hint]:
    """The causes that the numbers back, the most specific first; else where the gap sits."""
    if not len(case.engines.first):
        return
    if (hint := _coarse_on_both_sides(case)) is not None:
        yield hint
    if not case.suspicious or case.mean == 0:
        return
    if (hint := _not_computed(case)) is not None:
        yield hint  # what is not there has no other cause
        return
    found = [hint for cause in EXPLANATIONS if (hint := cause(case)) is not None]
    yield from found or (hint for place in PLACES if (hint := place(case)) is not None)


def _not_computed(case: Case) -> Hint | None:
    """One side is 0 in whole rows: trainers write zeros where they skip the computation."""
    pair, raw, counts = case.engines, case.row_sums(case.engines.gap), case.row_sums(np.ones(len(case.engines.gap)))
    for name, values in ((pair.first_name, pair.first), (pair.second_name, pair.second)):
        empty = (counts >= MIN_TOKENS) & (case.row_sums(np.abs(values)) == 0) & (raw > 0)
        if float(np.sum(raw[empty])) > HALF * float(np.sum(raw)):
            rows = f"{int(np.count_nonzero(empty)):,} of {int(np.count_nonzero(counts)):,} rows"
            return Hint("not_computed", f"{name} is 0 at every token of {rows}: it was not computed there")
    return None


def _representation(case: Case) -> Hint | None:
    """C holds something else than natural logarithms: probabilities, negated or other logarithms."""
    a, c = case.engines.first, case.engines.second
    with np.errstate(divide="ignore", invalid="ignore"):
        candidates = {
            "probabilities": np.log(c),
            "negated logprobs": -c,
            "logarithms to base 2": c * np.log(2),
            "logarithms to base 10": c * np.log(10),
        }
    for what, natural in candidates.items():
        left = float(np.mean(np.abs(a - natural)))
        if left < SAME * case.mean and len(a) >= MIN_TOKENS:  # NaN compares false
            return Hint(
                "representation", f"C seems to hold {what}: read so, mean |l| is {shown(left)} instead of {shown(case.mean)}"
            )
    return None


def _shift(case: Case) -> Hint | None:
    """C is shifted along the positions, in all rows or in some."""
    raw, length = case.row_sums(case.engines.gap), case.mask.shape[1]
    best: tuple[float, int, Bools] | None = None
    for shift in SHIFTS:
        if abs(shift) >= length:
            continue
        here = slice(max(0, -shift), length - max(0, shift))
        there = slice(max(0, shift), length + min(0, shift))
        both = case.mask[:, here] & case.mask[:, there]
        row, _ = np.nonzero(both)
        a, same = case.a[:, here][both].astype(np.float64), case.c[:, here][both].astype(np.float64)
        moved = case.c[:, there][both].astype(np.float64)
        fine = usable(a) & usable(same) & usable(moved)
        a, row = a[fine], row[fine]
        sums = [np.bincount(row, weights=np.abs(a - other[fine]), minlength=len(case.mask)) for other in (same, moved)]
        enough = np.bincount(row, minlength=len(case.mask)) >= MIN_TOKENS
        shifted = enough & (sums[1] < SAME * sums[0])
        explained = float(np.sum(raw[shifted]))
        if shifted.any() and (best is None or explained > best[0]):
            best = explained, shift, shifted
    if best is None or best[0] < HALF * float(np.sum(raw)):
        return None
    explained, shift, shifted = best
    direction = "late" if shift > 0 else "early"
    rows = f"{int(np.count_nonzero(shifted)):,} of {int(np.count_nonzero(case.mask.any(axis=1))):,} rows"
    share = percent(explained / float(np.sum(raw)))
    return Hint(
        "shift",
        f"C stands {abs(shift)} position{'s' if abs(shift) > 1 else ''} too {direction} in {rows}: C at position "
        f"t{shift:+d} fits A at t (these rows hold {share} of the gap); usual reasons are logprobs of the next token not "
        "moved by one, or a BOS token on one side",
    )


def _rows(case: Case) -> Hint | None:
    """Rows of C belong to other rows of A."""
    raw = case.row_sums(case.engines.gap)
    counts = case.row_sums(np.ones(len(case.engines.gap)))
    looked = [
        int(row) for row in np.argsort(-raw, kind="stable") if counts[row] >= MIN_TOKENS and raw[row] >= case.stop * counts[row]
    ]
    looked = looked[:PERMUTATION_ROWS]
    matches = []
    for row in looked:
        columns = np.flatnonzero(case.mask[row])[:PERMUTATION_POSITIONS]
        with np.errstate(invalid="ignore", over="ignore"):
            gaps = np.abs(case.a[row, columns].astype(np.float64) - case.c[:, columns].astype(np.float64))
        means = np.mean(np.where(np.isfinite(gaps), np.minimum(gaps, FAR), FAR), axis=1)
        other = int(np.argmin(means))
        if other != row and means[other] < SAME * means[row]:
            matches.append((row, other))
    if len(matches) < 2 or len(matches) < HALF * len(looked):
        return None
    examples = ", ".join(f"row {row} of A fits row {other} of C" for row, other in sorted(matches)[:3])
    return Hint(
        "rows", f"rows of C stand in another order: {examples} ({len(matches):,} of the {len(looked):,} worst rows fit another)"
    )


def _temperature(case: Case) -> Hint | None:
    """C falls faster or slower than A: one side divides the logits by a temperature that the other does not.

    l then depends on the logprob itself, seen from either side: in simulated softmaxes of 50 to 2,000 words the weaker of
    the two correlations is 0.31 or more for temperatures of 0.6 to 0.9 and 1.1 to 2, and 0.1 or less for noise and other
    weights, which correlate with one side only; top-p, which correlates as much, leaves the spread as it is.
    """
    usual = case.engines.gap <= np.quantile(case.engines.gap, 0.99)  # few tokens far out could feign it
    a, c, log_ratio = case.engines.first[usual], case.engines.second[usual], case.engines.log_ratio[usual]
    if len(a) < DISTINCT or min(float(np.std(values)) for values in (a, c, log_ratio)) < 1e-6:
        return None
    on_a, on_c = float(np.corrcoef(log_ratio, a)[0, 1]), float(np.corrcoef(log_ratio, c)[0, 1])
    slope = float(np.std(c)) / float(np.std(a))
    enough = max(CORRELATED, 4 / math.sqrt(len(a)))  # four standard errors of a correlation of nothing
    if on_a * on_c < 0 or min(abs(on_a), abs(on_c)) < enough or abs(slope - 1) < SLOPE:
        return None
    sharper, softer = ("C", "A") if slope > 1 else ("A", "C")
    return Hint(
        "temperature",
        f"C falls {shown(slope)} times as steeply as A (l correlates {on_a:.2f} with A and {on_c:.2f} with C): {sharper} "
        f"seems to divide the logits by a lower temperature than {softer}; both must use the sampling temperature",
    )


def _truncated(case: Case) -> Hint | None:
    """C is above A nearly everywhere: its probabilities share out the mass that top-p or top-k cut off."""
    above = -case.engines.log_ratio
    if len(above) < DISTINCT or np.mean(above < -0.1 * case.mean) > ONE_SIGN or np.mean(above > 0.1 * case.mean) < HALF:
        return None
    most = float(np.max(above))
    return Hint(
        "truncation",
        f"C is above A for {percent(float(np.mean(above > 0)))} of the tokens and nowhere far below, by {shown(most)} at "
        f"most: so do logprobs after top-p or top-k sampling that keeps a mass down to {float(np.exp(-most)):.3g}; take "
        "them before it",
    )


def _rounded(case: Case) -> Hint | None:
    """One side holds values of a coarse type, and rounding the other likewise closes the gap."""
    pair = case.engines
    for name, coarse, other_name, other in (
        (pair.second_name, pair.second, pair.first_name, pair.first),
        (pair.first_name, pair.first, pair.second_name, pair.second),
    ):
        grid = coarsest_grid(coarse, DISTINCT)
        if grid is None:
            continue
        left = float(np.mean(np.abs(round_to(other, grid) - coarse)))
        if left < HALF * case.mean:
            text = (
                f"{name} holds values rounded to {grid}: {other_name} rounded likewise, mean |l| is {shown(left)} instead "
                f"of {shown(case.mean)}"
            )
            return Hint("rounding", f"{text}; return logprobs in float32")
    return None


def _coarse_on_both_sides(case: Case) -> Hint | None:
    """Both sides are rounded: a small gap becomes zero, and the check cannot see it."""
    grids = [coarsest_grid(values, DISTINCT) for values in (case.engines.first, case.engines.second)]
    if None in grids:
        return None
    return Hint(
        "coarse",
        f"A is rounded to {grids[0]} and C to {grids[1]}: gaps below their steps read as 0, so this result may be too good",
    )


def _not_repeatable(case: Case) -> Hint | None:
    """The trainer's own repeatability is as bad as the gap."""
    if case.repeat is None or not len(case.repeat.first):
        return None
    own = float(np.mean(case.repeat.gap))
    if own < case.healthy or own < HALF * case.mean:
        return None
    return Hint(
        "not_repeatable",
        f"A and B, both by the trainer, already differ by {shown(own)} of the {shown(case.mean)} between A and C: is "
        "dropout off, is it the same batch with the same micro-batches, do the weights stand still?",
    )


Cause = Callable[[Case], Hint | None]
EXPLANATIONS: Final[tuple[Cause, ...]] = (_representation, _shift, _rows, _temperature, _truncated, _rounded, _not_repeatable)

"""Two evaluations of the logprobs of the same tokens, and the numbers that compare them.

Notation of the whole package: a is the log-probability in the first evaluation, b in the second, l = a - b, and the ratio
w = exp(l) is what a policy loss would see between the two. Only tokens under the mask are ever read, in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.report import Number, Table, percent, shown
from tocsin.checks.values import Bools, Floats

Integers = NDArray[np.intp]

LOG_RATIO_LIMIT: Final = 20.0
"""l is clamped to this before exp, as trainers do; the spec's fuse."""
LARGEST: Final = 1e30
"""What is larger is no logprob but a mark for "none" (-inf, the smallest float32), and counts as not finite."""
PLACES: Final = ("first token", "1st quarter", "2nd quarter", "3rd quarter", "4th quarter", "last token")
"""Where in its response a token stands; the quarters hold what is neither the first nor the last."""


@dataclass(frozen=True)
class Tokens:
    """The N tokens under a mask, row by row."""

    row: Integers
    column: Integers
    index: Integers
    """0 for the first token of its row under the mask."""
    of: Integers
    """How many tokens of the row are under the mask."""

    def pick(self, chosen: Bools) -> Tokens:
        """Those that are chosen."""
        return Tokens(self.row[chosen], self.column[chosen], self.index[chosen], self.of[chosen])

    def place(self) -> Integers:
        """[N]: for each token an index into PLACES."""
        quarter = np.minimum(4 * self.index // np.maximum(self.of, 1), 3)
        return np.where(self.index == 0, 0, np.where(self.index == self.of - 1, 5, quarter + 1))


def tokens_under(mask: Bools) -> Tokens:
    """The tokens under a [responses, positions] mask."""
    row, column = np.nonzero(mask)
    counts = np.count_nonzero(mask, axis=1)
    starts = np.cumsum(counts) - counts
    return Tokens(row, column, np.arange(len(row)) - starts[row], counts[row])


@dataclass(frozen=True)
class Pair:
    """The tokens that both evaluations give a finite logprob, and how many they do not."""

    name: str
    first_name: str
    second_name: str
    tokens: Tokens
    first: Floats
    second: Floats
    lost: Tokens
    """Tokens with a logprob that is NaN or infinite on either side."""
    lost_first: int
    lost_second: int

    @property
    def log_ratio(self) -> Floats:
        """[N]: l = first - second."""
        return self.first - self.second

    @property
    def gap(self) -> Floats:
        """[N]: |l|."""
        return np.abs(self.log_ratio)


def compare(names: tuple[str, str], first: NDArray[Any], second: NDArray[Any], mask: Bools, tokens: Tokens) -> Pair:
    """Compare two [responses, positions] arrays under a mask whose tokens are given."""
    a, b = first[mask].astype(np.float64), second[mask].astype(np.float64)
    finite_a, finite_b = usable(a), usable(b)
    both = finite_a & finite_b
    return Pair(
        name=f"{names[0]}={names[1]}",
        first_name=names[0],
        second_name=names[1],
        tokens=tokens.pick(both),
        first=a[both],
        second=b[both],
        lost=tokens.pick(~both),
        lost_first=int(np.count_nonzero(~finite_a)),
        lost_second=int(np.count_nonzero(~finite_b)),
    )


def usable(values: Floats) -> Bools:
    """Which values are finite and no mark for "none"."""
    flags: Bools = np.abs(values) < LARGEST  # NaN compares false
    return flags


def ratio_of(log_ratio: Floats) -> Floats:
    """[N]: exp(clamp(l, -20, 20))."""
    return np.exp(np.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))


def measure(pair: Pair, clip: tuple[float, float]) -> dict[str, Number]:
    """The numbers of a pair.

    mean, p99, p999, max   of |l|, quantiles by linear interpolation
    k1, k3                 mean(-l) and mean(w - 1 - l), estimates of the KL divergence from the second to the first
    k1_error               std(l) / sqrt(tokens), the standard error of k1
    k1_k3_ratio            k1 / k3; means something only where k1 is several errors from 0
    clipped_low_ratio, clipped_high_ratio, clipped_ratio   shares of tokens with w < 1 - clip[0], w > 1 + clip[1], and either
    tokens, nonfinite      counts; when no token is left, all but these are None
    """
    counts: dict[str, Number] = {"tokens": len(pair.first), "nonfinite": len(pair.lost.row)}
    if not len(pair.first):
        names = ("mean", "p99", "p999", "max", "k1", "k1_error", "k3", "k1_k3_ratio")
        return counts | dict.fromkeys((*names, "clipped_low_ratio", "clipped_high_ratio", "clipped_ratio"))
    log_ratio, gap = pair.log_ratio, pair.gap
    p99, p999 = np.quantile(gap, (0.99, 0.999))
    k1 = float(np.mean(-log_ratio))
    k3 = float(np.mean(np.expm1(np.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)) - log_ratio))
    low, high = clipped(log_ratio, clip)
    return counts | {
        "mean": float(np.mean(gap)),
        "p99": float(p99),
        "p999": float(p999),
        "max": float(np.max(gap)),
        "k1": k1,
        "k1_error": float(np.std(log_ratio)) / math.sqrt(len(log_ratio)),
        "k3": k3,
        "k1_k3_ratio": k1 / k3 if k3 > 0 else None,
        "clipped_low_ratio": float(np.mean(low)),
        "clipped_high_ratio": float(np.mean(high)),
        "clipped_ratio": float(np.mean(low | high)),
    }


def clipped(log_ratio: Floats, clip: tuple[float, float]) -> tuple[Bools, Bools]:
    """Which tokens a policy loss with this clip range, [1 - low, 1 + high], would clip: below, above."""
    ratio = ratio_of(log_ratio)
    return ratio < 1 - clip[0], ratio > 1 + clip[1]


def place_table(pair: Pair, clip: tuple[float, float]) -> Table:
    """|l| by place in the response: a shift, a wrong prompt or an error that grows shows here."""
    place, gap = pair.tokens.place(), pair.gap
    low, high = clipped(pair.log_ratio, clip)
    rows = []
    for number, name in enumerate(PLACES):
        here = place == number
        if not here.any():
            continue
        numbers = (float(np.mean(gap[here])), float(np.quantile(gap[here], 0.99)), float(np.max(gap[here])))
        share = percent(float(np.mean((low | high)[here])))
        rows.append((name, shown(int(np.count_nonzero(here))), *map(shown, numbers), share))
    header = ("place", "tokens", "mean |l|", "p99 |l|", "max |l|", "clipped")
    return Table(f"{pair.name} by place in the response", header, tuple(rows), frozenset({"place"}))


def worst_table(pair: Pair, most: int) -> Table:
    """The tokens with the largest |l|, ties by row and position."""
    order = np.lexsort((pair.tokens.column, pair.tokens.row, -pair.gap))[:most]
    log_ratio = pair.log_ratio
    rows = tuple(
        (
            str(pair.tokens.row[at]),
            str(pair.tokens.column[at]),
            f"{pair.tokens.index[at] + 1} of {pair.tokens.of[at]}",
            shown(float(pair.first[at])),
            shown(float(pair.second[at])),
            shown(float(log_ratio[at])),
            shown(float(ratio_of(log_ratio[at : at + 1])[0])),
        )
        for at in order
    )
    header = ("row", "position", "token", f"logprob {pair.first_name}", f"logprob {pair.second_name}", "l", "ratio")
    return Table(f"{pair.name}: the tokens furthest apart", header, rows)

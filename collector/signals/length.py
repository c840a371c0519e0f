"""B7: what happens to the length of responses, correct and incorrect apart.

    response_length_correct_slope     least-squares slope over the last 20 records, as a share of their mean per record
    response_length_incorrect_slope   likewise
    length_hack          1 while both grow and the correct ones grow faster: length is being rewarded
    length_norm_bias     1 while only the incorrect ones grow: the loss is normalised per response
    length_collapse      1 while the mean length of 3 records is under 50 tokens and under 0.3 of its clean baseline
    all_truncated        1 while every response ends at the limit: truncated_ratio >= 0.99, or, where nobody logs that, the
                         shortest response is as long as the longest and as config.max_response_length

"grows" is a slope above 0.5 % per record and a Mann-Kendall z above 2, over at least 8 finite values. A flag is there at
records that bring its inputs. All truncated may still learn (the reward says so); it is told, not judged. Values that are not
finite are left out, and the others close ranks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import isfinite
from typing import Final

from collector.catalogue import Metric
from collector.model import Baseline
from collector.samples import INF
from collector.series import Series, window
from collector.signals.protocol import Block, Derived, Row, RunState, Signal
from collector.signals.trend import MannKendall, level, line

CORRECT: Final = "response_length_correct_mean"
INCORRECT: Final = "response_length_incorrect_mean"
MEAN: Final = "response_length_mean"
TRUNCATED: Final = "truncated_ratio"
SHORTEST: Final = "response_length_min"
LONGEST: Final = "response_length_max"
WINDOW: Final = 20
GROWTH: Final = 0.005
"""Share of the mean per record."""
SURE: Final = 2.0
SHORT: Final = 3
SHORT_TOKENS: Final = 50.0
LONG: Final = SHORT * SHORT_TOKENS
"""One response length like this, and the mean of three is not short."""
SHORT_SHARE: Final = 0.3
ALL: Final = 0.99

METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "response_length_correct_slope", "1", "slope of response_length_correct_mean over 20 records, share of it per record"
    ),
    Metric("response_length_incorrect_slope", "1", "slope of response_length_incorrect_mean, share of it per record"),
    Metric("length_hack", "1", "1 while correct and incorrect responses grow, and the correct ones faster, else 0"),
    Metric("length_norm_bias", "1", "1 while only incorrect responses grow, else 0"),
    Metric("length_collapse", "1", "1 while responses have shrunk to a few tokens, else 0"),
    Metric("all_truncated", "1", "1 while every response ends at the length limit, else 0"),
)
_SLOPES: Final = Block("response_length_correct_slope", "response_length_incorrect_slope", "length_hack", "length_norm_bias")
_COLLAPSE: Final = Block("length_collapse")
_ALL_TRUNCATED: Final = Block("all_truncated")


class Length(Signal):
    """Stateless: everything follows from the stored samples, the baseline and the configuration."""

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        arrived, series, step = run.arrived, run.series, run.step
        if (CORRECT in arrived or INCORRECT in arrived) and CORRECT in series and INCORRECT in series:
            if row.late:
                _apart(window(series[CORRECT], step, WINDOW), window(series[INCORRECT], step, WINDOW), derived)
            else:
                _apart(series[CORRECT].values[-WINDOW:], series[INCORRECT].values[-WINDOW:], derived)
        if MEAN in arrived and (baseline := run.baselines.get(MEAN)) is not None:
            if (collapsed := _collapsed(series[MEAN], baseline, step, row.late)) is not None:
                derived.blocks.append(_COLLAPSE)
                derived.values.append(1.0 if collapsed else 0.0)
        if TRUNCATED in arrived or SHORTEST in arrived or LONGEST in arrived:
            ratio = series[TRUNCATED].at(step) if TRUNCATED in series else None
            cut = ratio >= ALL if ratio is not None and isfinite(ratio) else _at_the_limit(run)
            if cut is not None:
                derived.blocks.append(_ALL_TRUNCATED)
                derived.values.append(1.0 if cut else 0.0)


def _apart(correct: array[float], incorrect: array[float], derived: Derived) -> None:
    fit, other = line(correct), line(incorrect)
    if fit is None or other is None or fit[1] <= 0.0 or other[1] <= 0.0:
        return
    slope, other_slope = fit[0] / fit[1], other[0] / other[1]
    # The test is for the few records at which a slope is steep: it costs ten times as much.
    incorrect_grows = other_slope > GROWTH and _rises(incorrect)
    correct_grows = incorrect_grows and slope > GROWTH and _rises(correct)
    hack = correct_grows and slope > other_slope
    derived.blocks.append(_SLOPES)
    derived.values += (slope, other_slope, 1.0 if hack else 0.0, 1.0 if incorrect_grows and not correct_grows else 0.0)


def _rises(values: Iterable[float]) -> bool:
    z = MannKendall(WINDOW, values).z()
    return z is not None and z > SURE


def _collapsed(series: Series, baseline: Baseline, step: int, late: bool) -> bool | None:
    if not late and LONG < series.values[-1] < INF:
        return False  # whatever the two before it: there are no negative lengths
    mean = level(series, step, SHORT)
    return None if mean is None else mean < SHORT_TOKENS and mean < SHORT_SHARE * baseline.centre


def _at_the_limit(run: RunState) -> bool | None:
    """By the shortest and the longest response of the step."""
    shortest, longest, limit = _now(run, SHORTEST), _now(run, LONGEST), run.config.get("max_response_length")
    if shortest is None or longest is None or not isinstance(limit, int | float):
        return None
    return shortest == longest == limit


def _now(run: RunState, name: str) -> float | None:
    series = run.series.get(name)
    value = None if series is None else series.at(run.step)
    return value if value is not None and isfinite(value) else None

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

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any, Final

from collector.catalogue import Metric
from collector.series import window
from collector.signals.protocol import Block, Derived, Row, RunState
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
SHORT_TOKENS: Final = 50.0
SHORT_SHARE: Final = 0.3
ALL: Final = 0.99

METRICS: Final = (
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


class Length:
    """Stateless: everything follows from the stored samples, the baseline and the configuration."""

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        arrived, series = run.arrived, run.series
        if (CORRECT in arrived or INCORRECT in arrived) and CORRECT in series and INCORRECT in series:
            correct, incorrect = series[CORRECT], series[INCORRECT]
            _apart(window(correct, run.step, WINDOW), window(incorrect, run.step, WINDOW), derived)
        if MEAN in arrived and (collapsed := _collapsed(run)) is not None:
            derived.add(_COLLAPSE, float(collapsed))
        if (TRUNCATED in arrived or SHORTEST in arrived or LONGEST in arrived) and (cut := _all_truncated(run)) is not None:
            derived.add(_ALL_TRUNCATED, float(cut))

    def cut(self, step: int) -> None:
        """Nothing is kept."""

    def phase_changed(self, changed: Collection[str]) -> None:
        """Nothing is kept."""

    def breaching(self, keys: Collection[str]) -> None:
        """Nothing is learnt here."""

    def dump(self) -> Any:
        return None

    def load(self, state: Any) -> None:
        """Nothing is kept."""


def _apart(correct: Sequence[float], incorrect: Sequence[float], derived: Derived) -> None:
    fit, other = line(correct), line(incorrect)
    if fit is None or other is None or fit[1] <= 0.0 or other[1] <= 0.0:
        return
    slope, other_slope = fit[0] / fit[1], other[0] / other[1]
    # The test is for the few records at which a slope is steep: it costs ten times as much.
    incorrect_grows = other_slope > GROWTH and _rises(incorrect)
    correct_grows = incorrect_grows and slope > GROWTH and _rises(correct)
    hack = correct_grows and slope > other_slope
    derived.add(_SLOPES, slope, other_slope, float(hack), float(incorrect_grows and not correct_grows))


def _rises(values: Sequence[float]) -> bool:
    z = MannKendall(WINDOW, values).z()
    return z is not None and z > SURE


def _collapsed(run: RunState) -> bool | None:
    baseline = run.baselines.get(MEAN)
    if baseline is None or (mean := level(run.series[MEAN], run.step, 3)) is None:
        return None
    return mean < SHORT_TOKENS and mean < SHORT_SHARE * baseline.centre


def _all_truncated(run: RunState) -> bool | None:
    """By the share where there is one, else by the shortest and the longest response of the step."""
    ratio = _now(run, TRUNCATED)
    if ratio is not None:
        return ratio >= ALL
    shortest, longest, limit = _now(run, SHORTEST), _now(run, LONGEST), run.config.get("max_response_length")
    if shortest is None or longest is None or not isinstance(limit, int | float):
        return None
    return shortest == longest == limit


def _now(run: RunState, name: str) -> float | None:
    series = run.series.get(name)
    value = None if series is None else series.at(run.step)
    return value if value is not None and isfinite(value) else None

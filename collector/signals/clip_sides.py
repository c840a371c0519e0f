"""B6: on which side is the policy clipped, given which way its advantages point?

    high = share of the tokens with advantage > 0 that are clipped above      (mean of the last 5 records)
    low  = share of the tokens with advantage < 0 that are clipped below      (likewise)

    clip_side_balance      = (high - low) / (high + low)      1 = only above, -1 = only below, 0 also where neither is clipped
    clip_low_heavy_records = records in a row at which low > 1 % and high < low / 10

Conditioned on the sign, because many low hits may only mean many negative advantages. Where the shares given the sign are not
logged, they are made of the plain shares and positive_advantage_token_ratio (and zero_advantage_token_ratio, if there is one):
the same quantity. Where only the plain shares are, those are compared, and the series are `proxy`.
Low heavy with high near zero: the policy only pushes away from what it did, which costs entropy. Values that are not finite
are left out of the means.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any, Final

from collector.catalogue import Metric
from collector.model import Provenance
from collector.signals.protocol import Block, Derived, Row, RunState, Signal
from collector.signals.trend import level

HIGH: Final = "ppo_clip_high_ratio"
LOW: Final = "ppo_clip_low_ratio"
HIGH_GIVEN: Final = "ppo_clip_high_given_positive_ratio"
LOW_GIVEN: Final = "ppo_clip_low_given_negative_ratio"
POSITIVE: Final = "positive_advantage_token_ratio"
ZERO: Final = "zero_advantage_token_ratio"
WINDOW: Final = 5
HEAVY: Final = 0.01
LOPSIDED: Final = 10.0

METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "clip_side_balance",
        "1",
        "(high - low) / (high + low) of the clipped shares given the advantage's sign; -1 = only below, 0 = alike or none",
    ),
    Metric("clip_low_heavy_records", "count", "records in a row with over 1 % clipped below and not a tenth of that above"),
)
_SIGNAL: Final = Block(*(metric.name for metric in METRICS))
_PROXY: Final = Block(*(metric.name for metric in METRICS), provenance=Provenance.PROXY)


class ClipSides(Signal):
    """How many records in a row are heavy on the low side; the shares follow from the stored samples."""

    def __init__(self) -> None:
        self._step = -1
        self._before = 0
        """Records in a row before that step."""
        self._in_a_row = 0

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        """Compare the two sides at a record that brings one of them."""
        series = run.series
        given = HIGH_GIVEN in series and LOW_GIVEN in series
        above, below = (HIGH_GIVEN, LOW_GIVEN) if given else (HIGH, LOW)
        arrived = run.arrived
        if (above not in arrived and below not in arrived) or above not in series or below not in series:
            return
        high, low = level(series[above], run.step, WINDOW), level(series[below], run.step, WINDOW)
        if high is None or low is None:
            return
        block = _SIGNAL
        if not given:
            shares = _signs(run)
            if shares is None:
                block = _PROXY
            else:
                positive, negative = shares
                high = high / positive if positive > 0.0 else 0.0
                low = low / negative if negative > 0.0 else 0.0
        both = high + low
        balance = (high - low) / both if both > 0.0 and isfinite(both) else 0.0
        heavy = low > HEAVY and high < low / LOPSIDED
        derived.blocks.append(block)
        derived.values += (balance, float(heavy) if row.late else self._count(run.step, heavy))

    def _count(self, step: int, heavy: bool) -> float:
        """Records in a row up to this one; a further row of the same step judges the step anew."""
        if step != self._step:
            self._step, self._before = step, self._in_a_row
        self._in_a_row = self._before + 1 if heavy else 0
        return float(self._in_a_row)

    def cut(self, step: int) -> None:
        self._step, self._before, self._in_a_row = -1, 0, 0

    def phase_changed(self, changed: Collection[str]) -> None:
        """The window forgets by itself."""

    def breaching(self, keys: Collection[str]) -> None:
        """Nothing is learnt here."""

    def dump(self) -> Any:
        return [self._step, self._before, self._in_a_row]

    def load(self, state: Any) -> None:
        self._step, self._before, self._in_a_row = state


def _signs(run: RunState) -> tuple[float, float] | None:
    """Shares of tokens with positive and with negative advantage; None when nobody logs them."""
    series = run.series
    if POSITIVE not in series or (positive := level(series[POSITIVE], run.step, WINDOW)) is None:
        return None
    zero = level(series[ZERO], run.step, WINDOW) if ZERO in series else None
    return positive, max(0.0, 1.0 - positive - (zero or 0.0))

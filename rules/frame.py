"""What a compiled expression sees while it is evaluated: one run at one record, and how to find samples in it.

Truth values are small integers, ordered so that `and` is the minimum and `or` the maximum (Kleene's logic with one more
value): FALSE < UNKNOWN < NON_FINITE < TRUE. A NaN beside a missing metric in an `and` stays unknown; in an `or` it counts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, Protocol

from collector.model import RunView, SeriesView

FALSE: Final = 0
UNKNOWN: Final = 1
NON_FINITE: Final = 2
TRUE: Final = 3


class FiringView(Protocol):
    """What expressions may ask about other alerts of the run."""

    def fires(self, rule_id: str) -> bool:
        """Whether the alert fires now, whatever its own labels."""

    def last_fired(self, rule_id: str) -> int:
        """Record number at which it last was firing; 0 = never."""


class NothingFires:
    """No alert fires and none ever did: for record rules and for expressions on their own."""

    def fires(self, rule_id: str) -> bool:
        return False

    def last_fired(self, rule_id: str) -> int:
        return 0


Decisive = tuple[float, float | None, str]
"""Value, limit and operator of the comparison that decided."""


class Frame:
    """One run at one record. Reused for all rules of the record; the decisive comparison and `why` are those of the last
    evaluation, once `clear` was called before it."""

    __slots__ = ("alerts", "brought", "fan", "limit", "series", "silence", "step", "symbol", "value", "view", "why")

    def __init__(self, view: RunView, alerts: FiringView, silence: float = 0.0) -> None:
        self.view = view
        series = view.series
        self.series: dict[str, SeriesView] = series if isinstance(series, dict) else dict(series)
        self.step = view.step
        self.alerts = alerts
        self.silence = silence
        """Seconds since the newest record arrived; 0 while a record is evaluated."""
        self.fan: Mapping[str, str] | None = None
        """Series key by bare name, for the labelled metrics of the instance that is evaluated."""
        # The decisive comparison. Three attributes: a record makes dozens, and a tuple for each costs more than they do.
        self.value: float | None = None
        self.limit: float | None = None
        self.symbol = ""
        """Its operator; empty where nothing was compared."""
        self.why = ""
        """Why the result is UNKNOWN."""
        self.brought: array[int] | None = None
        """Steps that are known to end at the current one; most series share one array of them."""

    @property
    def decisive(self) -> Decisive | None:
        """The comparison that decided; None where nothing was compared."""
        value = self.value
        return None if not self.symbol or value is None else (value, self.limit, self.symbol)

    def clear(self) -> None:
        """Forget the evaluation before."""
        self.symbol = ""
        self.why = ""

    def brings(self, steps: array[int]) -> bool:
        """Whether a series with these steps has its newest sample at the current step."""
        if steps and steps[-1] == self.step:
            self.brought = steps
            return True
        return False

    def find(self, key: str) -> SeriesView | None:
        """A series by its key, or by its bare name in a fanned-out instance."""
        series = self.series.get(key)
        if series is None and self.fan is not None:
            series = self.series.get(self.fan.get(key, key))
        return series

    def resolved(self, key: str) -> str:
        return key if self.fan is None else self.fan.get(key, key)

    def end(self, steps: array[int]) -> int:
        """Index behind the sample of the current step; 0 when this step does not carry the series."""
        if not steps:
            return 0
        step, newest = self.step, steps[-1]
        if newest <= step:
            return len(steps) if newest == step else 0
        place = bisect_left(steps, step)
        return place + 1 if steps[place] == step else 0

    def missing(self, key: str) -> None:
        self.why = f"{self.resolved(key)} is not in this record"

    def short(self, key: str, have: int, needed: int) -> None:
        self.why = f"{self.resolved(key)} has {have} of {needed} records"

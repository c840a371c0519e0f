"""Where a record belongs in a run: which attempt, and whether its step is new, known, late, or the first after a restart.

Attempts. `declared` is what the trainer says; `attempt` is ours, and differs once a job restarted without saying so. Both only
grow.

Steps, within the declared attempt:
    above the newest                          NEW
    the newest, or one that is there          MERGE
    up to 8 behind, not there                 LATE
    further behind, event time not older      RESUME: the job restarted without saying so
    further behind, event time older          TOO_LATE: a straggler, or a row delivered a second time
The event time tells the last two apart, as a job that restarted writes later than everything it wrote before.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from tocsin import wire

REORDER_WINDOW: Final = 8
"""How many steps a row may be behind the newest one and still be put into its place."""


class Place(enum.Enum):
    """Where a step record goes."""

    NEW = "new"
    MERGE = "merge"
    LATE = "late"
    RESUME = "resume"
    TOO_LATE = "too_late"
    OLD_ATTEMPT = "old_attempt"


# Once here: an enumeration looks its members up anew each time, and a record asks for a dozen.
_NEW, _MERGE, _LATE, _RESUME, _TOO_LATE, _OLD_ATTEMPT = Place


class Order:
    """Attempt and step order of one run."""

    __slots__ = (
        "_announced",
        "_redeclared",
        "_restarted_at",
        "attempt",
        "declared",
        "ended_at",
        "last_step",
        "newest_time",
    )

    def __init__(self) -> None:
        self.attempt = 0
        """0 until the first record."""
        self.declared = 0
        self.last_step = -1
        """-1 until the first step record."""
        self.newest_time = float("-inf")
        self.ended_at: float | None = None
        self._announced = False
        """A further attempt was opened and has brought no step yet."""
        self._redeclared = False
        """The run record came again, unchanged, for the same attempt: any drop of the step means a restart."""
        self._restarted_at = float("-inf")
        """Event time at which an undeclared restart began; older rows belong to the attempt before."""

    @property
    def opened(self) -> bool:
        return self.attempt > 0

    def is_old(self, record: wire.Record) -> bool:
        """Whether a record belongs to an attempt that is over."""
        return record.attempt < self.declared or (record.attempt == self.declared and record.time < self._restarted_at)

    def declare(self, attempt: int, time: float, reconfigured: bool) -> None:
        """A run record that is not old: it opens the run, opens a further attempt, or declares the present one again."""
        if attempt > self.declared:
            self._open(attempt)
        elif self.last_step >= 0 and time > self.newest_time and not reconfigured:
            self._redeclared = True
        self.newest_time = max(self.newest_time, time)

    def end(self, attempt: int, time: float) -> None:
        """An end record that is not old."""
        if attempt > self.declared:
            self._open(attempt)
        self.ended_at = time
        self.newest_time = max(self.newest_time, time)

    def place(self, record: wire.StepRecord, steps: Sequence[int]) -> Place:
        """Where a step record goes, and the order after it. `steps` are those that the run still holds."""
        attempt, step, time = record.attempt, record.step, record.time
        if attempt > self.declared:
            self._open(attempt)
        elif attempt < self.declared or time < self._restarted_at:
            return _OLD_ATTEMPT
        elif self.ended_at is not None and time > self.ended_at:
            self._open(attempt)  # the job goes on after its end record: it was restarted
        place = self._place(step, time, steps)
        if place is _TOO_LATE:
            return place
        if place is _RESUME:
            if not self._announced:
                self._open(attempt)
                self._restarted_at = time
            self._announced = False
            self.last_step = step
        elif place is _NEW:
            self.last_step = step
            self._redeclared = False
        # The newest step has the newest time, also where a clock was wrong before it: one row from the future must not hide
        # a restart until then.
        if place is _NEW or time > self.newest_time:
            self.newest_time = time
        return place

    def _place(self, step: int, time: float, steps: Sequence[int]) -> Place:
        last = self.last_step
        if self._announced:
            return _RESUME
        if step > last:
            return _NEW
        later = time >= self.newest_time
        if self._redeclared and later and step < last:
            return _RESUME
        if last - step > REORDER_WINDOW:
            return _RESUME if later else _TOO_LATE
        at = bisect_left(steps, step)
        return _MERGE if at < len(steps) and steps[at] == step else _LATE

    def _open(self, declared: int) -> None:
        self._announced = self.last_step >= 0
        self.attempt = max(declared, self.attempt + 1) if self._announced else max(declared, self.attempt)
        if declared > self.declared:
            self._restarted_at = float("-inf")
        self.declared = declared
        self.ended_at = None
        self._redeclared = False

    def dump(self) -> Any:
        drops = [self._announced, self._redeclared, self._restarted_at]
        return [*drops, self.attempt, self.declared, self.ended_at, self.last_step, self.newest_time]

    def load(self, state: Any) -> None:
        self._announced, self._redeclared, self._restarted_at, *rest = state
        self.attempt, self.declared, self.ended_at, self.last_step, self.newest_time = rest

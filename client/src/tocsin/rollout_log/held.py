"""Samples that wait for the record of their step.

A trainer logs its rollouts before it trains on them and the metrics after, often of every tenth step only. A record with a
sample and nothing else would be a step without metrics to every rule that counts records, so samples wait: one travels in the
record of the metrics of its step, or follows that record. Those of steps whose metrics are never logged stay out of the records
(the files have them), but for the last one before the end, which is what a reader of a crash looks for.

A reporter that logs rollouts only (its metrics take another way) has records of their own, two steps late, so that they come
after the metrics.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final, NamedTuple

from tocsin.build import step_number
from tocsin.rollout_log.writer import Sample

AHEAD: Final = 64
"""Steps that the rollouts may be ahead of the metrics."""
ALONE: Final = 2
"""Steps that are held by a reporter without metrics."""
NEAR: Final = 8
"""The collector takes rows of one attempt up to so many steps apart as one run that goes on."""
_PER_STEP: Final = 8
"""Samples of one step that are held: calls of `log_rollouts`."""


class Row(NamedTuple):
    """What has to be sent as a row of its own."""

    step: int
    time: float
    samples: tuple[Sample, ...]


class Held:
    """The samples of one reporter. Thread-safe; every method may be called from a signal handler, and none raises."""

    def __init__(self) -> None:
        self.unmatched = 0
        """Steps whose samples are in no record because the metrics were logged under other steps."""
        self._lock = threading.RLock()
        self._rows: dict[int, Row] = {}
        self._logged: deque[int] = deque(maxlen=NEAR)
        """Steps whose metrics were logged last."""

    def add(self, step: int, time: float, sample: Sample) -> list[Row]:
        """A new sample. Returns what is to be sent now."""
        with self._lock:
            if step in self._logged:
                return [Row(step, time, (sample,))]
            earlier = self._rows.get(step, Row(step, time, ()))
            self._rows[step] = earlier._replace(samples=(*earlier.samples, sample)[-_PER_STEP:])
            if not self._logged:
                return self._taken(sorted(self._rows)[:-ALONE])
            self.unmatched += len(self._taken(sorted(self._rows)[:-AHEAD]))
            return []

    def logged(self, step: Any) -> tuple[Sample, ...]:
        """Metrics are being logged: the samples that go with them."""
        number = _plain(step)
        with self._lock:
            if number is None:
                return ()
            if self._logged and number < self._logged[-1]:
                self._logged.clear()  # back to a checkpoint: the collector forgets the steps after it, too
            self._logged.append(number)
            if not self._rows:
                return ()
            found = self._taken([number])
            earlier = self._taken([other for other in list(self._rows) if other < number])
            if not found:
                self.unmatched += len(earlier)
                return ()
            return found[0].samples

    def rest(self, final: bool) -> list[Row]:
        """What is still to be sent: at the end, or when a reporter without metrics flushes."""
        with self._lock:
            if not self._logged:
                return self._taken(sorted(self._rows))
            if not final:
                return []
            last = self._logged[-1]
            rows = self._taken(sorted(self._rows))
            ahead = [row for row in rows if 0 < row.step - last <= NEAR]
            self.unmatched += sum(row.step - last > NEAR for row in rows)
            return ahead[-1:]  # one: several steps without metrics would look as if the metrics had vanished

    def _taken(self, steps: list[int]) -> list[Row]:
        """These rows, which wait no longer; one that a signal handler took meanwhile is left out."""
        return [row for step in steps if (row := self._rows.pop(step, None)) is not None]


def _plain(step: Any) -> int | None:
    """The number of a step that can be had without waiting for a device."""
    if type(step) is int:
        return step
    try:
        device = getattr(step, "device", "cpu")
        return step_number(step) if getattr(device, "type", device) == "cpu" else None
    except Exception:
        # Anything may have been passed as a step; the record itself is refused, with its reason, where it is built.
        return None

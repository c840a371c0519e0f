"""What /metrics says of the input: how much of it waits, and when the age of the newest judged record is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from collector import health
from collector.health import Health

IDLE_SECONDS: Final = 60.0
"""Several scrapes, so that an age is seen before it is over."""


class InputLag:
    """Of one source. Looked at on the thread that evaluates, which sets the age."""

    def __init__(self, waiting: Callable[[], Mapping[str, int]], usable: Callable[[], bool], own: Health) -> None:
        """`waiting` gives what waits by partition, nothing where nothing does; `usable` says whether that can be believed."""
        self._waiting = waiting
        self._usable = usable
        self._health = own
        self._judged = 0.0
        self._since = 0.0

    def look(self, now: float) -> None:
        """Tell what waits. A collector that catches up with records of an hour ago and then gets none is not an hour behind:
        when nothing came for a minute and nothing waits, the age is 0."""
        waiting = self._waiting()
        self._health.replace(health.LAG, {name: float(count) for name, count in waiting.items()})
        judged = sum(self._health.values(health.RECORDS).values())
        if judged != self._judged or now < self._since:  # `now < since`: the clock was set back
            self._judged, self._since = judged, now
        elif now - self._since >= IDLE_SECONDS and not waiting and self._usable():
            if self._health.values(health.EVALUATION_LAG):
                self._health.set(health.EVALUATION_LAG, 0.0)

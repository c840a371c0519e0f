"""Whether silence may be judged: only of a time in which nothing waited to be read."""

from __future__ import annotations

from typing import Final

FRESH_SECONDS: Final = 30.0
"""For so long a look at the source says that nothing waits; a loop at work looks several times a second."""


class Quietness:
    """What the last look at the source said."""

    def __init__(self) -> None:
        self._caught_up = False
        self._looked_at = 0.0

    def looked(self, caught_up: bool, now: float) -> None:
        """The source was read."""
        self._caught_up, self._looked_at = caught_up, now

    def forget(self) -> None:
        """Nobody knows what waits: runs have come from elsewhere, or the source is read anew."""
        self._caught_up = False

    def known(self, now: float) -> bool:
        """Whether the time until now is one in which nothing waited. After a machine was suspended, a disk hung or the clock
        was put forward nobody knows: whatever came in between has yet to be read, and all runs would seem to have stalled."""
        return self._caught_up and now - self._looked_at <= FRESH_SECONDS

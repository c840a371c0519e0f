"""What became of a record: the answer of `Run.apply`, whose words are the log fields and metric labels."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from collector.names import Refused


class Outcome(enum.StrEnum):
    """What a record did to its run."""

    OPENED = "opened"
    """A run record opened the run or a further attempt."""
    RECONFIGURED = "reconfigured"
    """A run record changed labels, configuration or links of the present attempt."""
    STEP = "step"
    MERGED = "merged"
    """A further row of a step added or overwrote values."""
    LATE = "late"
    """A row was put into its place behind the newest step."""
    RESUMED = "resumed"
    """The first step of a further attempt, declared or not; windows were cut at it."""
    ENDED = "ended"
    DUPLICATE = "duplicate"
    """Everything in it was there; nothing changed."""
    DROPPED_LATE = "dropped_late"
    """Too far behind the newest step."""
    DROPPED_ATTEMPT = "dropped_attempt"
    """Of an attempt that is over."""

    @property
    def changed(self) -> bool:
        """Whether the run is another one now: it is to be evaluated and stored."""
        return self not in UNCHANGED


UNCHANGED: Final = frozenset({Outcome.DUPLICATE, Outcome.DROPPED_LATE, Outcome.DROPPED_ATTEMPT})


class Applied(msgspec.Struct, frozen=True):
    """The outcome, and what of the record was left out."""

    outcome: Outcome
    refused: tuple[Refused, ...] = ()
    """Metrics whose value is no number or whose name cannot be a series; the rest of the record lives."""
    over_limit: int = 0
    """Samples of series beyond `max_series`: the first ones are kept."""
    unknown_vocabulary: bool = False
    """`names` is not in the alias table: every key was kept under its own name."""
    phase_changed: tuple[str, ...] = ()
    """Declared configuration keys whose change began a new phase: baselines are learnt anew."""

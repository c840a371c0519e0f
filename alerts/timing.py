"""When who is told, as the configuration says it: what the planner of incidents asks about an alert and a receiver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rules.model import AlertEvent

RemindBy = Callable[[AlertEvent, str], Sequence[float]]
"""After how many seconds a receiver is reminded of a page, ascending."""
WaitBy = Callable[[AlertEvent, str], float]
"""For how many seconds an alert that pages nobody waits for others, before this receiver is told of all of them."""


class Escalation(NamedTuple):
    """Whom else to tell when nobody has acknowledged."""

    after: float
    """Seconds since the first was told."""
    to: tuple[str, ...]
    """Names of receivers."""


class StormLimit(NamedTuple):
    """How many incidents may be told within how long before further ones are told together."""

    incidents: int
    within: float
    """Seconds."""


EscalateBy = Callable[[AlertEvent], Sequence[Escalation]]
"""The escalations of an alert, of each route that decides."""


def _never(_event: AlertEvent, _name: str) -> Sequence[float]:
    return ()


def _at_once(_event: AlertEvent, _name: str) -> float:
    return 0.0


def _nobody(_event: AlertEvent) -> Sequence[Escalation]:
    return ()


@dataclass(frozen=True, slots=True)
class Timing:
    """By default all is told at once, and only once."""

    remind: RemindBy = _never
    wait: WaitBy = _at_once
    escalate: EscalateBy = _nobody
    storm: StormLimit | None = None
    """Without it each incident is told for itself, however many there are."""


AT_ONCE: Final = Timing()

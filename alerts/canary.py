"""The canary: a test alert that goes the whole way to one receiver, and who is told when it does not get through.

Here is what alerts.yaml says of it and where its alerts are routed, past all routes of the file: `service.canary` sends it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from alerts.durations import Duration, seconds
from alerts.routing import Match, Route, patterns

CANARY: Final = "tocsin-canary"
"""Rule id of the test alert."""
LOST: Final = "tocsin-canary-lost"
"""Rule id of the alert that it did not get through."""


class CanaryEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`canary:` of alerts.yaml."""

    receiver: str
    """Who gets the test alert."""
    tell: str | list[str]
    """Who is told when it is not delivered; others than `receiver`."""
    every: Duration = "1h"
    within: Duration = "5m"
    """For so long it may be under way."""

    def __post_init__(self) -> None:
        if self.receiver in self.told or not self.told:
            raise ValueError("`tell` names others than the receiver that is tried: who else should hear that it is deaf?")
        if seconds(self.every) < 2 * seconds(self.within):
            raise ValueError("`every` has to be at least twice `within`")
        if seconds(self.within) < 1.0:
            raise ValueError("`within` has to be at least 1s")

    @property
    def told(self) -> tuple[str, ...]:
        return (self.tell,) if isinstance(self.tell, str) else tuple(self.tell)


def canary_routes(entry: CanaryEntry | None) -> tuple[Route, ...]:
    """To be put before all other routes."""
    if entry is None:
        return ()
    return (
        Route(Match(rule=patterns([CANARY])), (entry.receiver,)),
        Route(Match(rule=patterns([LOST])), entry.told),
    )

"""One line for people about an incident, in the planner's words. Names in them are data: whoever shows a note cleans it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

GOES_ON: Final = "goes on as a louder page"
"""Why a page is ended while its alerts fire on."""
_LISTED: Final = 5


def moment(at: float, now: float) -> str:
    """`04:10 UTC`, with the date when that is not today's. Both in seconds since the epoch."""
    then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    return f"{then:%H:%M} UTC" if then.date() == today.date() else f"{then:%Y-%m-%d %H:%M} UTC"


def acknowledged(owner: str, until: float, now: float) -> str:
    """Who has it in hand, and for how long."""
    return f"acknowledged by {owner} until {moment(until, now)}"


def reminder(seconds: float) -> str:
    """For how long it has been open."""
    return f"reminder: open for {roughly(seconds)}"


def escalated(seconds: float) -> str:
    """Why somebody else is told now."""
    return f"escalated: nobody acknowledged within {roughly(seconds)}"


def unmuted(by: Sequence[str]) -> str:
    """Why something that began earlier is told now: what muted it, of several each once."""
    return f"{listed(list(dict.fromkeys(by)), ', ')} ended, it still fires"


def together(note: str, others: Sequence[str]) -> str:
    """A note on a message that is about one alert and tells of others as well."""
    with_them = f"together with {listed(others, ', ')}" if others else ""
    return "; ".join(part for part in (note, with_them) if part)


def counted(joined: int, over: int) -> str:
    """How a storm goes on."""
    return f"{joined} incident{'s' * (joined != 1)} so far, {over} over"


def all_over(joined: int) -> str:
    """The end of a storm."""
    return f"all {joined} incidents are over" if joined != 1 else "the one incident is over"


def closed(owner: str) -> str:
    """Who said that it is over."""
    return f"closed by {owner}"


def roughly(seconds: float) -> str:
    """In the largest unit that it fills."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def listed(notes: Sequence[str], separator: str = "; ") -> str:
    """Several notes as one; of many the first five and how many more."""
    more = len(notes) - _LISTED
    return separator.join([*notes[:_LISTED], *([f"and {more} more"] if more > 0 else [])])

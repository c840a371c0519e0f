"""Times of the wall clock in a time zone, weekly or once, and the instants that they are.

A clock that is put forward never shows some times, one that is put back shows some twice. What holds here:

- A time that the clock does not show is the moment at which it jumps: 02:30-03:30 on the night without a 02:30 begins at 03:00,
  and 02:15-02:45 does not take place.
- Of a time that it shows twice, the first is where hours begin and the second where they end: whoever looks at the clock and
  reads a time within the hours finds them in force, and they are one piece without a gap.

Hours that end before they begin (22:00-07:00) go on into the next day and belong to the day on which they begin.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from rules.names import suggestion

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|(24:00)")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]")
_DAY_MINUTES: Final = 24 * 60


class Hours(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`{days: [sat, sun], from: "22:00", to: "07:00", zone: Europe/Berlin}`, or once from "2026-12-01 22:00" to "...".

    Raises ValueError for times, days and zones that are none.
    """

    begins: str = msgspec.field(name="from")
    ends: str = msgspec.field(name="to")
    zone: str
    days: list[str] = []
    """On which weekly hours begin; all of them without it."""

    def __post_init__(self) -> None:
        _known_zone(self.zone)
        for day in self.days:
            if day not in DAYS:
                raise ValueError(f"no day is named {day!r}{suggestion(day, DAYS)} (write {', '.join(DAYS)})")
        if self.once:
            if self.days:
                raise ValueError('`days` belongs to weekly hours, which are written as from: "22:00"')
            if _moment(self.ends) <= _moment(self.begins):
                raise ValueError("it ends before it begins")
        elif _minutes(self.begins) == _minutes(self.ends) or self.begins == "24:00":
            raise ValueError('these hours are empty (the whole day is from: "00:00", to: "24:00")')

    @property
    def once(self) -> bool:
        """Whether they have a date, and come once."""
        dated = [_MOMENT.fullmatch(text) is not None for text in (self.begins, self.ends)]
        if any(dated) and not all(dated):
            raise ValueError('`from` and `to` are both times ("22:00") or both dates with times ("2026-12-01 22:00")')
        return all(dated)

    def told(self) -> str:
        """For people: `sat, sun 22:00-07:00 Europe/Berlin`."""
        days = f"{', '.join(self.days)} " if self.days else ""
        separator = " to " if self.once else "-"
        return f"{days}{self.begins}{separator}{self.ends} {self.zone}"


def end_of(hours: Hours, now: float) -> float | None:
    """The moment at which the hours that are in force at `now` end; None when none are. Seconds since the epoch.

    Weekly hours that follow each other without a break are one piece: 00:00-24:00 on sat and sun ends on Monday.
    """
    end: float | None = None
    for begins, ends in _near(hours, now):
        if begins <= now < ends or (end is not None and begins <= end < ends):
            end = ends
    return end


def next_of(hours: Hours, now: float) -> tuple[float, float] | None:
    """Beginning and end of the hours in force at `now`, else of the next ones; None for those that came once and are over.
    Seconds since the epoch. What follows without a break is one piece, as for `end_of`; it may have begun earlier than said
    when it is made of several days."""
    ahead = [(begins, ends) for begins, ends in _near(hours, now) if now < ends]
    if not ahead:
        return None
    begins = ahead[0][0]
    return begins, end_of(hours, max(begins, now)) or ahead[0][1]


def over_at(hours: Hours) -> float | None:
    """When hours that come once are over for good; None for weekly ones."""
    return instant(_moment(hours.ends), hours.zone, last=True) if hours.once else None


def instant(local: dt.datetime, zone: str, *, last: bool = False) -> float:
    """The moment at which the clocks of a zone show this; of two the first, or the `last`; the jump for one that is skipped."""
    info = ZoneInfo(zone)
    first, second = (local.replace(tzinfo=info, fold=fold).timestamp() for fold in (0, 1))
    if first <= second:
        return second if last else first
    # Skipped: read with the later offset it lies before the jump (`second`), with the earlier one not (`first`).
    return float(_jump(int(second), int(first), info))


def _jump(before: int, after: int, zone: ZoneInfo) -> int:
    """The second in (before, after] from which on another offset holds."""
    old = _offset(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if _offset(middle, zone) == old else (before, middle)
    return after


def _offset(at: int, zone: ZoneInfo) -> dt.timedelta | None:
    return dt.datetime.fromtimestamp(at, zone).utcoffset()


def _near(hours: Hours, now: float) -> list[tuple[float, float]]:
    """(begin, end) of the hours around `now`, in order: up to a week on, as that is how long a piece can be made of days."""
    if hours.once:
        return [(instant(_moment(hours.begins), hours.zone), instant(_moment(hours.ends), hours.zone, last=True))]
    begins, ends = _minutes(hours.begins), _minutes(hours.ends)
    days_on = 0 if ends > begins else 1
    today = dt.datetime.fromtimestamp(now, ZoneInfo(hours.zone)).date()
    found = []
    for ahead in range(-2, 9):
        day = today + dt.timedelta(days=ahead)
        if hours.days and DAYS[day.weekday()] not in hours.days:
            continue
        start = instant(_at(day, begins), hours.zone)
        end = instant(_at(day + dt.timedelta(days=days_on), ends), hours.zone, last=True)
        if start < end:
            found.append((start, end))
    return found


def _at(day: dt.date, minutes: int) -> dt.datetime:
    return dt.datetime.combine(day, dt.time()) + dt.timedelta(minutes=minutes)


def _minutes(clock: str) -> int:
    found = _CLOCK.fullmatch(clock)
    if found is None:
        raise ValueError(f'{clock[:20]!r} is no time of the day (write "07:30", in quotes)')
    return _DAY_MINUTES if found[3] else int(found[1]) * 60 + int(found[2])


def _moment(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f'{text[:20]!r} is no date with a time ({error}): write "2026-12-01 22:00"') from None


def _known_zone(name: str) -> None:
    if name not in _zones():
        raise ValueError(
            f"no time zone is named {name[:60]!r}{suggestion(name, _zones())} (write one such as Europe/Berlin, UTC)"
        )


@functools.cache
def _zones() -> frozenset[str]:
    """The IANA names of this system. Looking walks through files."""
    return frozenset(available_timezones())

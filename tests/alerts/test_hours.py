"""Hours of the wall clock, on the nights on which clocks are changed above all."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.muting.hours import DAYS, Hours, end_of, instant, next_of, over_at

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def hours(begins: str, ends: str, *days: str, zone: str = BERLIN) -> Hours:
    return Hours(begins=begins, ends=ends, zone=zone, days=list(days))


def test_a_night_belongs_to_the_day_on_which_it_begins() -> None:
    friday_night = hours("22:00", "07:00", "fri")  # 4 December 2026 is a Friday
    assert end_of(friday_night, at("2026-12-04T21:59:59+01:00")) is None
    assert end_of(friday_night, at("2026-12-04T22:00+01:00")) == at("2026-12-05T07:00+01:00")
    assert end_of(friday_night, at("2026-12-05T06:59:59+01:00")) == at("2026-12-05T07:00+01:00")
    assert end_of(friday_night, at("2026-12-05T07:00+01:00")) is None
    assert end_of(friday_night, at("2026-12-05T22:30+01:00")) is None


def test_days_without_a_break_are_one_piece() -> None:
    weekend = hours("00:00", "24:00", "sat", "sun")
    assert end_of(weekend, at("2026-12-05T00:00+01:00")) == at("2026-12-07T00:00+01:00")
    assert end_of(weekend, at("2026-12-06T23:59+01:00")) == at("2026-12-07T00:00+01:00")
    assert end_of(weekend, at("2026-12-04T23:59+01:00")) is None
    assert end_of(hours("22:00", "24:00"), at("2026-12-04T23:00+01:00")) == at("2026-12-05T00:00+01:00")
    assert end_of(hours("22:00", "00:00"), at("2026-12-04T23:00+01:00")) == at("2026-12-05T00:00+01:00")


def test_which_hours_are_next() -> None:
    friday_night = hours("22:00", "07:00", "fri")
    this, next_week = ("2026-12-04T22:00+01:00", "2026-12-05T07:00+01:00"), ("2026-12-11T22:00+01:00", "2026-12-12T07:00+01:00")
    for now, piece in (
        ("2026-12-04T21:00+01:00", this),
        ("2026-12-04T22:00+01:00", this),
        ("2026-12-05T06:59+01:00", this),
        ("2026-12-05T07:00+01:00", next_week),
    ):
        assert next_of(friday_night, at(now)) == (at(piece[0]), at(piece[1])), now
    weekend = hours("00:00", "24:00", "sat", "sun")
    assert next_of(weekend, at("2026-12-02T12:00+01:00")) == (at("2026-12-05T00:00+01:00"), at("2026-12-07T00:00+01:00"))
    once = hours("2026-12-01 22:00", "2026-12-02 04:00")
    begins, ends = at("2026-12-01T22:00+01:00"), at("2026-12-02T04:00+01:00")
    assert next_of(once, begins - 1e6) == next_of(once, ends - 1.0) == (begins, ends)
    assert next_of(once, ends) is None


def test_another_zone_is_another_time() -> None:
    night = hours("22:00", "07:00", zone="Asia/Shanghai")
    assert end_of(night, at("2026-12-04T14:00Z")) == at("2026-12-04T23:00Z")
    assert end_of(night, at("2026-12-04T13:59Z")) is None


def test_the_night_without_a_half_past_two() -> None:
    """29 March 2026 in Berlin: from 02:00 the clock goes to 03:00 (01:00 UTC)."""
    jump = at("2026-03-29T01:00Z")
    begins_in_it = hours("02:30", "03:30")
    assert end_of(begins_in_it, jump - 1) is None
    assert end_of(begins_in_it, jump) == at("2026-03-29T01:30Z")
    ends_in_it = hours("01:30", "02:30")
    assert end_of(ends_in_it, at("2026-03-29T00:30Z")) == jump
    assert end_of(ends_in_it, jump) is None
    within = hours("02:15", "02:45")
    assert [end_of(within, jump + minutes * 60) for minutes in range(-120, 120)] == [None] * 240
    assert end_of(within, at("2026-03-30T00:20Z")) == at("2026-03-30T00:45Z"), "the night after it is there again"


def test_the_night_with_two_half_past_twos() -> None:
    """25 October 2026 in Berlin: from 03:00 the clock goes back to 02:00 (01:00 UTC)."""
    twice = hours("02:30", "02:45")
    first, last = at("2026-10-25T00:30Z"), at("2026-10-25T01:45Z")
    assert end_of(twice, first - 1) is None
    assert end_of(twice, first) == last
    assert end_of(twice, at("2026-10-25T00:50Z")) == last, "one piece, although the clock shows 02:50"
    assert end_of(twice, last) is None
    night = hours("22:00", "02:30")
    assert end_of(night, at("2026-10-24T20:00Z")) == at("2026-10-25T01:30Z")


def test_a_whole_day_that_was_skipped() -> None:
    """Samoa went from 29 to 31 December 2011."""
    skipped = instant(dt.datetime(2011, 12, 30, 12), "Pacific/Apia")  # noqa: DTZ001 - a reading of a clock
    assert skipped == at("2011-12-31T00:00+14:00")


def test_once() -> None:
    window = hours("2026-12-01 22:00", "2026-12-02T04:00")
    assert window.once and over_at(window) == at("2026-12-02T04:00+01:00")
    assert end_of(window, at("2026-12-01T22:00+01:00")) == over_at(window)
    assert end_of(window, at("2026-12-02T04:00+01:00")) is None
    assert end_of(window, at("2026-12-01T21:59+01:00")) is None
    assert over_at(hours("22:00", "07:00")) is None


def test_how_they_are_told() -> None:
    assert hours("22:00", "07:00", "sat", "sun").told() == "sat, sun 22:00-07:00 Europe/Berlin"
    assert hours("2026-12-01 22:00", "2026-12-02 04:00").told() == "2026-12-01 22:00 to 2026-12-02 04:00 Europe/Berlin"


@pytest.mark.parametrize(
    ("begins", "ends", "days", "zone", "why"),
    [
        ("22:00", "07:00", [], "Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("22:00", "07:00", [], "../etc/passwd", "no time zone"),
        ("22:00", "07:00", ["sun", "mond"], BERLIN, "did you mean 'mon'"),
        ("22", "07:00", [], BERLIN, "no time of the day"),
        ("25:00", "07:00", [], BERLIN, "no time of the day"),
        ("07:00", "07:00", [], BERLIN, "empty"),
        ("24:00", "07:00", [], BERLIN, "empty"),
        ("22:00", "2026-12-02 04:00", [], BERLIN, "both"),
        ("2026-12-02 04:00", "2026-12-01 04:00", [], BERLIN, "ends before it begins"),
        ("2026-02-30 04:00", "2026-12-01 04:00", [], BERLIN, "no date"),
        ("2026-12-01 04:00", "2026-12-02 04:00", ["mon"], BERLIN, "`days` belongs to weekly hours"),
    ],
)
def test_what_is_no_time_is_told(begins: str, ends: str, days: list[str], zone: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Hours(begins=begins, ends=ends, zone=zone, days=days)


clocks = st.integers(0, 24 * 60 - 1).map(lambda minutes: f"{minutes // 60:02}:{minutes % 60:02}")
zones = st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC", "America/St_Johns"])
moments = st.integers(int(at("2026-01-01T00:00Z")), int(at("2027-12-31T00:00Z")))


def reads_inside(begins: str, ends: str, days: list[str], zone: str, now: float) -> bool:
    """Whether the clock on the wall shows a time within the hours: the definition without any arithmetic of instants."""
    local = dt.datetime.fromtimestamp(now, ZoneInfo(zone))
    clock = f"{local:%H:%M}"
    today, before = DAYS[local.weekday()], DAYS[local.weekday() - 1]
    if begins < ends:
        return begins <= clock < ends and (not days or today in days)
    return (clock >= begins and (not days or today in days)) or (clock < ends and (not days or before in days))


@given(clocks, clocks, st.lists(st.sampled_from(DAYS), max_size=3, unique=True), zones, moments)
def test_who_reads_a_time_within_them_finds_them_in_force(begins: str, ends: str, days: list[str], zone: str, now: int) -> None:
    if begins == ends:
        return
    found = end_of(Hours(begins=begins, ends=ends, zone=zone, days=days), now)
    offsets = {dt.datetime.fromtimestamp(now + shift, ZoneInfo(zone)).utcoffset() for shift in (-90_000, 0, 90_000)}
    inside = reads_inside(begins, ends, days, zone, now)
    assert found is not None or not inside
    if len(offsets) == 1:  # no change of the clocks nearby: the two are the same
        assert (found is not None) == inside


@given(clocks, clocks, zones, moments)
def test_an_end_is_an_end(begins: str, ends: str, zone: str, now: int) -> None:
    if begins == ends:
        return
    given_hours = Hours(begins=begins, ends=ends, zone=zone)
    if (end := end_of(given_hours, now)) is not None:
        assert now < end
        assert end_of(given_hours, end - 0.001) == end
        assert end_of(given_hours, end) is None

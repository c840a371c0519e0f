"""Clocks that jump, and nights on which the clock of people does: what is told is told once, and not an hour late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from alerts.matching import MatchEntry
from tests.faults.stage import START
from tests.faults.theatre import ALERTS, Theatre
from tests.kit.pipelines import steps
from tests.kit.receivers import Raw, Reply, Taken

HOUR = 3600.0
PATIENCE = 120.0
"""Seconds of true time within which a message has to be there, a retry of some seconds included."""


@pytest.mark.parametrize("restart", [False, True], ids=["lives", "restarts"])
@pytest.mark.parametrize("jump_at", [1, 2, 3, 4])
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_wall_clock_that_jumps(theatre: Callable[..., Theatre], jump: float, jump_at: int, restart: bool) -> None:
    """While both receivers misbehave, so that rows wait for a time and others are to be looked for."""
    play = theatre()
    stage = play.stage
    for number, value in enumerate([1.0, 20.0, 20.0, 1.0], start=1):
        play.slack.add(*([Taken(Raw(reset=True))] if number > 2 else []))
        play.pagerduty.add(*([Reply(503)] if number > 2 else []))
        stage.push(*steps("r", [value], first=number))
        stage.turn()
        if number == jump_at:
            stage.offset += jump
            if restart:
                stage.restart()
        stage.settle(PATIENCE)
    play.kept("r#1")


@pytest.mark.parametrize("hours", [14, -12], ids=["east", "west"])
def test_a_clock_that_shows_local_time_for_utc(theatre: Callable[..., Theatre], hours: int) -> None:
    """What arrived without an answer is found in the channel, whatever the times of both say."""
    play = theatre()
    play.stage.offset = hours * HOUR
    for number, value in enumerate([1.0, 20.0, 20.0, 1.0], start=1):
        play.slack.add(*([Taken(Raw(reset=True))] if number > 2 else []))
        play.stage.push(*steps("r", [value], first=number))
        play.stage.settle(PATIENCE)
    play.kept("r#1")


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_clock_that_jumps_while_a_warning_waits_for_others(theatre: Callable[..., Theatre], jump: float) -> None:
    play = theatre(alerts=ALERTS.replace("group_wait: 0s", "group_wait: 20s"), rules=WARNING_RULES)
    stage = play.stage
    stage.push(*steps("r", [1.0, 9.0]))
    stage.turn()
    stage.offset += jump
    stage.pass_(PATIENCE, every=5.0)
    (root,) = play.slack.channel.roots
    assert root.title.startswith("WARNING r: Lifted")
    stage.push(*steps("r", [1.0], first=3))
    stage.settle()
    assert root.title.startswith("RESOLVED") and len(play.slack.channel.roots) == 1


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_clock_that_jumps_under_a_silence(theatre: Callable[..., Theatre], jump: float) -> None:
    """A silence ends by the wall clock, whatever that says; what fires is told then, once."""
    play = theatre()
    stage = play.stage
    _silence(play, 4 * HOUR)
    stage.pass_(2 * HOUR, every=600.0)
    stage.push(*steps("r", [1.0, 20.0, 20.0]))
    stage.turn()
    stage.offset += jump
    stage.pass_(2 * HOUR - jump - 60.0, every=60.0)
    assert not play.slack.channel.messages and not play.pagerduty.events
    stage.pass_(120.0, every=5.0)
    play.kept("r#1", over=False)
    stage.push(*steps("r", [1.0], first=4))
    stage.settle()
    play.kept("r#1")


QUIET = """quiet_hours: [{from: "22:00", to: "07:00", zone: Europe/Berlin}]
"""
WARNING_RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: Lifted, id: lifted, expr: grad_norm > 5, severity: warning, summary: "Lifted"}
  - {alert: High, id: high, expr: grad_norm > 50, severity: page, summary: "High"}
"""


@pytest.mark.parametrize(
    ("evening", "ends"),
    [
        ("2026-10-24T21:00", "2026-10-25T06:00"),  # the night of 25 hours: 07:00 is 06:00 UTC
        ("2027-03-27T22:00", "2027-03-28T05:00"),  # the night of 23 hours: 07:00 is 05:00 UTC
        ("2026-12-01T22:00", "2026-12-02T06:00"),
    ],
    ids=["clock back", "clock forward", "an ordinary night"],
)
@pytest.mark.parametrize("dies", [False, True])
def test_a_night_on_which_the_clock_is_changed(theatre: Callable[..., Theatre], evening: str, ends: str, dies: bool) -> None:
    """A warning of the night waits for the morning, a page does not; the hour that comes twice does not tell it in between."""
    play = theatre(more=QUIET, rules=WARNING_RULES)
    stage = play.stage
    stage.offset = _utc(evening) - START
    stage.push(*steps("quiet", [9.0]), *steps("loud", [99.0]))
    stage.settle()
    assert list(play.pagerduty.opened) == ["tocsin:loud#1"]
    told_at = None
    while told_at is None:
        stage.pass_(600.0, every=600.0)
        if dies:
            stage.restart()
        if any(root.title.startswith("WARNING quiet") for root in play.slack.channel.roots):
            told_at = stage.wall()
        assert stage.wall() < _utc(ends) + 1200.0, "it was never told"
    assert _utc(ends) <= told_at <= _utc(ends) + 600.0
    stage.push(*steps("quiet", [1.0], first=2), *steps("loud", [1.0], first=2))
    stage.settle()
    assert len(play.slack.channel.roots) == 2 and all(root.title.startswith("RESOLVED") for root in play.slack.channel.roots)
    assert dict(play.pagerduty.opened) == {"tocsin:loud#1": 1} and not play.pagerduty.open


def _utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _silence(play: Theatre, seconds: float) -> None:
    now = play.stage.wall()
    play.stage.mutes.silence(MatchEntry(run="*"), "ada", "known", now, now + seconds)

"""Two hundred runs fail within ten seconds, the receivers misbehave, and the process dies in the middle of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.theatre import Theatre
from tests.kit.pipelines import steps
from tests.kit.receivers import Raw, Reply, Taken

RUNS, LIMIT = 200, 10
"""LIMIT is the default of `storm.incidents`."""
STORM = "tocsin.storm#1"


def runs_fail(play: Theatre, *, dies_at: int | None = None) -> None:
    """All of them within ten seconds."""
    for number in range(RUNS):
        play.stage.push(*steps(f"run-{number:03d}", [1.0, 20.0, 20.0]))
        if number % 20 == 19:
            play.stage.pass_(1.0)
        if number == dies_at:
            play.stage.restart()


def runs_heal(play: Theatre) -> None:
    for number in range(RUNS):
        play.stage.push(*steps(f"run-{number:03d}", [1.0], first=4))
    play.stage.pass_(180.0, every=5.0)
    play.stage.settle()


@pytest.mark.parametrize("dies_at", [None, 60])
def test_two_hundred_incidents_in_ten_seconds(theatre: Callable[..., Theatre], dies_at: int | None) -> None:
    play = theatre()
    play.pagerduty.add(Reply(429, b"", {"retry-after": "2"}), Reply(503), Taken(Raw(reset=True)))
    play.slack.add(Reply(429, b"", {"retry-after": "1"}), Taken(Raw(reset=True)))
    runs_fail(play, dies_at=dies_at)
    play.stage.settle()
    own = {f"tocsin:run-{number:03d}#1" for number in range(LIMIT)}
    assert set(play.pagerduty.opened) == own | {f"tocsin:{STORM}"}
    found = play.stage.running.store.incident(STORM)
    assert found is not None and found.storm is not None
    assert found.storm.joined == RUNS - LIMIT, "who has no message of its own is counted in the storm's"
    assert set(found.storm.members) == {f"run-{number:03d}#1" for number in range(LIMIT, RUNS)}

    runs_heal(play)
    play.kept(*(f"run-{number:03d}#1" for number in range(LIMIT)), STORM)
    storm = next(root for root in play.slack.channel.roots if "TocsinStorm" in root.text)
    assert f"High in {RUNS - LIMIT}" in storm.text and f"Value: {RUNS - LIMIT}" in storm.text, "not what it began with"
    assert len(play.slack.channel.messages) < 60, "people can read it"


def test_a_receiver_that_is_away_during_the_storm_hears_of_all_of_it(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    play.pagerduty.add(*[Reply(503)] * 30)
    play.slack.add(*[Reply(503)] * 10)
    runs_fail(play)
    runs_heal(play)
    play.stage.settle(3600.0)
    play.kept(*(f"run-{number:03d}#1" for number in range(LIMIT)), STORM)

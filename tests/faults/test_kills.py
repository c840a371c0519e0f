"""Death at every statement and commit of the store, wherever it falls: in a batch, a tick, a worker, a word of a person.

The story is told once undisturbed. Then it is told again for each place at which the process can die; whoever was at it tries
again, as a source, a scheduler, a worker and a person do. The end is that of the undisturbed story, and so is what people saw.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from alerts.matching import MatchEntry
from tests.faults.stage import START, Killed, Stage, UnstartedPool
from tests.faults.theatre import Theatre
from tests.kit.pipelines import steps

RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: High, id: high, expr: grad_norm > 10, severity: page, summary: "High"}
  - {alert: Lifted, id: lifted, expr: grad_norm > 5, severity: warning, summary: "Lifted"}
"""
MORE = """
remind: [10m]
"""
ACKNOWLEDGED_UNTIL = "14:18 UTC"
MUTED = MatchEntry(run="muted-*")
Act = Callable[[], object]


def acts(play: Theatre) -> list[Act]:
    """What happens, one after the other. Each may be done again when the process died in it."""
    stage = play.stage

    def push(run: str, *values: float, first: int) -> Act:
        lines = steps(run, values, first=first)
        done = False

        def act() -> None:
            nonlocal done
            if not done:
                stage.push(*lines)
                done = True
            stage.settle()

        return act

    return [
        push("r", 1.0, 20.0, first=1),
        partial(_acknowledge, stage, "r#1"),
        partial(_silence, stage),
        push("muted-1", 20.0, first=1),
        push("muted-2", 20.0, 1.0, first=1),
        partial(_pass, stage, 720.0),
        partial(_unsilence, stage),
        stage.settle,
        push("r", 7.0, first=3),
        partial(_close, stage, "muted-1#1"),
        stage.settle,
        push("r", 1.0, first=4),
        push("muted-1", 1.0, first=2),
    ]


def _acknowledge(stage: Stage, incident: str) -> None:
    stage.turn()  # a collector that has just started says that the incident is not its own yet; a person tries again
    found = stage.running.store.incident(incident)
    assert found is not None
    if found.acknowledged is None:  # a person looks whether it was taken
        stage.incidents.acknowledge(incident, "ada", stage.wall() + 300.0, "http")
    stage.settle()


def _close(stage: Stage, incident: str) -> None:
    stage.turn()
    found = stage.running.store.incident(incident)
    assert found is not None
    if not any(told.closed_by for told in found.alerts.values()):
        stage.incidents.close(incident, "ada")


def _silence(stage: Stage) -> None:
    if not stage.running.store.mutes.declared().silences:
        stage.mutes.silence(MUTED, "ada", "known", stage.wall(), stage.wall() + 86_400.0)


def _unsilence(stage: Stage) -> None:
    (found,) = stage.running.store.mutes.declared().silences
    if found.state(stage.wall()) == "active":
        stage.mutes.unsilence(found.id)


def _pass(stage: Stage, until: float) -> None:
    stage.pass_(START + until - stage.true, every=20.0)


def tell(play: Theatre, kill_at: int) -> int:
    """The story, with a death at that place; how many places there were in the process that died (or lived)."""
    died = False
    places = 0
    rest = acts(play)
    with play.stage.counted() as count:
        with play.stage.dying(kill_at):
            try:
                while rest:
                    rest[0]()
                    rest.pop(0)
            except Killed:
                died = True
        places = count()
    if died:
        play.stage.restart()
        for act in rest:
            act()
    return places


def seen(play: Theatre) -> dict[str, Any]:
    """What people saw, and what the store says of it."""
    slack = play.slack.channel
    return {
        "threads": sorted((root.title, [said.title for said in slack.thread(root.ts)]) for root in slack.roots),
        "pages": {key: play.pagerduty.actions(key) for key in play.pagerduty.opened},
        "rows": sorted((row.id, row.status.value) for row in play.stage.rows()),
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """How many places to die at the story has, and its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.notify.DeliveryPool", UnstartedPool)
        with Theatre(tmp_path_factory.mktemp("undisturbed"), rules=RULES, more=MORE) as play:
            places = tell(play, 0)
            play.kept("r#1", "muted-1#1")
            return places, seen(play)


def test_the_story_has_what_it_should(undisturbed: tuple[int, dict[str, Any]]) -> None:
    places, end = undisturbed
    assert places > 300
    muted, told = (lines for _, lines in end["threads"])
    assert muted[-1] == "RESOLVED muted-1: Lifted at step 1"
    assert told == [
        "WARNING r: Lifted at step 2",
        f"acknowledged by ada until {ACKNOWLEDGED_UNTIL}",
        "reminder: open for 10 min",
        "High resolved",
        "RESOLVED r: Lifted at step 4",
    ]
    assert end["pages"] == {
        "tocsin:r#1": ["trigger", "acknowledge", "resolve"],
        "tocsin:muted-1#1": ["trigger", "resolve"],
    }
    assert {status for _, status in end["rows"]} == {"sent"}


SHARDS = 40
"""The places of the story are dealt out to so many cases; the normal suite tells the first of each."""


def _die_at(theatre: Callable[..., Theatre], undisturbed: tuple[int, dict[str, Any]], place: int) -> None:
    play = theatre(rules=RULES, more=MORE)
    tell(play, place)
    assert play.stage.boots == 2, place
    play.kept("r#1", "muted-1#1")
    assert seen(play) == undisturbed[1], place


@pytest.mark.parametrize("shard", range(SHARDS))
def test_death_at_a_statement(theatre: Callable[..., Theatre], undisturbed: tuple[int, dict[str, Any]], shard: int) -> None:
    places, _ = undisturbed
    _die_at(theatre, undisturbed, 1 + shard * places // SHARDS)


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(SHARDS))
def test_death_at_every_statement(theatre: Callable[..., Theatre], undisturbed: tuple[int, dict[str, Any]], shard: int) -> None:
    places, _ = undisturbed
    for place in range(1 + shard * places // SHARDS, 1 + (shard + 1) * places // SHARDS):
        _die_at(theatre, undisturbed, place)

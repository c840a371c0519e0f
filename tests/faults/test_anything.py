"""Whatever goes wrong in whatever order: records, restarts, clocks, receivers, reloads and people, drawn at random."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from alerts.matching import MatchEntry
from alerts.model import DeliveryStatus
from tests.faults.stage import UnstartedPool
from tests.faults.theatre import Theatre
from tests.kit.pipelines import steps
from tests.kit.receivers import Behaviour, Raw, Refuse, Reply, Taken

RUNS = ("a", "b")
FAULTS: tuple[Behaviour, ...] = (
    Reply(429, b"", {"retry-after": "7"}),
    Reply(503),
    Taken(Reply(500)),
    Refuse(),
    Taken(Raw(reset=True)),
)

values = st.tuples(st.just("value"), st.sampled_from(RUNS), st.sampled_from([1.0, 20.0]))
faults = st.tuples(st.sampled_from(["slack", "pagerduty"]), st.sampled_from(FAULTS), st.none())
others = st.tuples(
    st.sampled_from(["restart", "reload", "pass", "forward", "back", "silence", "unsilence", "acknowledge"]),
    st.none(),
    st.none(),
)


def _play(play: Theatre, what: str, first: object, second: object, records: dict[str, int]) -> None:
    stage = play.stage
    now = stage.wall()
    match what, first, second:
        case "value", str() as run, float() as value:
            records[run] += 1
            stage.push(*steps(run, [value], first=records[run]))
        case "slack" | "pagerduty", (Reply() | Taken() | Refuse()) as behaviour, _:
            (play.slack if what == "slack" else play.pagerduty).add(behaviour)
        case "restart", _, _:
            stage.restart()
        case "reload", _, _:
            assert stage.reload() == []
        case "pass", _, _:
            stage.pass_(60.0, every=20.0)
        case "forward", _, _:
            stage.offset += 3600.0
        case "back", _, _:
            stage.offset -= 3600.0
        case "silence", _, _:
            stage.mutes.silence(MatchEntry(run="a"), "ada", "known", now - 7200.0, now + 86_400.0)
        case "unsilence", _, _:
            for each in stage.mutes.declared().silences:
                stage.mutes.unsilence(each.id)
        case "acknowledge", _, _:
            stage.turn()
            for found in stage.running.store.open_incidents():
                stage.incidents.acknowledge(found.id, "ada", now + 600.0, "http")


@given(st.lists(st.one_of(values, values, faults, others), max_size=40))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=(Phase.explicit, Phase.generate))
def test_nothing_is_lost_said_twice_or_left_open(story: list[tuple[str, object, object]]) -> None:
    records = dict.fromkeys(RUNS, 0)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr("service.notify.DeliveryPool", UnstartedPool)
        with Theatre(Path(folder)) as play:
            for what, first, second in story:
                _play(play, what, first, second, records)
                play.stage.turn()
            play.stage.settle(7200.0)  # looks and repeats do not add up over the whole story
            silent = bool(play.stage.mutes.declared().silences)
            play.slack.calm()
            play.pagerduty.calm()
            for run in RUNS:
                play.stage.push(*steps(run, [1.0, 1.0], first=records[run] + 1))
            play.stage.settle(7200.0)
            _kept(play, silent)


def _kept(play: Theatre, silent: bool) -> None:
    rows = play.stage.rows()
    assert not [row for row in rows if row.status not in (DeliveryStatus.SENT, DeliveryStatus.SKIPPED)]
    assert not play.pagerduty.open
    assert set(play.pagerduty.opened.values()) <= {1}
    told = {row.incident for row in rows if row.receiver == "oncall"}
    assert {f"tocsin:{incident}" for incident in told} == set(play.pagerduty.opened), "who was to be woken was"
    threads = {row.incident for row in rows if row.receiver == "chat"}
    titles = [root.title for root in play.slack.channel.roots]
    assert len(titles) >= len(threads) and (silent or told == threads)
    repeated = [said for said in play.slack.channel.messages if "may repeat" in said.text]
    if not repeated:
        said = [each.delivery for each in play.slack.channel.messages]
        assert len(said) == len(set(said)) and len(titles) == len(threads)
        assert all(title.startswith("RESOLVED") for title in titles)
    assert not play.stage.running.store.open_incidents()

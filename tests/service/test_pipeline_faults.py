"""The pipeline when what it stands on gives way: a store that refuses, a source that is away, time that is not continuous."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event as sqlalchemy_event

from collector import health
from service.own_alerts import QUIET_SECONDS, Own
from tests.kit.pipelines import Bench, begin, step, steps, told


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.shut()


@contextmanager
def full_disk(bench: Bench) -> Iterator[None]:
    """No commit succeeds."""

    def fails(*_: object) -> None:
        raise OSError("disk full")

    sqlalchemy_event.listen(bench.store.database.engine, "commit", fails)
    try:
        yield
    finally:
        sqlalchemy_event.remove(bench.store.database.engine, "commit", fails)


def again(bench: Bench) -> None:
    """What the loop does after a failed commit."""
    bench.pipeline.reset()
    bench.source.open(bench.store)


# ---- a store that refuses


def test_a_batch_that_comes_again_is_counted_and_dead_lettered_once(bench: Bench) -> None:
    bench.push(begin("r"), b"garbage", *steps("r", [1.0, 20.0, 20.0]), b"{}")
    bench.log.damage("checksum", value=b"?")
    with full_disk(bench):
        for _ in range(3):
            with pytest.raises(OSError, match="disk full"):
                bench.read()
            again(bench)
    bench.read()
    assert sorted((letter.offset, letter.reason) for letter in bench.letters.letters) == [
        (1, "not_json"),
        (5, "unknown_version"),
        (6, "unreadable"),
    ]
    assert bench.health.values(health.REJECTED) == {("not_json",): 1, ("unknown_version",): 1, ("unreadable",): 1}
    assert bench.health.values(health.RECORDS)[("step",)] == 3
    assert sum(bench.health.histograms(health.EVALUATION)[()].counts) == 4
    bench.push(b"garbage")
    bench.read()
    assert [letter.offset for letter in bench.letters.letters][-1] == 7


@pytest.mark.parametrize("own", [Own.DELIVERY, Own.RELOAD])
def test_what_is_to_be_said_of_tocsin_itself_waits_for_the_store(bench: Bench, own: Own) -> None:
    """Somebody was not told, and just then nothing can be written: it is said as soon as it can be."""
    with full_disk(bench):
        with pytest.raises(OSError, match="disk full"):
            bench.pipeline.state_of(own, True, "a message was refused", bench.now)
        again(bench)
        with pytest.raises(OSError, match="disk full"):
            bench.tick()
        again(bench)
    assert told(bench.tick()) == [("tocsin", own.alert, "firing", 0)]
    assert bench.tick() == [], "once"
    assert [event.alert for event in bench.store.firing()] == [own.alert]


@pytest.mark.parametrize("own", [Own.LIMITS, Own.INTERNAL, Own.DELIVERY, Own.RULE])
def test_what_goes_on_happening_is_one_alert_however_often_we_restart(bench: Bench, own: Own) -> None:
    alerts = []
    for _ in range(6):
        bench.now += QUIET_SECONDS / 2
        alerts += told(bench.pipeline.happened(own, "again", bench.now).events)
        bench = bench.restart()
        bench.read()
        alerts += told(bench.tick())
    assert alerts == [("tocsin", own.alert, "firing", 0)]
    bench.now += QUIET_SECONDS
    assert told(bench.tick()) == [("tocsin", own.alert, "resolved", 0)]


# ---- time that is not continuous


def test_no_run_stalls_because_the_source_is_away(bench: Bench) -> None:
    """While the broker is down nobody knows what the trainers send to it."""
    bench.push(*steps("r", [1.0] * 4), every=60.0)
    bench.read()
    for _ in range(100):
        bench.now += 60.0
        assert list(bench.pipeline.tick(bench.now).events) == []
    for number in range(5, 100):
        bench.log.push(step("r", number, grad_norm=1.0), received_at=bench.now)
    assert bench.read() == [], "what waited came late to us, not late"
    bench.now += 10_000.0
    assert told(bench.tick()) == [("r", "Quiet", "firing", 99)], "silence in front of our eyes is silence"


def test_no_run_stalls_because_the_machine_was_suspended(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 4), *steps("s", [1.0] * 4), every=60.0)
    bench.read()
    bench.now += 3_600.0
    assert list(bench.pipeline.tick(bench.now).events) == [], "the first thing after it woke up"
    bench.push(step("r", 5, grad_norm=1.0))
    assert bench.read() == []
    bench.idle()
    assert told(bench.tick()) == [("s", "Quiet", "firing", 4)], "nothing waits, and s has sent nothing"


def test_no_run_is_let_go_because_the_source_is_away(bench: Bench) -> None:
    bench.push(*steps("r", [1.0] * 4), every=60.0)
    bench.read()
    bench.now += 30 * 86_400.0
    bench.pipeline.tick(bench.now)
    assert [live.run.run for live in bench.shelf.all()] == ["r"]


@pytest.mark.parametrize("jump", [-3_600.0, -86_400.0 * 365])
def test_a_clock_that_is_set_back_ends_alerts_in_their_time(bench: Bench, jump: float) -> None:
    bench.now = 1e9
    bench.pipeline.happened(Own.DELIVERY, "a message was refused", bench.now)
    bench.now += jump
    assert bench.tick() == []
    bench.now += QUIET_SECONDS
    assert told(bench.tick()) == [("tocsin", "TocsinDeliveryFailed", "resolved", 0)]


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0])
def test_a_clock_that_jumps_changes_no_judgement_of_records(bench: Bench, jump: float) -> None:
    bench.now = 1e6
    bench.push(*steps("r", [1.0, 20.0]), every=60.0)
    bench.read()
    bench.now += jump
    bench.push(*steps("r", [20.0, 1.0], first=3), every=60.0)
    assert told(bench.read()) == [("r", "High", "firing", 3), ("r", "High", "resolved", 4)]
    assert bench.tick() == []

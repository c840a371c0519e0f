"""When the age of the newest judged record is over: a flat line of an hour ago must not be read as being behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collector import health
from collector.health import Health
from service.input_lag import IDLE_SECONDS, InputLag


class Input:
    """A collector that has just judged a record of an hour ago, and what it is asked."""

    def __init__(self) -> None:
        self.own = Health()
        self.waiting: dict[str, int] = {}
        self.usable = True
        self.lag = InputLag(lambda: self.waiting, lambda: self.usable, self.own)
        self.judge(3600.0)

    def judge(self, age: float) -> None:
        self.own.count(health.RECORDS, "step")
        self.own.set(health.EVALUATION_LAG, age)

    def age(self, now: float) -> float:
        """As /metrics shows it after a look at `now`."""
        self.lag.look(now)
        return self.own.values(health.EVALUATION_LAG)[()]


@pytest.fixture
def source() -> Iterator[Input]:
    yield Input()


def test_an_age_is_over_when_nothing_came_and_nothing_waits(source: Input) -> None:
    assert source.age(1000.0) == 3600.0
    assert source.age(1000.0 + IDLE_SECONDS - 1) == 3600.0, "a few scrapes have to see it"
    assert source.age(1000.0 + IDLE_SECONDS) == 0.0


def test_it_stays_while_records_wait(source: Input) -> None:
    source.age(1000.0)
    source.waiting = {"tocsin.records/0": 7}
    assert source.age(2000.0) == 3600.0
    assert source.own.values(health.LAG) == {("tocsin.records/0",): 7.0}
    source.waiting = {}
    assert source.age(2001.0) == 0.0 and source.own.values(health.LAG) == {}


def test_it_stays_while_nobody_knows_what_waits(source: Input) -> None:
    """A broker that is away has nothing waiting either."""
    source.usable = False
    source.age(1000.0)
    assert source.age(2000.0) == 3600.0


def test_each_record_begins_the_minute_anew(source: Input) -> None:
    source.age(1000.0)
    source.judge(1800.0)
    assert source.age(1000.0 + IDLE_SECONDS) == 1800.0
    assert source.age(1000.0 + 2 * IDLE_SECONDS) == 0.0
    source.judge(2.0)
    assert source.age(2000.0) == 2.0


def test_a_clock_that_is_set_back_begins_the_minute_anew(source: Input) -> None:
    source.age(1000.0)
    assert source.age(10.0) == 3600.0
    assert source.age(10.0 + IDLE_SECONDS) == 0.0


def test_without_an_age_there_is_none_at_rest_either() -> None:
    """Replays of recorded runs have none: their records were received by nobody."""
    own = Health()
    lag = InputLag(dict, lambda: True, own)
    lag.look(1000.0)
    lag.look(2000.0)
    assert own.values(health.EVALUATION_LAG) == {}

"""What a job passes in or a transport raises costs itself, is counted, and never ends the job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tocsin
from tests.kit.reporting import METRICS, Stuck, make, steps
from tocsin import wire
from tocsin.control import StopRequest
from tocsin.transports import Message
from tocsin.transports.memory import MemoryTransport


class Broken(MemoryTransport):
    """Breaks the promise of every transport: raises."""

    def send(self, messages: Sequence[Message]) -> None:
        raise RuntimeError("no")

    def watch(self, run: str) -> None:
        raise RuntimeError("no")

    def stop_request(self) -> StopRequest | None:
        raise RuntimeError("no")

    def close(self, timeout: float) -> None:
        raise RuntimeError("no")


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def reporter(transport: MemoryTransport) -> Iterator[tocsin.Reporter]:
    made = make(transport)
    yield made
    made.close()


@pytest.mark.parametrize(
    "arguments",
    [
        (1, None), (1, 5), (1, [1, 2]), ("one", {}), (None, {}), (-1, {}), (1.5, {}), (2**70, {}), (math.nan, {}),
        (object(), object()),
    ],
)  # fmt: skip
def test_log_never_raises(arguments: tuple[Any, Any], reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log(*arguments)
    reporter.log(7, {"x": 1.0})
    assert reporter.flush(10)
    assert [record.step for record in steps(transport)] == [7]
    assert reporter.counters.dropped == {"bad_record": 1}


@pytest.mark.parametrize("step", [5, np.int32(5), 5.0, np.float64(5.0), True + 4])
def test_steps_of_every_kind(step: Any, reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log(step, {})
    assert reporter.flush(10)
    assert [record.step for record in steps(transport)] == [5]


def test_an_object_that_breaks_in_every_way_costs_itself(reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    class Bomb:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __float__(self) -> float:
            raise RuntimeError

    reporter.log(1, {"bomb": Bomb(), "x": 1.0, "y": {"bomb": Bomb()}}, groups=Bomb(), rollouts=[Bomb(), {"response": "r"}])
    assert reporter.flush(10)
    (record,) = steps(transport)
    assert record.metrics == {"x": 1.0, "y": {}}
    assert record.groups is None
    assert [rollout.response for rollout in record.rollouts] == ["r"]
    assert reporter.counters.bad_values == {"bad_value": 2, "bad_groups": 1, "bad_rollout": 1}


@pytest.mark.parametrize("time", ["noon", math.nan, math.inf, -5.0, object(), 1e12])
def test_a_time_that_is_none(time: Any, reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log(1, {}, time=time)
    assert reporter.flush(10)
    assert 0 <= steps(transport)[0].time < wire.MAX_TIME
    assert reporter.counters.bad_values == {"bad_time": 1}


def test_when_the_sender_cannot_keep_up_the_oldest_steps_go_and_the_records_say_so(caplog: pytest.LogCaptureFixture) -> None:
    transport = Stuck()
    reporter = make(transport, queue_items=10)
    reporter.start()
    assert transport.entered.wait(300)
    for step in range(100):
        reporter.log(step, METRICS)
    reporter.end()
    transport.released.set()
    assert reporter.flush(10)
    reporter.close()
    assert [record.step for record in steps(transport)] == list(range(90, 100))
    assert isinstance(transport.records[-1], wire.EndRecord)
    assert reporter.counters.dropped == {"queue_full": 90}
    assert {record.dropped for record in steps(transport)} == {90}
    assert len(caplog.records) == 1, "told once"


def test_memory_is_bounded_by_bytes_too() -> None:
    transport = Stuck()
    reporter = make(transport, queue_bytes=1_000_000)
    reporter.start()
    assert transport.entered.wait(300)
    for step in range(50):
        reporter.log(step, {}, rollouts=[{"response": "x" * 100_000}])
    transport.released.set()
    assert reporter.flush(10)
    reporter.close()
    assert 1 <= len(steps(transport)) <= 9


def test_a_transport_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    reporter = make(Broken(), on_stop="pause")
    for step in range(5):
        reporter.log(step, METRICS)
    reporter.flush(10)
    assert reporter.stop_requested() is None
    reporter.close()
    assert reporter.counters.dropped == {"transport": 6}
    assert reporter.counters.errors > 0

"""A tracker's log function that reports as well: the tracker notices nothing, and the steps are the right ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import Reporter, StepRecord
from tocsin.mirror import mirrored
from tocsin.transports.memory import MemoryTransport


class Tracker:
    """Takes what W&B's `log` takes, and remembers it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any]] = []

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> str:
        """The tracker's own words."""
        self.calls.append((data, step, commit))
        return f"call {len(self.calls)}"


class Ran:
    """A reporter whose records can be looked at."""

    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.reporter = Reporter("r", transport=self.transport, names="open_instruct")

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        assert self.reporter.flush()
        return [(record.step, record.metrics) for record in self.transport.records if isinstance(record, StepRecord)]


@pytest.fixture
def ran() -> Iterator[Ran]:
    made = Ran()
    yield made
    made.reporter.close()


def test_the_tracker_gets_what_it_got_and_gives_what_it_gave(ran: Ran) -> None:
    tracker = Tracker()
    log = mirrored(tracker.log, ran.reporter)
    data = {"loss": 0.5, "image": object()}
    assert log(data, step=3, commit=True) == "call 1"
    assert tracker.calls == [(data, 3, True)]
    assert tracker.calls[0][0] is data
    assert (log.__name__, log.__doc__) == ("log", "The tracker's own words.")
    assert ran.rows() == [(3, {"loss": 0.5})]
    assert ran.transport.records[-1].names == "open_instruct"  # type: ignore[union-attr]  # the last is a step


def test_a_tracker_that_fails_fails_as_before_and_the_row_is_reported(ran: Ran) -> None:
    def broken(data: Mapping[str, Any], step: int) -> None:
        raise ConnectionError("the tracker is away")

    with pytest.raises(ConnectionError, match="the tracker is away"):
        mirrored(broken, ran.reporter)({"loss": 0.5}, 7)
    assert ran.rows() == [(7, {"loss": 0.5})]


@pytest.mark.parametrize(
    "call",
    [
        lambda log: log({"loss": 0.5}, 4),
        lambda log: log({"loss": 0.5}, step=4),
        lambda log: log(data={"loss": 0.5}, step=4),
        lambda log: log(step=4, metrics={"loss": 0.5}),
        lambda log: log({"loss": 0.5}, step=numpy.int64(4)),
        lambda log: log({"loss": 0.5}, step=4.0),
        lambda log: log({"loss": 0.5}, None, step=4),
    ],
)
def test_where_the_step_may_stand(ran: Ran, call: Callable[[Callable[..., Any]], object]) -> None:
    call(mirrored(lambda *args, **kwargs: None, ran.reporter))
    assert ran.rows() == [(4, {"loss": 0.5})]


def test_the_step_among_the_metrics(ran: Ran) -> None:
    log = mirrored(Tracker().log, ran.reporter, step_key=("train/step", "training_step"))
    log({"eval/score": 0.1})  # before any step: nobody knows where it belongs
    log({"training_step": 5, "global_step": 640, "loss": 0.5})
    log({"eval/score": 0.2})
    log({"train/step": numpy.float32(6.0), "training_step": 99})
    log({"loss": 0.25}, step=9)
    assert [(step, set(metrics)) for step, metrics in ran.rows()] == [
        (5, {"training_step", "global_step", "loss"}),
        (5, {"eval/score"}),
        (6, {"train/step", "training_step"}),
        (9, {"loss"}),
    ]
    assert ran.reporter.counters.bad_values == {"no_step": 1}


def test_without_any_step_calls_are_counted_as_wandb_counts_them(ran: Ran) -> None:
    log = mirrored(Tracker().log, ran.reporter)
    log({"a": 1.0})
    log({"b": 1.0}, commit=False)
    log({"c": 1.0})
    log({"d": 1.0})
    log({"e": 1.0}, step=40)
    log({"f": 1.0})
    assert [(step, next(iter(metrics))) for step, metrics in ran.rows()] == [
        (0, "a"),
        (1, "b"),
        (1, "c"),
        (2, "d"),
        (40, "e"),
        (40, "f"),
    ]


def test_numbers_are_reported_and_the_rest_is_the_trackers_alone(ran: Ran) -> None:
    class Histogram:
        """As W&B's: no number, and it says nothing of its size."""

    log: Callable[..., Any] = mirrored(Tracker().log, ran.reporter)
    log(
        {
            "float": 0.5,
            "int": 2,
            "bool": True,
            "null": None,
            "nan": float("nan"),
            "numpy": numpy.float32(0.25),
            "array of one": numpy.array([0.125]),
            "nested": {"a": 1.0, "b": "text", "c": numpy.zeros(3)},
            "nested text": {"a": "x"},
            "array": numpy.zeros(3),
            "text": "0.5",
            "bytes": b"0.5",
            "list": [1.0],
            "histogram": Histogram(),
            "table": object(),
            7: 1.0,
        },
        step=1,
    )
    ((_, metrics),) = ran.rows()
    assert str(metrics.pop("nan")) == "nan"
    assert metrics == {
        "float": 0.5,
        "int": 2.0,
        "bool": 1.0,
        "null": None,
        "numpy": 0.25,
        "array of one": 0.125,
        "nested": {"a": 1.0},
    }
    assert ran.reporter.counters.bad_values == {}


def test_tensors(ran: Ran) -> None:
    """Of one value: a number. Of more: the tracker's alone, and nobody computes on them."""
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    log = mirrored(Tracker().log, ran.reporter)
    log(
        {
            "scalar": torch.tensor(0.5, requires_grad=True),
            "half": torch.tensor([0.25], dtype=torch.bfloat16),
            "many": torch.zeros(3),
            "none": torch.zeros(0),
        },
        step=torch.tensor(3),
    )
    assert ran.rows() == [(3, {"scalar": 0.5, "half": 0.25})]
    assert ran.reporter.counters.bad_values == {}


def test_a_row_without_a_number_is_no_record(ran: Ran) -> None:
    log = mirrored(lambda *args: None, ran.reporter)
    log({"text": "only"}, 1)
    log("no mapping", 2)
    log()
    assert ran.rows() == []


class Hostile(dict[str, Any]):
    """A mapping that fails when it is read."""

    def items(self) -> Any:
        raise RuntimeError("read twice")


@pytest.mark.parametrize(
    ("args", "kwargs"), [((Hostile(a=1.0), 1), {}), (({"a": 1.0},), {"step": "seven"}), (({"a": 1.0},), {"step": 1.5})]
)
def test_nothing_raises_into_the_job(ran: Ran, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    calls: list[Any] = []
    mirrored(lambda *a, **k: calls.append(a), ran.reporter)(*args, **kwargs)
    assert len(calls) == 1
    assert ran.rows() == []
    assert ran.reporter.counters.bad_values == {"bad_row": 1}


KEYS = st.text(max_size=5) | st.integers()
VALUES = st.one_of(
    st.none(), st.floats(), st.integers(), st.text(), st.binary(), st.lists(st.integers()), st.decimals(), st.fractions()
)
ROWS = st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES, max_size=3))


@given(ROWS, st.one_of(st.none(), st.integers(), st.floats(), st.text()))
def test_whatever_is_logged_reaches_the_tracker(data: dict[Any, Any], step: Any) -> None:
    tracker, reporter = Tracker(), Reporter("r", transport=MemoryTransport())
    mirrored(tracker.log, reporter)(data, step)
    reporter.close()
    assert len(tracker.calls) == 1
    assert tracker.calls[0] == (data, step, None) or step != step
    assert tracker.calls[0][0] is data


def test_from_several_threads_no_step_is_lost_or_told_twice(ran: Ran) -> None:
    log = mirrored(Tracker().log, ran.reporter)
    threads = [threading.Thread(target=lambda: [log({"a": 1.0}) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(step for step, _ in ran.rows()) == list(range(200))


def test_a_log_inside_of_a_log_does_not_wait_for_itself(ran: Ran) -> None:
    """A signal handler that logs while its thread does, as on SIGTERM."""

    class Signalling(dict[str, Any]):
        def items(self) -> Any:
            outer({"b": 2.0}, step=2)
            return super().items()

    outer = mirrored(Tracker().log, ran.reporter)
    outer(Signalling(a=1.0), step=1)
    assert sorted(step for step, _ in ran.rows()) == [1, 2]

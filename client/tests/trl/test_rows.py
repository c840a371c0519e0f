"""Log rows and measures of a step leave as one record, in whatever order the hooks come."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import tocsin
from tocsin import wire
from tocsin.transports.memory import MemoryTransport
from tocsin.trl.rows import Rows


class Ticks:
    """A clock that goes on by a second at each look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def run(events: list[tuple[str, int]]) -> list[wire.StepRecord]:
    """The records after a series of hooks: (what, step)."""
    transport, clock = MemoryTransport(), Ticks()
    with tocsin.Reporter("run-1", transport=transport, rank=0, clock=clock, rollout_log=False) as reporter:
        rows = Rows(clock)
        for number, (what, step) in enumerate(events):
            if what == "measure":
                rows.at(step, reporter).metrics[f"m{number}"] = float(number)
            elif what == "log":
                rows.add_logged(step, {f"l{number}": float(number), "text": "12/100"}, reporter)
            elif what == "close":
                rows.add_logged(step, {"train_loss": 0.5, "epoch": 1.0, "train_runtime": 2.0}, reporter)
            else:
                rows.send(reporter)
        rows.send(reporter)
        assert reporter.counters.bad_values == {}
    return [record for record in transport.records if isinstance(record, wire.StepRecord)]


def test_a_step_that_is_logged_is_one_record() -> None:
    (record,) = run([("measure", 1), ("measure", 1), ("log", 1), ("send", 1)])
    assert (record.step, sorted(record.metrics)) == (1, ["l2", "m0", "m1"])


def test_steps_without_a_row_leave_with_the_next_one() -> None:
    records = run([("measure", 1), ("send", 1), ("measure", 2), ("measure", 3), ("log", 3)])
    assert [(record.step, sorted(record.metrics)) for record in records] == [(1, ["m0"]), (2, ["m2"]), (3, ["l4", "m3"])]


def test_the_closing_row_is_no_row_of_a_step() -> None:
    assert [record.step for record in run([("measure", 1), ("log", 1), ("close", 1)])] == [1]
    (record,) = run([("measure", 2), ("close", 2)])
    assert record.metrics == {"m0": 0.0}, "but the last step leaves with it"


@settings(max_examples=150)
@given(hooks=st.lists(st.tuples(st.sampled_from(["measure", "log", "send", "close"]), st.integers(0, 2)), max_size=25))
def test_every_value_leaves_once_with_its_step(hooks: list[tuple[str, int]]) -> None:
    step, events = 1, []
    for what, further in hooks:
        step += further
        events.append((what, step))
    expected: dict[str, int] = {}
    for number, (what, at) in enumerate(events):
        if what in ("measure", "log"):
            expected[f"{what[0]}{number}"] = at
    found: list[tuple[str, int]] = []
    records = run(events)
    for record in records:
        found += [(name, record.step) for name in record.metrics]
    assert sorted(found) == sorted(expected.items())
    assert [record.step for record in records] == sorted(record.step for record in records)
    times = [record.time for record in records]
    assert times == sorted(times)


def test_what_is_measured_wins_over_what_is_logged_under_its_name() -> None:
    transport = MemoryTransport()
    with tocsin.Reporter("run-1", transport=transport, rank=0, rollout_log=False) as reporter:
        rows = Rows(Ticks())
        rows.at(1, reporter).metrics["grad_norm"] = 1.0
        row: dict[str, Any] = {"grad_norm": 2.0, "loss": 0.5}
        rows.add_logged(1, row, reporter)
        row["loss"] = 9.0  # other callbacks may change it afterwards
    (record,) = [record for record in transport.records if isinstance(record, wire.StepRecord)]
    assert record.metrics == {"grad_norm": 1.0, "loss": 0.5}

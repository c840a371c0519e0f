"""Where a record goes: the table in `collector.order`, line by line."""

from __future__ import annotations

from collector.order import REORDER_WINDOW, Order, Place
from tests.collector.records import row, time_of


def at(step: int) -> tuple[Order, list[int]]:
    """A run that has brought all steps up to this one."""
    order = Order()
    steps: list[int] = []
    for n in range(1, step + 1):
        assert order.place(row(n), steps) is Place.NEW
        steps.append(n)
    return order, steps


def test_newest_step_again_is_a_merge() -> None:
    order, steps = at(20)
    assert order.place(row(20), steps) is Place.MERGE


def test_known_step_within_the_window_is_a_merge() -> None:
    order, steps = at(20)
    assert order.place(row(20 - REORDER_WINDOW), steps) is Place.MERGE


def test_missing_step_within_the_window_is_late() -> None:
    order, steps = at(20)
    steps.remove(15)
    assert order.place(row(15), steps) is Place.LATE
    assert order.last_step == 20


def test_late_even_when_written_after_the_newest() -> None:
    order, steps = at(20)
    steps.remove(15)
    assert order.place(row(15, time=time_of(30)), steps) is Place.LATE


def test_further_behind_with_an_older_time_is_a_straggler() -> None:
    order, steps = at(20)
    assert order.place(row(20 - REORDER_WINDOW - 1), steps) is Place.TOO_LATE
    assert order.attempt == 1


def test_further_behind_with_a_newer_time_is_a_restart() -> None:
    order, steps = at(20)
    assert order.place(row(11, time=time_of(40)), steps) is Place.RESUME
    assert (order.attempt, order.declared, order.last_step) == (2, 1, 11)


def test_rows_from_before_an_undeclared_restart_are_of_an_old_attempt() -> None:
    order, steps = at(20)
    order.place(row(5, time=time_of(40)), steps)
    assert order.place(row(21), steps) is Place.OLD_ATTEMPT
    assert order.place(row(6, time=time_of(41)), steps) is Place.NEW


def test_declared_attempt_resumes_at_its_first_step_however_small_the_drop() -> None:
    order, steps = at(20)
    order.declare(2, time_of(21), reconfigured=True)
    assert order.place(row(19, attempt=2, time=time_of(22)), steps) is Place.RESUME
    assert order.place(row(19), steps) is Place.OLD_ATTEMPT


def test_attempt_declared_by_its_first_row() -> None:
    order, steps = at(20)
    assert order.place(row(21, attempt=4), steps) is Place.RESUME
    assert order.attempt == 4


def test_declared_attempt_after_an_undeclared_one_is_a_further_one() -> None:
    order, steps = at(20)
    order.place(row(5, time=time_of(40)), steps)  # ours is 2 now, the trainer still says 1
    assert order.place(row(3, attempt=2, time=time_of(60)), steps) is Place.RESUME
    assert (order.attempt, order.declared) == (3, 2)


def test_run_record_again_makes_any_drop_a_restart() -> None:
    order, steps = at(20)
    order.declare(1, time_of(25), reconfigured=False)
    assert order.place(row(18, time=time_of(26)), steps) is Place.RESUME


def test_declared_phase_change_does_not() -> None:
    order, steps = at(20)
    order.declare(1, time_of(20) + 1.0, reconfigured=True)
    assert order.place(row(18, time=time_of(26)), steps) is Place.MERGE


def test_going_on_after_the_end_is_a_restart() -> None:
    order, steps = at(20)
    order.end(1, time_of(21))
    assert order.place(row(21, time=time_of(50)), steps) is Place.RESUME
    assert order.ended_at is None


def test_row_written_before_the_end_does_not_reopen() -> None:
    order, steps = at(20)
    order.end(1, time_of(21))
    assert order.place(row(20), steps) is Place.MERGE
    assert order.ended_at == time_of(21)


def test_dump_and_load() -> None:
    order, steps = at(20)
    order.place(row(5, time=time_of(40)), steps)
    again = Order()
    again.load(order.dump())
    assert again.dump() == order.dump()

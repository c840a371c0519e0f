"""Rows of one step are joined; what is held is never lost, and never held for long."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tocsin.formats.base import Parsed, RunLog
from tocsin.formats.merge import GRACE_SECONDS, MAX_VALUES, Merger, Steps
from tocsin.wire import StepRecord


def merger(late_steps: int = 0) -> Merger:
    return Merger(RunLog(run="r", names="prime_rl", late_steps=late_steps))


def rows_of(places: list[Parsed]) -> list[tuple[int, int, dict[str, float]]]:
    return [(p.record.attempt, p.record.step, p.record.metrics) for p in places if isinstance(p.record, StepRecord)]


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6), st.floats(0.0, 5.0)), max_size=30)


@given(ROWS)
def test_every_value_comes_out_once_and_in_the_order_of_its_writer(rows: list[tuple[str, int, float]]) -> None:
    """Whatever the steps and the pauses are: steps of 7 never fall by more than rows may be late, so there is one attempt."""
    joined = merger(late_steps=8)
    out: list[Parsed] = []
    now = 0.0
    for index, (writer, step, pause) in enumerate(rows):
        places = joined.add(step, {f"{writer}{index}": float(index)}, offset=index, next_offset=index + 1, writer=writer)
        assert all(place.offset <= place.next_offset <= index + 1 for place in places)
        now += pause
        out += [*places, *joined.overdue(now)]
    out += joined.close()
    assert joined.state() == merger().state()
    for writer in "ab":
        wanted = [(step, f"{writer}{index}") for index, (who, step, _) in enumerate(rows) if who == writer]
        assert [(step, key) for _, step, metrics in rows_of(out) for key in metrics if key[0] == writer] == wanted
    # Joined means joined: two records of one writer for one step in a row are separated by a pause only.
    if all(pause == 0.0 for _, _, pause in rows):
        for writer in "ab":
            mine = [step for _, step, metrics in rows_of(out) if any(key[0] == writer for key in metrics)]
            assert all(before != after for before, after in itertools.pairwise(mine))


@given(ROWS, st.integers(0, 30))
def test_another_process_goes_on_where_the_first_stood(rows: list[tuple[str, int, float]], stop: int) -> None:
    def read(stop: int) -> list[Parsed]:
        joined, out = merger(late_steps=2), []
        for index, (writer, step, _) in enumerate(rows):
            if index == stop:
                log = RunLog(run="r", names="prime_rl", late_steps=2, state=joined.log.state())
                joined = Merger(log, joined.state())
            kind = Steps.RISE if index % 2 else Steps.MAY_FALL
            out += joined.add(step, {str(index): 1.0}, offset=index, next_offset=index + 1, writer=writer, steps=kind)
        return [*out, *joined.close()]

    assert read(stop) == read(-1)


def test_a_later_row_of_the_same_key_wins_and_the_later_time_counts() -> None:
    joined = merger()
    joined.add(1, {"a": 1.0, "b": 1.0}, offset=0, next_offset=5, time=20.0)
    joined.add(1, {"a": 2.0}, offset=5, next_offset=9, time=10.0)
    *_, place = joined.close()
    assert isinstance(place.record, StepRecord)
    joined.add(2, {"a": 1.0}, offset=9, next_offset=10, time=30.0)
    joined.add(2, {"b": 1.0}, offset=10, next_offset=11)
    assert [place.record.time for place in joined.close() if place.record is not None] == [30.0]
    assert (place.record.metrics, place.record.time, place.offset, place.next_offset) == ({"a": 2.0, "b": 1.0}, 20.0, 0, 9)


def test_a_joined_record_stays_within_the_limit_of_the_wire() -> None:
    joined = merger()
    out: list[Parsed] = []
    for part in range(3):
        many = {f"{part}/{index}": 1.0 for index in range(MAX_VALUES // 2)}
        out += joined.add(1, many, offset=part, next_offset=part + 1)
    out += joined.close()
    assert [len(metrics) for _, _, metrics in rows_of(out)] == [MAX_VALUES, MAX_VALUES // 2]
    assert all(place.record is not None for place in out)


def test_steps_that_rise_or_stay_tell_of_a_restart() -> None:
    for steps, turns, attempts in (
        (Steps.RISE, (4, 5, 5, 6), [1, 1, 2, 2]),
        (Steps.RISE, (4, 5, 3, 4), [1, 1, 2, 2]),
        (Steps.MAY_FALL, (4, 5, 4, 5), [1, 1, 1, 1]),
        (Steps.MAY_FALL, (40, 41, 4, 5), [1, 1, 2, 2]),
    ):
        joined = merger(late_steps=8)
        out: list[Parsed] = []
        for index, step in enumerate(turns):
            out += joined.add(step, {str(index): 1.0}, offset=index, next_offset=index + 1, steps=steps)
        out += joined.close()
        assert [attempt for attempt, _, _ in rows_of(out)] == attempts
        assert [step for _, step, _ in rows_of(out)] == list(turns)


def test_steps_that_are_held_count_too() -> None:
    """A step goes back behind one that is held: that is one restart, noticed where it happens."""
    joined = merger()
    out: list[Parsed] = []
    for offset, step in enumerate((2, 3, 2, 2, 3)):
        out += joined.add(step, {str(offset): 1.0}, offset=offset, next_offset=offset + 1)
    out += joined.close()
    assert rows_of(out) == [(1, 2, {"0": 1.0}), (1, 3, {"1": 1.0}), (2, 2, {"2": 1.0, "3": 1.0}), (2, 3, {"4": 1.0})]


def test_rows_that_stay_are_of_the_new_attempt_from_the_first_on() -> None:
    joined = merger(late_steps=8)
    out: list[Parsed] = []
    for offset, (step, steps) in enumerate(
        [(4, Steps.RISE), (5, Steps.STAY), (5, Steps.RISE), (5, Steps.STAY), (4, Steps.STAY)]
    ):
        out += joined.add(step, {str(offset): 1.0}, offset=offset, next_offset=offset + 1, steps=steps)
    out += joined.close()
    assert rows_of(out) == [(1, 4, {"0": 1.0}), (1, 5, {"1": 1.0, "2": 1.0, "3": 1.0}), (2, 4, {"4": 1.0})]


def test_a_clock_that_was_set_back_holds_nothing_for_ever() -> None:
    joined = merger()
    joined.add(1, {"a": 1.0}, offset=0, next_offset=1)
    assert joined.overdue(1000.0) == []
    assert len(joined.overdue(1000.0 - 10 * GRACE_SECONDS)) == 2

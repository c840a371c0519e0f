"""From scalars to one record per training step: merging, other clocks, restarts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin import wire
from tocsin.formats.event_rows import LATE_STEPS, EventRows, Values, clock_of
from tocsin.formats.tensorboard import make_rows
from tocsin.wire import Record, RunRecord, StepRecord

Line = tuple[int, Mapping[str, float]]


class Rows:
    """EventRows with a clock of its own: each call is a second later."""

    def __init__(self, names: str | None = None) -> None:
        self.names = names
        self.rows = make_rows(run="r", names=names, clock=None, state=None)
        self.now = 1000.0
        self.records: list[Record] = []
        self.errors: list[str] = []

    def begin(self, writer: str = "") -> Rows:
        self.now += 1
        self.rows.begins(writer, self.now)
        return self

    def log(self, step: int, writer: str = "", /, **scalars: float) -> Rows:
        self.now += 1
        for tag, value in scalars.items():
            records, error = self.rows.take(Values(writer, self.now, step, {tag: value}))
            self.records += records
            self.errors += [error] if error else []
        return self

    def lines(self, *lines: Line) -> Rows:
        for step, scalars in lines:
            self.log(step, "", **scalars)
        return self

    def done(self) -> list[tuple[int, int, dict[str, float]]]:
        """(attempt, step, metrics) of all records, the rest included."""
        self.records += self.rows.finish()
        return [(record.attempt, record.step, record.metrics) for record in self.records if isinstance(record, StepRecord)]


# --- merging -----------------------------------------------------------------------------------------------------------


def test_several_log_calls_of_a_step_are_one_record() -> None:
    rows = Rows().lines(
        (1, {"train/gen_kl_error": 0.1, "train/reward": 0.5}),
        (1, {"timing/train/total_step_time": 30.0}),
        (1, {"validation/accuracy": 0.7}),
        (2, {"train/gen_kl_error": 0.2}),
    )
    first, second = rows.records
    assert isinstance(first, RunRecord)
    assert (first.labels, first.attempt) == ({"framework": "nemo_rl"}, 1)
    assert isinstance(second, StepRecord)
    assert (second.names, second.step, second.time) == ("nemo_rl", 1, 1003.0)
    assert list(second.metrics) == ["train/gen_kl_error", "train/reward", "timing/train/total_step_time", "validation/accuracy"]
    assert rows.done()[1:] == [(1, 2, {"train/gen_kl_error": 0.2})]


def test_a_closed_step_that_gets_more_is_a_further_row() -> None:
    rows = Rows().log(5, reward=0.5)
    before = rows.rows.holds
    rows.records += rows.rows.close()
    assert (before, rows.rows.holds) == (True, False)
    rows.log(5, timing=3.0).log(6, reward=0.25).log(5, late=1.0)
    assert rows.done() == [(1, 5, {"reward": 0.5}), (1, 5, {"timing": 3.0}), (1, 5, {"late": 1.0}), (1, 6, {"reward": 0.25})]


def test_a_value_that_is_logged_twice_counts_as_logged_last() -> None:
    assert Rows().log(1, a=1.0).log(1, a=2.0).done() == [(1, 1, {"a": 2.0})]


def test_nan_and_infinity_are_kept() -> None:
    ((_, _, metrics),) = Rows().log(1, a=math.nan, b=math.inf).done()
    assert math.isnan(metrics["a"])
    assert metrics["b"] == math.inf


@pytest.mark.parametrize("step", [-1, 2**62, 2**63 - 1])
def test_a_step_that_is_none_is_refused(step: int) -> None:
    rows = Rows().log(step, a=1.0)
    assert rows.errors == [f"step {step} is no step"]
    assert rows.done() == []


def test_more_values_than_a_record_may_have_become_two() -> None:
    count = wire.MAX_METRICS + 5
    rows = Rows(names="trl")
    rows.log(1, **{f"m{index}": float(index) for index in range(count)})
    first, second = rows.done()
    assert len(first[2]) == wire.MAX_METRICS
    assert {**first[2], **second[2]} == {f"m{index}": float(index) for index in range(count)}


def test_names_over_the_limit_are_left_out() -> None:
    assert Rows().log(1, **{"a" * 201: 1.0, "b": 2.0}).done() == [(1, 1, {"b": 2.0})]


@pytest.mark.parametrize("time", [math.nan, math.inf, -5.0, 1e15])
def test_a_time_that_is_none_never_leaves(time: float) -> None:
    rows = make_rows(run="r", names=None, clock=lambda: 77.0, state=None)
    rows.take(Values("", time, 1, {"a": 1.0}))
    for record in rows.finish():
        assert wire.decode(wire.encode(record)).record.time == 77.0


# --- the three clocks of slime -------------------------------------------------------------------------------------------

ROLLOUT = {"rollout/response_len/mean": 100.0, "perf/rollout_time": 20.0}


def rollout(number: int) -> Line:
    return number, {"rollout/response_len/mean": 100.0 + number, "rollout/step": float(number)}


def train(step: int) -> Line:
    return step, {"train/pg_loss": float(step), "train/step": float(step)}


def perf(number: int) -> Line:
    return number, {"perf/step_time": 9.0 + number}


def joined(rows: Rows) -> list[tuple[int, float | None, float | None]]:
    """(step, response length, step time) of each record."""
    return [(step, m.get("rollout/response_len/mean"), m.get("perf/step_time")) for _, step, m in rows.done()]


def test_one_training_step_per_rollout() -> None:
    rows = Rows().lines(rollout(0), train(0), perf(0), rollout(1), train(1), perf(1))
    assert joined(rows) == [(0, 100.0, 9.0), (1, 101.0, 10.0)]
    assert {record.names for record in rows.records if isinstance(record, StepRecord)} == {"slime"}


def test_several_training_steps_per_rollout() -> None:
    """A rollout goes into the first step that trains on it, its timings into the last."""
    rows = Rows().lines(rollout(0), *map(train, range(4)), perf(0), rollout(1), *map(train, range(4, 8)), perf(1))
    assert joined(rows) == [
        (0, 100.0, None), (1, None, None), (2, None, None), (3, None, 9.0),
        (4, 101.0, None), (5, None, None), (6, None, None), (7, None, 10.0),
    ]  # fmt: skip


def test_the_next_rollout_is_generated_during_training() -> None:
    rows = Rows().lines(rollout(0), rollout(1), train(0), perf(0), rollout(2), train(1), perf(1), train(2))
    assert joined(rows) == [(0, 100.0, 9.0), (1, 101.0, 10.0), (2, 102.0, None)]


def test_rollouts_that_nobody_trains_on_are_not_piled_up() -> None:
    rows = Rows().lines(*(rollout(number) for number in range(20)), train(0), train(1), train(2))
    assert joined(rows) == [(0, 118.0, None), (1, 119.0, None), (2, None, None)]


def test_rollouts_without_training_count_by_themselves() -> None:
    assert joined(Rows(names="slime").lines(rollout(3), rollout(4))) == [(3, 103.0, None), (4, 104.0, None)]


def test_a_rollout_that_still_waits_at_the_end_goes_into_the_step_that_would_have_come() -> None:
    assert joined(Rows().lines(rollout(0), train(0), rollout(1))) == [(0, 100.0, None), (1, 101.0, None)]


def test_an_evaluation_goes_into_the_next_step() -> None:
    rows = Rows().lines(
        (0, {"eval/aime": 0.25, "eval/step": 0.0}), rollout(0), train(0), (1, {"eval/aime": 0.5}), rollout(1), train(1)
    )
    assert [(step, metrics["eval/aime"]) for _, step, metrics in rows.done()] == [(0, 0.25), (1, 0.5)]


def test_the_first_values_may_not_tell_yet_that_this_is_slime() -> None:
    rows = Rows().lines((7, {"perf/x": 1.0}), (7, {"rollout/step": 7.0}), train(28))
    assert rows.done() == [(1, 28, {"perf/x": 1.0, "rollout/step": 7.0, "train/pg_loss": 28.0, "train/step": 28.0})]


def test_machines_that_are_looked_at_all_the_time() -> None:
    rows = Rows().lines(
        *((tick, {"ray/node.0.gpu.0.util": float(tick)}) for tick in range(500)),
        (1, {"train/gen_kl_error": 0.1}),
        (500, {"ray/node.0.gpu.0.util": 500.0}),
        (2, {"train/gen_kl_error": 0.2}),
    )
    assert [(step, metrics["ray/node.0.gpu.0.util"]) for _, step, metrics in rows.done()] == [(1, 499.0), (2, 500.0)]


@pytest.mark.parametrize(
    ("tag", "framework", "clock"),
    [
        ("train/pg_loss", "slime", ""),
        ("rollout/x", "slime", "rollout"),
        ("perf/x", "slime", "rollout"),
        ("eval/x", "slime", "eval"),
        ("rollout/reward", "areal", ""),
        ("ray/node.0.mem_gb", "nemo_rl", "ray"),
        ("ray/tune/reward", "canonical", ""),
        ("eval/eval_gsm8k_pass1", "openrlhf", ""),
    ],
)
def test_clocks(tag: str, framework: str, clock: str) -> None:
    assert clock_of(tag, framework) == clock


# --- restarts ------------------------------------------------------------------------------------------------------------


def test_a_new_writer_that_goes_back_is_a_new_attempt() -> None:
    rows = Rows().begin("a").log(9, "a", x=1.0).log(10, "a", x=1.0).begin("b").log(8, "b", x=2.0).log(9, "b", x=2.0)
    assert [(attempt, step) for attempt, step, _ in rows.done()] == [(1, 9), (1, 10), (2, 8), (2, 9)]
    assert [record.attempt for record in rows.records if isinstance(record, RunRecord)] == [1, 2]


def test_a_new_writer_that_repeats_the_last_step_is_a_new_attempt() -> None:
    rows = Rows().begin("a").log(10, "a", x=1.0).begin("b").log(10, "b", x=2.0)
    assert rows.done() == [(1, 10, {"x": 1.0}), (2, 10, {"x": 2.0})]


def test_a_new_writer_that_goes_on_is_none() -> None:
    rows = Rows().begin("a").log(10, "a", x=1.0).begin("b").log(11, "b", x=2.0).log(10, "b", y=1.0)
    assert [(attempt, step) for attempt, step, _ in rows.done()] == [(1, 10), (1, 10), (1, 11)]


def test_a_new_writer_that_adds_to_the_last_step_is_none() -> None:
    """`add_scalars` and a lazily opened evaluation writer."""
    assert Rows().begin("a").log(10, "a", x=1.0).begin("b").log(10, "b", y=2.0).done() == [(1, 10, {"x": 1.0, "y": 2.0})]


def test_writers_that_began_together_are_one_attempt_though_one_lags() -> None:
    rows = (
        Rows()
        .begin("a")
        .begin("b")
        .log(1, "a", x=1.0)
        .log(2, "a", x=1.0)
        .log(3, "a", x=1.0)
        .log(1, "b", y=1.0)
        .log(2, "b", y=1.0)
    )
    assert {attempt for attempt, _, _ in rows.done()} == {1}
    rows = Rows().begin("a").begin("b").log(7, "a", x=1.0).log(8, "b", y=1.0)
    rows.begin("c").begin("d").log(5, "c", x=2.0).log(4, "d", y=2.0).log(6, "c", x=2.0).log(5, "d", y=2.0)
    assert [record.attempt for record in rows.records if isinstance(record, RunRecord)] == [1, 2]


def test_a_writer_that_lags_too_far_is_told_and_no_restart() -> None:
    rows = Rows().begin("a").begin("b").log(100, "a", x=1.0).log(100 - LATE_STEPS, "b", y=1.0).log(99 - LATE_STEPS, "b", y=1.0)
    assert rows.errors == ["step 91 came when step 100 was there already, more than 8 later"]
    assert rows.done() == [(1, 92, {"y": 1.0}), (1, 100, {"x": 1.0})]


def test_a_new_writer_that_is_far_behind_is_a_new_attempt_whatever_its_clock_says() -> None:
    """Restarted on a machine whose clock is behind: its file seems to have begun before the other fell silent."""
    rows = Rows().begin("b").begin("a").log(100, "a", x=1.0).log(90, "b", x=2.0).log(91, "b", x=2.0)
    assert [(attempt, step) for attempt, step, _ in rows.done()] == [(1, 100), (2, 90), (2, 91)]


def test_a_value_without_a_step_goes_into_the_newest() -> None:
    rows = Rows().log(0, x=1.0).log(8, x=1.0).log(9, x=1.0).log(0, y=2.0).log(10, x=1.0)
    assert rows.done()[-2:] == [(1, 9, {"x": 1.0, "y": 2.0}), (1, 10, {"x": 1.0})]


def test_one_writer_that_goes_far_back_is_a_new_attempt() -> None:
    rows = Rows().begin("a").log(100, "a", x=1.0).log(95, "a", y=1.0).log(10, "a", x=1.0)
    assert [(attempt, step) for attempt, step, _ in rows.done()] == [(1, 95), (1, 100), (2, 10)]


def test_slime_restarts_with_rollouts_before_the_first_training_step() -> None:
    rows = Rows().begin("t").begin("r")
    for number in (40, 41):
        rows.log(number, "r", **rollout(number)[1]).log(number, "t", **train(number)[1])
    rows.begin("t2").begin("r2")
    for number in (40, 41):
        rows.log(number, "r2", **{**rollout(number)[1], "rollout/step": -1.0}).log(number, "t2", **train(number)[1])
    assert [(attempt, step, m["rollout/response_len/mean"], m["rollout/step"]) for attempt, step, m in rows.done()] == [
        (1, 40, 140.0, 40.0), (1, 41, 141.0, 41.0), (2, 40, 140.0, -1.0), (2, 41, 141.0, -1.0),
    ]  # fmt: skip


# --- configuration and state ---------------------------------------------------------------------------------------------


def test_hyperparameters_are_the_configuration_of_the_attempts_after_them() -> None:
    rows = Rows()
    rows.rows.settings({"lr": 0.5, "grpo.num_generations_per_prompt": 8})
    rows.log(1, x=1.0).done()
    first = rows.records[0]
    assert isinstance(first, RunRecord)
    assert first.config == {"lr": 0.5, "grpo.num_generations_per_prompt": 8}


TAGS = st.sampled_from(
    ["train/pg_loss", "train/step", "rollout/step", "rollout/raw_reward", "perf/step_time", "eval/aime", "x"]
)
STEPS = st.integers(0, 14)
VALUE = st.floats(width=32)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("log"), st.sampled_from("ab"), STEPS, TAGS, VALUE),
        st.tuples(st.just("begin"), st.sampled_from("abc"), STEPS, TAGS, VALUE),
        st.tuples(st.just("close"), st.just("a"), STEPS, TAGS, VALUE),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(ACTIONS, st.integers(0, 40))
def test_another_process_goes_on_exactly_where_one_stopped(actions: list[tuple[str, str, int, str, float]], stop: int) -> None:
    """The state is plain JSON, and everything that a step still waits for is in it."""

    def run(stop: int | None) -> list[str]:
        rows = make_rows(run="r", names=None, clock=None, state=None)
        out: list[Record] = []
        for index, (what, writer, step, tag, value) in enumerate(actions):
            if index == stop:
                state = json.loads(json.dumps(rows.state(), allow_nan=False))
                rows = make_rows(run="r", names=None, clock=None, state=state)
            out += _do(rows, what, writer, float(index), step, tag, value)
        return [repr(record) for record in [*out, *rows.finish()]]  # NaN equals NaN there

    assert run(stop) == run(None)


def _do(rows: EventRows, what: str, writer: str, time: float, step: int, tag: str, value: float) -> list[Record]:
    if what == "begin":
        rows.begins(writer, time)
        return []
    return rows.close() if what == "close" else rows.take(Values(writer, time, step, {tag: value}))[0]


@settings(max_examples=200)
@given(ACTIONS)
def test_attempts_never_fall_and_steps_of_one_fall_no_further_than_the_collector_allows(
    actions: list[tuple[str, str, int, str, float]],
) -> None:
    rows = make_rows(run="r", names=None, clock=None, state=None)
    out: list[Record] = []
    for index, (what, writer, step, tag, value) in enumerate(actions):
        out += _do(rows, what, writer, float(index), step, tag, value)
    newest: dict[int, int] = {}
    attempt = 1
    for record in [*out, *rows.finish()]:
        assert record.attempt >= attempt
        attempt = record.attempt
        if isinstance(record, StepRecord):
            assert record.step >= newest.get(attempt, record.step) - LATE_STEPS
            newest[attempt] = max(newest.get(attempt, record.step), record.step)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "log", "log", "log", "close"]),
            st.sampled_from("abc"),
            st.integers(0, 30),
            st.sampled_from(["train", "rollout", "perf", "eval"]),
        ),
        max_size=60,
    )
)
def test_no_value_is_lost_and_none_is_told_twice(actions: list[tuple[str, str, int, str]]) -> None:
    """Whatever the clocks do: each value is in exactly one record, or was refused with its reason."""
    rows = make_rows(run="r", names="slime", clock=None, state=None)
    out: list[Record] = []
    taken: list[str] = []
    for index, (what, writer, step, family) in enumerate(actions):
        if what == "log":
            records, error = rows.take(Values(writer, float(index), step, {f"{family}/v{index}": float(index)}))
            out += records
            if not error:
                taken.append(f"{family}/v{index}")
        else:
            out += _do(rows, what, writer, float(index), step, "", 0.0)
    told = [key for record in [*out, *rows.finish()] if isinstance(record, StepRecord) for key in record.metrics]
    assert sorted(told) == sorted(taken)

"""slime's console: three clocks, one record per training step."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.formats import FORMATS, Parsed
from tocsin.formats.base import Holding
from tocsin.formats.merge import GRACE_SECONDS
from tocsin.formats.slime_console import MAX_WAITING
from tocsin.wire import StepRecord

FORMAT = FORMATS["slime-console"]
RAY = "\x1b[36m(RolloutManager pid=77)\x1b[0m [2026-01-01 00:00:00] rollout.py:9 - "


def generated(rollout: int) -> str:
    values = {"rollout/response_len/mean": 100.0 + rollout, "rollout/truncated_ratio": 0.1, "perf/rollout_time": 9.0}
    return f"{RAY}perf {rollout}: {values}"


def to_train(rollout: int) -> str:
    return f"rollout {rollout}: {{'rollout/raw_reward': 0.{rollout}, 'rollout/log_probs': -0.3}}"


def step(number: int) -> str:
    return f"step {number}: {{'train/grad_norm': {number}.5, 'train/pg_loss': 0.0, 'train/step': {number}}}"


def trained(rollout: int) -> str:
    return f"perf {rollout}: {{'perf/train_time': 5.0, 'perf/step_time': 20.0}}"


def lines_of(rollouts: range, per_rollout: int) -> list[str]:
    """A synchronous run."""
    out = []
    for rollout in rollouts:
        first = rollout * per_rollout
        out += [generated(rollout), to_train(rollout), *map(step, range(first, first + per_rollout)), trained(rollout)]
        out.append(f"eval {rollout}: {{'eval/gsm8k': 0.5, 'eval/gsm8k-truncated_ratio': 0.1}}")
    return out


def parse(*lines: str, state: dict[str, object] | None = None) -> list[Parsed]:
    parser = FORMAT.parser(run="r", state=state)
    out: list[Parsed] = []
    offset = 0
    for text in lines:
        line = text.encode() + b"\n"
        out += parser.feed(line, offset)
        offset += len(line)
    return [*out, *parser.finish()]


def steps(*lines: str) -> list[StepRecord]:
    places = parse(*lines)
    assert all(place.record is not None for place in places)
    return [place.record for place in places if isinstance(place.record, StepRecord)]


def test_one_record_per_step_when_a_rollout_is_one_step() -> None:
    found = steps(*lines_of(range(3), 1))
    assert [(record.step, record.names, record.attempt) for record in found] == [
        (0, "slime", 1),
        (1, "slime", 1),
        (2, "slime", 1),
    ]
    assert found[2].metrics == {
        "rollout/response_len/mean": 102.0,
        "rollout/truncated_ratio": 0.1,
        "perf/rollout_time": 9.0,
        "rollout/raw_reward": 0.2,
        "rollout/log_probs": -0.3,
        "train/grad_norm": 2.5,
        "train/pg_loss": 0.0,
        "train/step": 2.0,
        "perf/train_time": 5.0,
        "perf/step_time": 20.0,
        "eval/gsm8k": 0.5,
        "eval/gsm8k-truncated_ratio": 0.1,
    }


@pytest.mark.parametrize("first", [0, 1, 3, 7])
@pytest.mark.parametrize("per_rollout", [1, 2, 4, 16])
def test_a_rollouts_dicts_go_to_its_own_training_steps(first: int, per_rollout: int) -> None:
    """Also in a log that begins in the middle: the number of steps per rollout is learnt before anything goes astray."""
    found = steps(*lines_of(range(first, first + 3), per_rollout))
    assert [record.step for record in found] == list(range(first * per_rollout, (first + 3) * per_rollout))
    assert {record.attempt for record in found} == {1}
    for record in found:
        rollout, place = divmod(record.step, per_rollout)
        assert record.metrics.get("rollout/response_len/mean") == (100.0 + rollout if place == 0 else None)
        assert record.metrics.get("rollout/raw_reward") == (pytest.approx(rollout / 10) if place == 0 else None)
        assert ("perf/step_time" in record.metrics) is (place == per_rollout - 1)
        assert ("eval/gsm8k" in record.metrics) is (place == per_rollout - 1)


@pytest.mark.parametrize("per_rollout", [1, 4, 16])
def test_a_rollout_generated_ahead_waits_for_its_steps(per_rollout: int) -> None:
    """Asynchronous training: the next rollout is ready before the one in training is done. Steps never leap back."""
    lines = []
    for rollout in range(3):
        first = rollout * per_rollout
        lines += [generated(0)] if rollout == 0 else []
        trains = [to_train(rollout), *map(step, range(first, first + per_rollout)), trained(rollout)]
        trains.insert(len(trains) // 2, generated(rollout + 1))
        lines += trains
    found = steps(*lines)
    numbers = [record.step for record in found]
    assert numbers == sorted(numbers)
    lengths = {
        record.metrics["rollout/response_len/mean"]: record.step for record in found if "perf/rollout_time" in record.metrics
    }
    assert lengths == {100.0 + rollout: rollout * per_rollout for rollout in range(4)}


def test_a_restart_from_a_checkpoint() -> None:
    before, after = lines_of(range(5), 2), lines_of(range(3, 6), 2)
    found = steps(*before, *after)
    assert [(record.attempt, record.step) for record in found] == [
        *((1, number) for number in range(10)),
        *((2, number) for number in range(6, 12)),
    ]
    assert found[10].metrics["rollout/response_len/mean"] == 103.0
    # Without the dicts of the process that generates, the steps tell of it.
    quiet = [line for line in after if not line.startswith(RAY)]
    assert [(record.attempt, record.step) for record in steps(*before, *quiet)][-6:] == [(2, number) for number in range(6, 12)]


@pytest.mark.parametrize("per_rollout", [1, 2, 16])
def test_the_critics_steps_join_the_actors(per_rollout: int) -> None:
    """PPO: the critic does its steps of a rollout before the actor; that is no restart."""
    lines = []
    for rollout in range(3):
        numbers = range(rollout * per_rollout, (rollout + 1) * per_rollout)
        critic = [f"critic-step {n}: {{'train/critic-grad_norm': {n}.25, 'train/step': {n}}}" for n in numbers]
        lines += [generated(rollout), *critic, to_train(rollout), *map(step, numbers), trained(rollout)]
    found = steps(*lines)
    assert [(record.attempt, record.step) for record in found] == [(1, number) for number in range(3 * per_rollout)]
    assert [record.metrics["train/critic-grad_norm"] for record in found] == [n + 0.25 for n in range(3 * per_rollout)]
    assert [record.metrics["train/grad_norm"] for record in found] == [n + 0.5 for n in range(3 * per_rollout)]


def test_a_critic_that_warms_up_alone() -> None:
    critic = [f"critic-step {n}: {{'train/critic-grad_norm': {n}.25}}" for n in range(13)]
    found = steps(*critic, step(12), step(13))
    assert [(record.attempt, record.step) for record in found] == [(1, number) for number in range(14)]
    assert found[12].metrics.keys() >= {"train/critic-grad_norm", "train/grad_norm"}


def test_an_evaluation_before_training() -> None:
    first, *_ = steps("eval 0: {'eval/gsm8k': 0.25}", *lines_of(range(1), 1)[:-1])
    assert (first.step, first.metrics["eval/gsm8k"], first.metrics["train/grad_norm"]) == (0, 0.25, 0.5)


def test_the_rollout_clock_may_be_the_training_steps() -> None:
    """--wandb-always-use-train-step, where a custom log function prints it."""
    found = steps("rollout 3: {'rollout/my': 1.0, 'rollout/step': 12}", step(12))
    assert [record.step for record in found] == [12]


def test_forms_of_values_and_noise() -> None:
    (record,) = steps(
        "step 5: {'train/grad_norm': nan, 'train/pg_loss': np.float64(0.5), 'train/lr-pg_0': 1e-06, 'train/tis': None}",
        "step 6: {'x': 1}",
        "The answer of step 5: {'a': 1}",
        "rollout 5: {}",
        "overstep 7: {'train/loss': 1.0}",
    )
    assert math.isnan(record.metrics.pop("train/grad_norm"))
    assert record.metrics == {"train/pg_loss": 0.5, "train/lr-pg_0": 1e-06, "train/tis": None}
    (place,) = parse("step 5: {'train/grad_norm': 0.5, 'train/pg_l")
    assert (place.record, place.error) == (None, "step 5 breaks off after 1 values")


def test_a_step_is_not_held_longer_than_the_grace() -> None:
    parser = FORMAT.parser(run="r")
    assert isinstance(parser, Holding)
    list(parser.feed(generated(0).encode(), 0))
    assert list(parser.overdue(9.0)) == []
    assert [type(place.record) for place in parser.overdue(9.0 + GRACE_SECONDS)][-1] is StepRecord
    again = FORMAT.parser(run="r", state=json.loads(json.dumps(parser.state())))
    places = [*again.feed(step(0).encode(), 1), *again.finish()]
    assert [(place.record.attempt, place.record.step) for place in places if isinstance(place.record, StepRecord)] == [(1, 0)]


@pytest.mark.parametrize("stop", range(12))
def test_another_process_goes_on_where_the_first_stood(stop: int) -> None:
    lines = [generated(3), to_train(3), step(6), generated(4), step(7), trained(3), to_train(4), step(8), step(9), trained(4)]
    parser = FORMAT.parser(run="r")
    out: list[Parsed] = []
    for offset, line in enumerate(lines):
        if offset == stop:
            parser = FORMAT.parser(run="r", state=json.loads(json.dumps(parser.state())))
        out += parser.feed(line.encode(), offset)
    out += parser.finish()
    found = [place.record for place in out if isinstance(place.record, StepRecord)]
    assert [(record.attempt, record.step, len(record.metrics)) for record in found] == [
        (1, 6, 8),
        (1, 7, 5),
        (1, 8, 8),
        (1, 9, 5),
    ]


def test_what_waits_for_a_training_that_never_comes_is_bounded_and_sent() -> None:
    found = steps(*(f"passrate {rollout}: {{'passrate/pass@1': 0.5}}" for rollout in range(5, 5 + 2 * MAX_WAITING)))
    assert sorted(record.step for record in found) == list(range(5, 5 + 2 * MAX_WAITING))


WORDS = st.sampled_from(["step", "rollout", "perf", "eval"])
KEYS = {"step": "train/loss", "rollout": "rollout/raw_reward", "perf": "perf/rollout_time", "eval": "eval/x"}


@given(st.lists(st.tuples(WORDS, st.integers(0, 9), st.sampled_from(["", "perf/train_time"])), max_size=25))
def test_whatever_the_order_is_every_dict_comes_out(dicts: list[tuple[str, int, str]]) -> None:
    lines = [
        f"{word} {number}: {{'{KEYS[word]}': 1.0, {repr(more) + ': 2.0, ' if more else ''}'{KEYS[word]}/{index}': {index}}}"
        for index, (word, number, more) in enumerate(dicts)
    ]
    found = steps(*lines)
    values = [value for record in found for key, value in record.metrics.items() if key.count("/") > 1]
    assert sorted(values) == list(range(len(dicts)))
    for before, after in itertools.pairwise(found):
        assert before.attempt <= after.attempt

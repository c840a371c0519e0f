"""A trainer's Prometheus endpoint is followed: which step a look belongs to, and what of it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import (
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    Summary,
)

from tests.kit.prometheus_endpoint import PRIME_RL, Ship, Trainer, seen, steps
from tocsin.ship.dialects import dialect_of
from tocsin.ship.endpoint import SETTLE_SECONDS
from tocsin.ship.prometheus import read_exposition
from tocsin.wire import RunRecord, StepRecord


def test_a_new_step_is_a_record_of_what_is_there_when_it_has_settled(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=5, trainer_loss=0.5, trainer_grad_norm=0.0)
    assert ship.poll() == []
    trainer.set(trainer_grad_norm=1.5)  # the first scrape fell between two of the trainer's writes
    assert ship.poll(SETTLE_SECONDS - 0.5) == []
    opening, step = ship.poll(0.5)
    assert isinstance(opening, RunRecord)
    assert opening.labels == {"framework": "prime_rl"}
    assert isinstance(step, StepRecord)
    assert (step.step, step.time, step.names) == (5, 1790000000.0, "prime_rl")
    assert step.metrics == {"step": 5.0, "loss/mean": 0.5, "optim/grad_norm": 1.5}
    trainer.set(trainer_loss=0.25)  # set before the step: it belongs to the next one
    assert ship.poll(60.0) == []
    trainer.set(trainer_step=6)
    ship.poll(1.0)
    assert steps(ship.poll(SETTLE_SECONDS)) == [(1, 6, {"step": 6.0, "loss/mean": 0.25, "optim/grad_norm": 1.5})]
    assert ship.said == []


def test_a_step_that_is_gone_before_it_settled_is_what_was_seen_last(trainer: Trainer, ship: Ship) -> None:
    for step in (1, 2, 3):
        trainer.set(trainer_step=step, trainer_grad_norm=step / 2)
        ship.poll(1.0)
        trainer.set(trainer_grad_norm=step / 4)
        ship.poll(1.0)
    assert steps(ship.transport.records) == [
        (1, 1, {"step": 1.0, "optim/grad_norm": 0.25}),
        (1, 2, {"step": 2.0, "optim/grad_norm": 0.5}),
    ]


def test_what_prime_rl_says_where_it_has_no_value_is_null(trainer: Trainer, ship: Ship) -> None:
    trainer.set(**dict.fromkeys(PRIME_RL, 0.0) | {"trainer_runs_max": 1.0})
    assert ship.poll(60.0) == [] == ship.poll(60.0)
    trainer.set(trainer_step=0, trainer_loss=0.5, trainer_last_step_timestamp_seconds=1789999999.5)
    ship.poll()
    (_, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(step, StepRecord)
    assert (step.step, step.time) == (0, 1789999999.5)
    assert step.metrics == {
        "step": 0.0, "loss/mean": 0.5, "perf/throughput": 0.0, "optim/grad_norm": 0.0, "perf/peak_memory": 0.0, "optim/lr": 0.0,
        "perf/mfu": None, "entropy/all/mean": None, "mismatch_kl/all/mean": None, "kl_ent_ratio/mean": None,
        "trainer_runs_max": 1.0,
    }  # fmt: skip


def test_rl_insight_for_verl(trainer: Trainer, ship: Ship) -> None:
    prefix = "rl_insight_monitor_"
    for name, value in {"training_global_step": 12.0, "actor_grad_norm": 0.5, "training_rollout_probs_diff_mean": 0.25}.items():
        gauge = Gauge(prefix + name, name, ["project", "experiment_name"], registry=trainer.registry)
        gauge.labels(project="verl", experiment_name="grpo-7b").set(value)
    turns = Gauge(prefix + "agent_loop_turn", "x", ["session"], registry=trainer.registry)
    turns.labels(session="a").set(1)
    turns.labels(session="b").set(2)
    ship.poll()
    (opening, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(opening, RunRecord)
    assert opening.labels == {"framework": "verl"}
    assert isinstance(step, StepRecord)
    assert (step.step, step.names) == (12, "verl")
    assert step.metrics == {"training_global_step": 12.0, "actor_grad_norm": 0.5, "training_rollout_probs_diff_mean": 0.25}
    assert ship.said == [f"{trainer.url}: several series of one name are left out: rl_insight_monitor_agent_loop_turn"]


def test_two_trainers_at_one_endpoint_are_told_apart_by_a_label(trainer: Trainer, ship: Ship, tmp_path: Path) -> None:
    gauge = Gauge("rl_insight_monitor_training_global_step", "x", ["experiment_name"], registry=trainer.registry)
    gauge.labels(experiment_name="a").set(3)
    gauge.labels(experiment_name="b").set(70)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == []
    assert any("tell them apart with --match LABEL=VALUE" in said for said in ship.said)
    other = Ship(trainer.url, tmp_path / "other", match={"experiment_name": "b"})
    other.poll()
    other.poll(SETTLE_SECONDS)
    assert seen(other) == [(1, 70)]


def test_an_endpoint_of_ones_own(trainer: Trainer, ship: Ship, tmp_path: Path) -> None:
    trainer.set(my_global_step=4, grad_norm=0.5, my_rounds=9)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert steps(ship.transport.records) == [(1, 4, {"my_global_step": 4.0, "grad_norm": 0.5, "my_rounds": 9.0})]
    other = Ship(trainer.url, tmp_path / "other", step="my_rounds", names="mine")
    other.poll()
    other.poll(SETTLE_SECONDS)
    assert seen(other) == [(1, 9)]
    assert {record.names for record in other.transport.records if isinstance(record, StepRecord)} == {"mine"}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (None, "no metric is known to tell the step; name it with --step-metric"),
        ("other", "there is no metric other that could tell the step; see --step-metric"),
    ],
)
def test_an_endpoint_whose_step_nobody_knows(trainer: Trainer, tmp_path: Path, step: str | None, said: str) -> None:
    trainer.set(loss=0.5)
    ship = Ship(trainer.url, tmp_path / "state", step=step)
    for _ in range(3):
        assert ship.poll(SETTLE_SECONDS) == []
    assert ship.said == [f"{trainer.url}: {said}"]


@pytest.mark.parametrize("step", [float("nan"), float("inf"), -1.0, 2.5, 1e30])
def test_a_step_that_is_none_is_waited_for(trainer: Trainer, ship: Ship, step: float) -> None:
    trainer.set(trainer_step=step, trainer_grad_norm=0.5)
    assert ship.poll() == [] == ship.poll(SETTLE_SECONDS)
    trainer.set(trainer_step=1)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 1)]


@pytest.mark.parametrize(("stamp", "time"), [(1789999990.0, 1789999990.0), (5.0, 1790000000.0), (1790009999.0, 1790000000.0)])
def test_the_time_of_a_step(trainer: Trainer, ship: Ship, stamp: float, time: float) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5, trainer_last_step_timestamp_seconds=stamp)
    ship.poll()
    assert [record.time for record in ship.poll(SETTLE_SECONDS)] == [time, time]


def test_what_is_taken_and_what_is_not(trainer: Trainer, ship: Ship) -> None:
    registry = trainer.registry
    trainer.set(train_step=2, reward=0.5)
    Counter("samples", "x", registry=registry).inc(7)
    Histogram("latency", "x", registry=registry).observe(1.0)
    Summary("size", "x", registry=registry).observe(1.0)
    Info("build", "x", registry=registry).info({"version": "1"})
    Enum("state", "x", states=["a", "b"], registry=registry)
    ProcessCollector(registry=registry)
    ship.poll()
    (_, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(step, StepRecord)
    # Info and Enum are exposed as gauges: the first is one series of value 1, the second two series of one name.
    assert step.metrics == {"train_step": 2.0, "reward": 0.5, "samples_total": 7.0, "build_info": 1.0}
    assert ship.said == [
        f"{trainer.url}: several series of one name are left out: state",
        f"{trainer.url}: histograms and summaries are left out: latency, size",
    ]


def test_untyped_samples_and_names_in_quotes() -> None:
    text = 'a 1\n{"val-core/acc/mean@1"} 0.5\n# TYPE c counter\nc 3\n'
    assert read_exposition(text).values == {"a": 1.0, "val-core/acc/mean@1": 0.5, "c_total": 3.0}


@pytest.mark.parametrize("text", ["a b c\n", "# TYPE 1x gauge\n", 'a{b="c 1\n', "{\n", "<html></html>\n"])
def test_a_text_that_is_none_is_a_place_that_could_not_be_read(trainer: Trainer, ship: Ship, text: str) -> None:
    trainer.answer = lambda handler: trainer.send(handler, text.encode())
    assert ship.poll() == []
    assert ship.shipper.tally.unreadable == 1
    assert "no exposition in Prometheus' text format" in ship.said[0]
    trainer.answer = trainer.metrics
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 1)]


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.text('abc{}="\\ \n#TYPE1.', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = read_exposition(text).values
    except ValueError:
        return
    assert all(isinstance(value, float) for value in values.values())


def test_what_the_wire_does_not_take(trainer: Trainer, ship: Ship) -> None:
    trainer.set(train_step=1, reward=float("nan"), **{"a" * 201: 1.0})
    ship.poll()
    (_, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(step, StepRecord)
    assert step.metrics == {"train_step": 1.0, "reward": "nan"}
    trainer.set(train_step=2, **{f"m{index}": 1.0 for index in range(2000)})
    ship.poll()
    assert ship.poll(SETTLE_SECONDS) == []
    assert ship.said[-1].endswith("2002 metrics at step 2, the limit is 2000")


@pytest.mark.parametrize(
    ("names", "step", "found"),
    [
        (["trainer_step", "trainer_mismatch_kl"], None, ("prime_rl", "trainer_step")),
        (["trainer_step", "trainer_loss"], None, ("canonical", "trainer_step")),
        (["rl_insight_monitor_x"], None, ("verl", "rl_insight_monitor_training_global_step")),
        (["rl_insight_monitor_x", "own"], "own", ("verl", "own")),
        (["actor_grad_norm", "critic_score_mean", "training_global_step"], None, ("verl", "training_global_step")),
        (["a_global_step", "b_train_step"], None, None),
        (["a"], None, None),
    ],
)
def test_dialects(names: list[str], step: str | None, found: tuple[str, str] | None) -> None:
    dialect = dialect_of(names, step)
    assert (None if dialect is None else (dialect.names, dialect.step)) == found

"""The callback on real trainers: one record per step, what it says, and that the training does not notice."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.kit import trl_run
from tests.kit.trl_records import Trained, train, trained
from tocsin import wire
from tocsin.transports.memory import MemoryTransport

TIMING = {"step_time", "step_duration_seconds", "train_runtime", "train_samples_per_second", "train_steps_per_second"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Four steps with true rollout logprobs."""
    return trained(tmp_path_factory.mktemp("healthy"), rollout_func=trl_run.rollouts())


def test_a_run_is_announced_with_its_configuration(healthy: Trained) -> None:
    run = healthy.run
    assert run.labels == {"framework": "trl", "algorithm": "grpo"}
    expected = {
        "group_size": 4, "prompts_per_step": 4, "clip_low": 0.2, "clip_high": 0.2, "temperature": 1.0, "kl_coef": 0.0,
        "max_response_length": 10, "max_grad_norm": 1.0, "ppo_epochs": 1, "advantage": "group_std", "learning_rate": 0.01,
        "loss_type": "dapo",
    }  # fmt: skip
    assert expected.items() <= run.config.items()
    assert isinstance(healthy.transport.records[0], wire.RunRecord), "before the first step"


def test_each_optimiser_step_is_one_record(healthy: Trained) -> None:
    assert [record.step for record in healthy.steps] == [1, 2, 3, 4]
    assert all(record.names == "trl" for record in healthy.steps)
    times = [record.time for record in healthy.steps]
    assert times == sorted(times)
    assert (healthy.end.status, healthy.end.step, healthy.end.reason) == ("finished", 4, "")
    counters = healthy.callback.reporter.counters
    assert (counters.bad_values, counters.dropped) == ({}, {})


def test_a_record_has_the_logged_row_as_it_is(healthy: Trained) -> None:
    history = [row for row in healthy.trainer.state.log_history if "train_runtime" not in row]
    assert len(history) == 4
    for record, row in zip(healthy.steps, history, strict=True):
        logged = {name: value for name, value in row.items() if name != "step"}
        assert {name: record.metrics.get(name) for name in logged} == pytest.approx(logged, rel=1e-6)


def test_groups_and_rollouts_are_those_of_the_step(healthy: Trained) -> None:
    for record in healthy.steps:
        groups = record.groups
        assert groups is not None
        assert (groups.size, len(groups.prompt), len(groups.success)) == (4, 4, 4)
        assert groups.success and sum(found or 0 for found in groups.success) == pytest.approx(
            16 * record.metrics["rewards/accuracy_reward/mean"]
        )
        assert record.rollouts
        for rollout in record.rollouts:
            assert rollout.prompt in trl_run.PROMPTS
            assert rollout.correct == bool(
                trl_run.accuracy_reward([rollout.response], [row["answer"] for row in trl_run.rows([rollout.prompt])])[0]
            )
    (first, *others) = [record.groups for record in healthy.steps if record.groups]
    assert any(set(first.prompt) & set(other.prompt) for other in others), "a prompt keeps its id"


def weights(trainer: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("GRPO", {}),
        ("GRPO", {"num_iterations": 2, "beta": 0.1, "logging_steps": 3}),
        ("GRPO", {"steps_per_generation": 4, "loss_type": "grpo", "importance_sampling_level": "sequence"}),
        ("RLOO", {"beta": 0.1}),
    ],
    ids=["grpo", "two iterations and a reference", "off-policy GSPO", "rloo"],
)
def test_training_is_bit_for_bit_the_same_with_the_callback(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    import torch

    alone = trl_run.trainer(tmp_path / "alone", kind=kind, **settings)
    alone.train()
    watched = train(trl_run.trainer(tmp_path / "watched", kind=kind, **settings)).trainer
    assert len(alone.state.log_history) == len(watched.state.log_history) > 1
    for row, other in zip(alone.state.log_history, watched.state.log_history, strict=True):
        assert {name: value for name, value in row.items() if name not in TIMING} == {
            name: value for name, value in other.items() if name not in TIMING
        }
    before, after = weights(alone), weights(watched)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not set(vars(watched)) & {"compute_loss", "_calculate_rewards"}, "and the trainer is as it was"


def test_steps_that_are_not_logged_are_measured_all_the_same(tmp_path: Path) -> None:
    found = trained(tmp_path, max_steps=7, logging_steps=3)
    assert [record.step for record in found.steps] == list(range(1, 8))
    assert [step for step, loss in enumerate(found.series("loss"), 1) if loss is not None] == [3, 6]
    for name in ("policy_entropy", "grad_norm", "learning_rate", "reward_mean", "step_duration_seconds"):
        assert all(isinstance(value, float) for value in found.series(name)), name
    # TRL puts the means since its last row into the row that closes the training: they belong to the last step.
    assert found.steps[-1].metrics["reward"] == pytest.approx(found.steps[-1].metrics["reward_mean"], abs=1e-6)
    assert not [name for record in found.steps for name in record.metrics if name.startswith(("train_", "total_flos"))]


def test_rows_that_say_the_run_time_are_rows_of_the_log(tmp_path: Path) -> None:
    found = trained(tmp_path, include_num_input_tokens_seen="all", max_steps=2)
    assert [record.step for record in found.steps] == [1, 2]
    for record in found.steps:
        assert {"train_runtime", "loss", "epoch", "reward"} <= record.metrics.keys()


def test_texts_among_the_numbers_are_no_metrics(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):  # type: ignore[misc]  # transformers is Any to the type checker
        """As ms-swift's, which comes before ours."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            logs |= {"global_step/max_steps": f"{state.global_step}/2", "elapsed_time": "3m 5s"}

    made = trl_run.trainer(tmp_path, max_steps=2)
    made.add_callback(Progress())
    found = train(made)
    assert found.callback.reporter.counters.bad_values == {}
    assert [record.step for record in found.steps] == [1, 2]


def test_learning_rate_and_gradient_norm_are_the_logged_ones(healthy: Trained) -> None:
    for record, row in zip(healthy.steps, healthy.trainer.state.log_history, strict=False):
        assert record.metrics["learning_rate"] == row["learning_rate"]
        assert record.metrics["grad_norm"] == pytest.approx(row["grad_norm"], rel=1e-6)


def test_an_evaluation_is_a_row_of_its_own_in_the_same_step(tmp_path: Path) -> None:
    from datasets import Dataset

    found = trained(
        tmp_path,
        eval_dataset=Dataset.from_list(trl_run.rows(trl_run.PROMPTS[:2])),
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=8,
    )
    assert [record.step for record in found.steps] == [1, 2, 2, 3, 4, 4]
    evaluations = [found.steps[2], found.steps[5]]
    for record in evaluations:
        assert "eval_reward" in record.metrics
        assert all(name.startswith("eval_") or name == "epoch" for name in record.metrics), "nothing of the training again"
        assert record.groups is None
    assert "policy_entropy" in found.steps[1].metrics, "the step's own record did not wait for the evaluation"


def test_a_row_that_comes_with_the_end_of_an_epoch_belongs_to_its_last_step(tmp_path: Path) -> None:
    found = trained(tmp_path, logging_strategy="epoch", max_steps=4)  # 8 prompts, 4 a step: two steps are an epoch
    assert [record.step for record in found.steps] == [1, 2, 3, 4]
    assert ["loss" in record.metrics for record in found.steps] == [False, True, False, True]
    assert all("policy_entropy" in record.metrics for record in found.steps)


def test_an_evaluation_outside_of_the_training_is_no_step(tmp_path: Path) -> None:
    from datasets import Dataset

    from tocsin.trl import TocsinCallback

    transport = MemoryTransport()
    made = trl_run.trainer(
        tmp_path, max_steps=1, eval_dataset=Dataset.from_list(trl_run.rows(trl_run.PROMPTS[:2])), per_device_eval_batch_size=8
    )
    callback = TocsinCallback("run-1", trainer=made, transport=transport)
    made.add_callback(callback)
    made.evaluate()
    made.train()
    made.evaluate()
    assert [type(record).__name__ for record in transport.records] == ["RunRecord", "StepRecord", "EndRecord"]
    assert callback.reporter is not None and callback.reporter.counters.dropped == {}


def test_without_the_trainer_the_log_is_reported(tmp_path: Path) -> None:
    from tocsin.trl import TocsinCallback

    transport = MemoryTransport()
    made = trl_run.trainer(tmp_path, max_steps=4, logging_steps=2)
    made.add_callback(TocsinCallback("run-1", transport=transport))
    made.train()
    records = [record for record in transport.records if isinstance(record, wire.StepRecord)]
    assert [record.step for record in records] == [1, 2, 3, 4]
    assert ["reward" in record.metrics for record in records] == [False, True, False, True]
    assert all("learning_rate" in record.metrics for record in records), "what hooks tell needs no trainer"
    assert all(record.groups is None and "policy_entropy" not in record.metrics for record in records)
    (run,) = [record for record in transport.records if isinstance(record, wire.RunRecord)]
    assert run.config["group_size"] == 4


def test_any_trainer_of_hugging_face_reports_its_log(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    from tocsin.trl import TocsinCallback

    encoded = [trl_run.tokenizer()(prompt) for prompt in trl_run.PROMPTS]
    data = [{"input_ids": row.input_ids, "labels": row.input_ids} for row in encoded]
    made = Trainer(
        model=trl_run.model(),
        args=TrainingArguments(
            output_dir=str(tmp_path), max_steps=3, logging_steps=1, use_cpu=True, report_to=[], disable_tqdm=True,
            save_strategy="no",
        ),
        train_dataset=data,
    )  # fmt: skip
    transport = MemoryTransport()
    callback = TocsinCallback("run-1", trainer=made, transport=transport)
    made.add_callback(callback)
    made.train()
    records = [record for record in transport.records if isinstance(record, wire.StepRecord)]
    assert [record.step for record in records] == [1, 2, 3]
    assert all({"loss", "grad_norm", "learning_rate"} <= record.metrics.keys() for record in records)
    assert callback.reporter is not None and callback.reporter.counters.bad_values == {}, "and nothing is missed"


def test_training_goes_on_without_a_reporter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tocsin.trl import TocsinCallback, callback

    made = trl_run.trainer(tmp_path, max_steps=3)
    added = TocsinCallback("run-1", trainer=made, on_stop="pause")
    made.add_callback(added)

    def none(*args: Any, **kwargs: Any) -> Any:
        raise OSError("no descriptors left")

    monkeypatch.setattr(callback, "Reporter", none)  # what the machine may do between the script's start and the training's
    made.train()
    assert made.state.global_step == 3
    assert added.reporter is None
    told = [record.getMessage() for record in caplog.records if record.name == "tocsin" and record.levelno >= logging.WARNING]
    assert len(told) == 1 and "no descriptors left" in told[0]


HOOKS = ("on_pre_optimizer_step", "on_step_end", "on_log", "on_train_end")


def test_hooks_never_raise_whatever_they_are_given(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import TrainerCallback

    from tocsin.trl import TocsinCallback

    made = trl_run.trainer(tmp_path, max_steps=3)
    callback = TocsinCallback("run-1", trainer=made, transport=MemoryTransport())

    def nonsense() -> None:
        for hook in HOOKS:
            getattr(callback, hook)(None, object(), None, logs={"a": 1.0}, optimizer=made.optimizer)

    class Nonsense(TrainerCallback):  # type: ignore[misc]  # transformers is Any to the type checker
        def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
            nonsense()

    for hook in HOOKS:
        getattr(callback, hook)(None, object(), None, logs={"a": 1.0})  # before the training: nothing to do, or told
    made.add_callback(callback)
    made.add_callback(Nonsense())
    made.train()
    assert made.state.global_step == 3
    assert callback.reporter is not None
    bad = callback.reporter.counters.bad_values
    # The first nonsense ends the training for the callback, so its hooks for log rows have nothing to do after it.
    assert {f"trl_{hook}" for hook in HOOKS} <= set(bad) and bad["trl_on_step_end"] >= 3
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING and record.name == "tocsin"]
    assert len(set(told)) == len(told), "each told once"


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"run": ""}, {"run": "a\0b"}, {"run": "r", "on_stop": "now"}, {"run": "r", "attempt": 0},
        {"run": "r", "transport": "http://nowhere"}, {"run": "r", "reporter": "also"}, {"run": "r", "rollout_log": "a\0b"},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_that_cannot_be_meant_are_refused_at_once(arguments: dict[str, Any]) -> None:
    from tocsin.trl import TocsinCallback

    with pytest.raises(ValueError):
        TocsinCallback(**arguments)


def test_every_response_is_kept_when_that_is_wanted(tmp_path: Path) -> None:
    from tocsin.rollout_log import read_rollouts

    found = trained(tmp_path / "out", callback={"rollout_log": tmp_path / "log"}, max_steps=2)
    assert found.callback.reporter.counters.bad_values == {}
    (folder,) = (tmp_path / "log").iterdir()
    kept = list(read_rollouts(folder))
    assert [row["step"] for row in kept] == [1] * 16 + [2] * 16
    assert {row["prompt"] for row in kept} <= set(trl_run.PROMPTS)


def test_labels_config_and_links_of_the_caller_win(tmp_path: Path) -> None:
    made = functools.partial(trl_run.trainer, tmp_path, max_steps=1)
    given = {"labels": {"team": "a", "algorithm": "dapo"}, "config": {"clip_high": 0.28, "note": "x"}, "links": {"wandb": "w"}}
    run = train(made(), **given).run
    assert run.labels == {"framework": "trl", "algorithm": "dapo", "team": "a"}
    assert (run.config["clip_high"], run.config["note"], run.links) == (0.28, "x", {"wandb": "w"})

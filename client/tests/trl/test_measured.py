"""What the callback measures in real trainings, against independent computations and against what TRL itself logs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.kit import trl_run
from tests.kit.trl_records import Trained, train, trained

Vector = npt.NDArray[np.float64]


@dataclass
class Seen:
    """Each loss pass of a training, as somebody else's wrapper on the trainer saw it, before the callback came."""

    passes: list[dict[str, Any]] = field(default_factory=list)

    def of(self, step: int) -> list[dict[str, Any]]:
        return [seen for seen in self.passes if seen["step"] == step]

    def tokens(self, step: int, name: str) -> Vector:
        """An array of a step, tokens under the mask alone."""
        return np.concatenate([seen[name][seen["mask"]] for seen in self.of(step)])


def look_at(trainer: Any) -> Seen:
    """Wrap the trainer on the object, as the callback does."""
    seen = Seen()
    logprobs = getattr(trainer, "_get_per_token_logps_and_entropies")  # noqa: B009 - private to TRL; the test looks where its loss looks
    loss = trainer.compute_loss
    latest: list[Any] = []

    @functools.wraps(logprobs)
    def get(*args: Any, **kwargs: Any) -> Any:
        latest.append(logprobs(*args, **kwargs))
        return latest[-1]

    @functools.wraps(loss)
    def compute(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        latest.clear()
        result = loss(model, inputs, *args, **kwargs)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        new = latest[-1][0].detach()
        found = {"new": new, "entropy": latest[-1][1], "old": inputs.get("old_per_token_logps", new)}
        found |= {"rollout": inputs.get("sampling_per_token_logps", new)}
        arrays = {name: value.detach().double().numpy() for name, value in found.items()}
        extra = {name: inputs[name].double().numpy() for name in ("advantages", "old_logps") if name in inputs}
        step = int(trainer.state.global_step) + 1
        seen.passes.append({"step": step, "mask": mask.bool().numpy(), **arrays, **extra, "loss": float(result.detach())})
        return result

    vars(trainer).update(_get_per_token_logps_and_entropies=get, compute_loss=compute)
    return seen


def watched(folder: Path, *, callback: dict[str, Any] | None = None, **settings: Any) -> tuple[Trained, Seen]:
    made = trl_run.trainer(folder, **settings)
    seen = look_at(made)
    found = train(made, **(callback or {}))
    assert found.callback.reporter.counters.bad_values == {}
    assert made.compute_loss.__closure__ is not None, "the other wrapper is still there"
    return found, seen


def test_the_logprob_gap_is_that_of_the_rollouts(tmp_path: Path) -> None:
    rollouts: list[Any] = []
    found, seen = watched(tmp_path, rollout_func=trl_run.rollouts(noise_from=2, noise=0.05, seen=rollouts))
    for record, generation in zip(found.steps, rollouts, strict=True):
        told = np.concatenate([np.asarray(row) for row in generation["logprobs"]])
        true = np.concatenate([np.asarray(row) for row in generation["true"]])
        gap = np.abs(true - told)
        metrics = record.metrics
        # Sampling and training pass differ by float32 rounding, some 1e-7 nats.
        assert metrics["rollout_logprob_abs_diff_mean"] == pytest.approx(gap.mean(), abs=1e-6)
        assert metrics["rollout_logprob_abs_diff_max"] == pytest.approx(gap.max(), abs=5e-6)
        assert metrics["rollout_kl_k1"] == pytest.approx((told - true).mean(), abs=1e-6)
        # And to the last digits, from the arrays that TRL's own loss was given.
        exact = seen.tokens(record.step, "old") - seen.tokens(record.step, "rollout")
        assert metrics["rollout_logprob_abs_diff_mean"] == pytest.approx(np.abs(exact).mean(), rel=1e-6)
        assert metrics["rollout_logprob_abs_diff_p99"] == pytest.approx(np.quantile(np.abs(exact), 0.99), rel=1e-6)
    gaps = found.series("rollout_logprob_abs_diff_mean")
    assert max(gaps[:2]) < 1e-5 < 0.01 < min(gaps[2:])
    assert min(found.series("ess_ratio")[:2]) > 0.999999
    assert max(found.series("ess_ratio")[2:]) < 0.999


AGREE = {
    "reward_mean": "reward", "reward_std": "reward_std", "zero_variance_group_ratio": "frac_reward_zero_std",
    "response_length_mean": "completions/mean_length", "response_length_max": "completions/max_length",
    "response_length_min": "completions/min_length", "truncated_ratio": "completions/clipped_ratio",
    "policy_entropy": "entropy", "ppo_clip_low_ratio": "clip_ratio/low_mean", "ppo_clip_high_ratio": "clip_ratio/high_mean",
    "ppo_clip_ratio": "clip_ratio/region_mean", "correct_ratio": "rewards/accuracy_reward/mean",
}  # fmt: skip
"""Measures and the keys under which TRL logs the same thing, when a step is one micro-batch."""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss_type": "grpo", "num_iterations": 3, "learning_rate": 0.05, "epsilon": 0.01, "epsilon_high": 0.02},
        {"beta": 0.1, "num_iterations": 2, "learning_rate": 0.05, "epsilon": 0.01, "use_bias_correction_kl": False},
        {"mask_truncated_completions": True},
    ],
    ids=["defaults", "three iterations", "reference", "truncated are masked"],
)
def test_where_trl_logs_the_same_the_values_are_the_same(tmp_path: Path, settings: dict[str, Any]) -> None:
    one = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "max_steps": 6}
    found = trained(tmp_path, **(one | settings))
    agree = dict(AGREE)
    if settings.get("beta"):
        agree["kl_reference_k3"] = "kl"
    logged = found.trainer.state.log_history
    moved = 0
    for record, row in zip(found.steps, logged, strict=False):
        generated = (record.step - 1) % settings.get("num_iterations", 1) == 0
        for name, key in agree.items():
            if key not in row or (name not in record.metrics and not generated):
                continue  # a batch is told of once, with the step that generated it
            assert record.metrics[name] == pytest.approx(row[key], rel=2e-5, abs=1e-7), (record.step, name)
        moved += row["clip_ratio/region_mean"] > 0
        for name, value in record.metrics["reward_component_mean"].items() if generated else ():
            assert value == pytest.approx(row[f"rewards/{name}/mean"], rel=1e-6)
    if settings.get("num_iterations"):
        assert moved >= 2, "the case has clipping in it"
        assert found.series("reuse_epochs")[0] == settings["num_iterations"]


def by_sequence(seen: Seen, step: int, level: str) -> tuple[Vector, Vector]:
    """(ratio, advantage) of each token as the loss weighs it, computed slowly."""
    ratios, advantages = [], []
    for part in seen.of(step):
        for row in range(len(part["mask"])):
            mask = part["mask"][row]
            if level == "rloo":
                log_ratio = part["new"][row][mask].sum() - part["old_logps"][row]
            else:
                log_ratio = (part["new"][row][mask] - part["old"][row][mask]).mean()
            ratios += [math.exp(log_ratio)] * int(mask.sum())
            advantages += [part["advantages"][row]] * int(mask.sum())
    return np.array(ratios), np.array(advantages)


@pytest.mark.parametrize(
    ("kind", "level", "settings"),
    [
        ("GRPO", "gspo", {"importance_sampling_level": "sequence", "loss_type": "grpo", "epsilon": 3e-3, "epsilon_high": 4e-3}),
        ("RLOO", "rloo", {"epsilon": 0.05}),
    ],
)
def test_clipping_is_judged_by_the_ratio_that_the_loss_weighs_with(
    tmp_path: Path, kind: str, level: str, settings: dict[str, Any]
) -> None:
    found, seen = watched(tmp_path, kind=kind, num_iterations=2, learning_rate=0.02, **settings)
    low, high = settings["epsilon"], settings.get("epsilon_high", settings["epsilon"])
    clipped = 0.0
    for record in found.steps:
        ratio, advantage = by_sequence(seen, record.step, level)
        metrics = record.metrics
        assert metrics["policy_ratio_mean"] == pytest.approx(ratio.mean(), rel=1e-5)
        assert metrics["policy_ratio_max"] == pytest.approx(ratio.max(), rel=1e-5)
        assert metrics["ppo_clip_low_ratio"] == pytest.approx(((ratio < 1 - low) & (advantage < 0)).mean(), abs=1e-9)
        assert metrics["ppo_clip_high_ratio"] == pytest.approx(((ratio > 1 + high) & (advantage > 0)).mean(), abs=1e-9)
        clipped += metrics["ppo_clip_ratio"]
    assert 0 < clipped < len(found.steps)


def test_rloo_divergence_is_known_although_it_ends_in_the_reward(tmp_path: Path) -> None:
    found = trained(tmp_path, kind="RLOO", beta=0.1, num_iterations=1, learning_rate=0.05)
    for record, row in zip(found.steps, found.trainer.state.log_history, strict=False):
        assert record.metrics["kl_reference_k1"] == pytest.approx(row["kl"], rel=1e-4, abs=1e-7)
    assert found.steps[-1].metrics["kl_reference_k1"] != 0
    assert found.run.config["advantage"] == "leave_one_out_kl"
    assert "advantage_bound_excess" not in found.steps[0].metrics, "that bound is GRPO's"


@pytest.mark.parametrize("loss_type", ["sapo", "vespo"])
def test_a_loss_without_a_clip_has_no_measures_of_one(tmp_path: Path, loss_type: str) -> None:
    found = trained(tmp_path, loss_type=loss_type, max_steps=2)
    names = {name for record in found.steps for name in record.metrics}
    assert not {name for name in names if "clip" in name} - {
        "grad_clip_ratio",
        "grad_norm_clipped",
        "completions/clipped_ratio",
    }
    assert "policy_ratio_max" in names


def test_cispo_is_judged_by_its_own_bound(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"loss_type": "cispo", "num_iterations": 2, "learning_rate": 0.05, "epsilon_high": 1.02}
    found = trained(tmp_path, per_device_train_batch_size=16, gradient_accumulation_steps=1, **settings)
    for record, row in zip(found.steps, found.trainer.state.log_history, strict=False):
        assert record.metrics["ppo_clip_high_ratio"] == pytest.approx(row["cispo_clip_ratio"], rel=1e-6)
        assert record.metrics["ppo_clip_low_ratio"] == 0
    assert max(found.series("ppo_clip_high_ratio")) > 0


def test_responses_of_an_older_policy_are_known_as_such(tmp_path: Path) -> None:
    found, seen = watched(tmp_path, steps_per_generation=4, per_device_train_batch_size=4, max_steps=5, learning_rate=0.02)
    # Generations before steps 1, 3 and 5; the second step of each is trained on what the weights before its first one wrote.
    assert found.series("staleness_mean") == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert [record.groups is not None for record in found.steps] == [True, False, True, False, True]
    for record in found.steps:
        fresh = record.step % 2 == 1
        first = record.metrics.get("first_minibatch_ratio_p99")
        assert first == pytest.approx(1.0, abs=1e-5) if fresh else first is None
        ratio = np.exp(seen.tokens(record.step, "new") - seen.tokens(record.step, "old"))
        assert record.metrics["policy_ratio_max"] == pytest.approx(ratio.max(), rel=1e-5)
        assert ("reward_mean" in record.metrics) == fresh
    assert found.steps[1].metrics["policy_ratio_max"] > 1.001, "there the weights had moved"


def test_several_generations_in_one_step_are_told_of_together(tmp_path: Path) -> None:
    found = trained(tmp_path, steps_per_generation=1, gradient_accumulation_steps=4, max_steps=2)
    for record in found.steps:
        assert record.groups is not None and len(record.groups.prompt) == 8
        assert record.metrics["generated_groups"] == 8
        assert record.metrics["loss_mask_mismatch_tokens"] == 0


def with_tool(generate: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Every third token of a completion was written by an environment, and its logprob is none."""

    def rollout(prompts: Any, trainer: Any) -> dict[str, Any]:
        output = generate(prompts, trainer)
        masks = [[int(place % 3 != 1) for place in range(len(row))] for row in output["completion_ids"]]
        logprobs = [
            [value if own else -99.0 for value, own in zip(row, mask, strict=True)]
            for row, mask in zip(output["logprobs"], masks, strict=True)
        ]
        return {**output, "logprobs": logprobs, "env_mask": masks}

    return rollout


def test_what_a_tool_wrote_is_neither_length_nor_mismatch(tmp_path: Path) -> None:
    found, seen = watched(tmp_path, rollout_func=with_tool(trl_run.rollouts()))
    for record, row in zip(found.steps, found.trainer.state.log_history, strict=False):
        assert record.metrics["rollout_logprob_abs_diff_max"] < 1e-5
        assert record.metrics["response_length_mean"] == pytest.approx(row["completions/mean_length"])
        assert record.metrics["loss_mask_mismatch_tokens"] == 0
        assert len(seen.tokens(record.step, "new")) < sum(part["mask"].size for part in seen.of(record.step))


def unscored(generate: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """vLLM could not say the logprob of the first token of each response."""

    def rollout(prompts: Any, trainer: Any) -> dict[str, Any]:
        output = generate(prompts, trainer)
        return {**output, "logprobs": [[None, *row[1:]] for row in output["logprobs"]]}

    return rollout


def test_tokens_that_vllm_did_not_score_are_counted_and_do_not_hide_the_others(tmp_path: Path) -> None:
    found = trained(tmp_path, rollout_func=unscored(trl_run.rollouts(noise_from=0)))
    for record in found.steps:
        assert record.metrics["nonfinite_count"]["logprob"] == 16
        assert 0.02 < record.metrics["rollout_logprob_abs_diff_mean"] < 0.06
        assert 0.9 < record.metrics["ess_ratio"] < 1


def test_a_step_beyond_the_limit_is_measured_in_part_and_told(tmp_path: Path) -> None:
    found = trained(tmp_path, callback={"max_positions": 100}, gradient_accumulation_steps=4, max_steps=2)
    assert found.callback.reporter.counters.bad_values == {"step_too_large": 6}
    for record in found.steps:
        assert record.metrics["policy_entropy"] > 0
        assert "loss_mask_mismatch_tokens" not in record.metrics, "not all rows were seen"
        assert record.metrics["reward_mean"] == pytest.approx(record.metrics["reward"], rel=1e-6), "samples are not limited"


def test_groups_without_spread_are_counted(tmp_path: Path) -> None:
    def same_for_half(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [1.0 if prompt < "2" else float(len(text)) for prompt, text in zip(prompts, completions, strict=True)]

    found = trained(tmp_path, reward_funcs=[same_for_half])
    for record, row in zip(found.steps, found.trainer.state.log_history, strict=False):
        groups = record.groups
        assert groups is not None
        flat = [std == 0 for std in groups.reward_std]
        assert record.metrics["zero_variance_group_ratio"] == np.mean(flat) == row["frac_reward_zero_std"]
        assert groups.success == [], "no reward function says what is correct"
    assert {0.0, 1.0} >= set(found.series("zero_variance_group_ratio")) or len(
        set(found.series("zero_variance_group_ratio"))
    ) > 1


def test_prompts_that_only_the_judge_cannot_judge_are_neither_right_nor_wrong(tmp_path: Path) -> None:
    def accuracy_reward(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
        return [None if prompt < "2" else float("1" in text) for prompt, text in zip(prompts, completions, strict=True)]

    found = trained(tmp_path, reward_funcs=[accuracy_reward, trl_run.accuracy_reward])
    unjudged = 0
    for record, row in zip(found.steps, found.trainer.state.log_history, strict=False):
        groups, metrics = record.groups, record.metrics
        assert groups is not None and len(groups.success) == len(groups.prompt)
        unjudged += 4 - len(groups.prompt)
        assert metrics["reward_mean"] == pytest.approx(row["reward"], rel=1e-6), "the other function applies to all"
        assert metrics["generated_groups"] == 4
        for rollout in record.rollouts:
            assert rollout.correct == (None if rollout.prompt < "2" else "1" in rollout.response)
    assert unjudged > 0


def test_prompts_that_no_function_can_judge_do_not_make_rewards_nan(tmp_path: Path) -> None:
    """As TRL's accuracy_reward does where it cannot read the right answer."""

    def accuracy_reward(prompts: list[str], completions: list[str], **_: Any) -> list[float | None]:
        return [None if prompt < "2" else float("1" in text) for prompt, text in zip(prompts, completions, strict=True)]

    found = trained(tmp_path, reward_funcs=[accuracy_reward])
    judged = []
    for record, row in zip(found.steps, found.trainer.state.log_history, strict=False):
        groups = record.groups
        metrics = record.metrics
        assert groups is not None
        judged.append(len(groups.prompt))
        if row["reward"] is None:
            continue
        assert metrics["reward_mean"] == pytest.approx(row["reward"], rel=1e-6)
        assert metrics["correct_ratio"] == pytest.approx(row["rewards/accuracy_reward/mean"], rel=1e-6)
        assert metrics["response_length_mean"] == pytest.approx(row["completions/mean_length"])
    assert min(judged) < 4, "the case has groups that are not judged in it"


def test_a_named_reward_function_says_what_is_correct(tmp_path: Path) -> None:
    settings = {"correct": "letter_reward", "correct_at": 0.25}
    found = trained(tmp_path, callback=settings, max_steps=2)
    for record in found.steps:
        texts = [rollout.response for rollout in record.rollouts]
        letters = trl_run.letter_reward(texts)
        assert [rollout.correct for rollout in record.rollouts] == [
            None if share is None else share >= 0.25 for share in letters
        ]


def test_conversations_are_read_as_text(tmp_path: Path) -> None:
    def says_a(completions: list[Any], **_: Any) -> list[float]:
        return [float("a" in completion[0]["content"]) for completion in completions]

    made = trl_run.trainer(tmp_path, reward_funcs=[says_a], conversational=True)
    found = train(made, correct="says_a")
    assert found.callback.reporter.counters.bad_values == {}
    for record in found.steps:
        assert record.groups is not None and len(set(record.groups.prompt)) == 4
        for rollout in record.rollouts:
            assert any(prompt in rollout.prompt for prompt in trl_run.PROMPTS)
            assert rollout.correct == ("a" in rollout.response)


def test_a_trainer_that_shows_no_logprobs_is_measured_without_them(tmp_path: Path) -> None:
    """As Unsloth's, which computes its loss in kernels of its own."""
    import torch
    import trl

    class UnslothGRPOTrainer(trl.GRPOTrainer):  # type: ignore[misc]  # trl is Any to the type checker
        def _get_per_token_logps_and_entropies(self, *args: Any, compute_efficient: bool = False, **kwargs: Any) -> Any:
            return (None, None) if compute_efficient else super()._get_per_token_logps_and_entropies(*args, **kwargs)

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
            assert self._get_per_token_logps_and_entropies(model, compute_efficient=True) == (None, None)
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            logits = model(input_ids=ids).logits[:, inputs["prompt_ids"].shape[1] - 1 : -1]
            logprobs = torch.log_softmax(logits, -1).gather(2, inputs["completion_ids"][:, :, None])[:, :, 0]
            return -(logprobs * inputs["completion_mask"] * inputs["advantages"][:, None]).mean()

    found = trained(tmp_path, trainer_class=UnslothGRPOTrainer, steps_per_generation=4, per_device_train_batch_size=4)
    assert found.run.labels["framework"] == "unsloth"
    assert {record.names for record in found.steps} == {"unsloth"}
    assert found.callback.reporter.counters.bad_values == {"no_new_logprobs": 8}
    for record in found.steps:
        assert "policy_ratio_max" not in record.metrics
        assert record.metrics["grad_norm"] > 0
        assert record.metrics["advantage_max"] > 0

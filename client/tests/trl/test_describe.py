"""What the arguments of TRL's trainers say about a run, of this version and of others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tocsin.batch import Settings
from tocsin.trl.describe import advantage_of, clips, config_of, kind_of, names_of, observed, ratio_of, settings_of


def arguments(tmp_path: Path, **given: Any) -> Any:
    """TRL's own."""
    import trl

    fixed = {"use_cpu": True, "bf16": False, "report_to": [], "activation_checkpointing": False, "num_generations": 4}
    return trl.GRPOConfig(output_dir=str(tmp_path), **fixed, **given)


def test_the_defaults_of_trl(tmp_path: Path) -> None:
    config = config_of(arguments(tmp_path, per_device_train_batch_size=8, gradient_accumulation_steps=3))
    expected = {
        "group_size": 4, "prompts_per_step": 6, "clip_low": 0.2, "clip_high": 0.2, "temperature": 1.0, "kl_coef": 0.0,
        "max_response_length": 512, "max_grad_norm": 1.0, "ppo_epochs": 1, "advantage": "group_std", "scale_rewards": "group",
        "gradient_accumulation_steps": 3,
    }  # fmt: skip
    assert expected.items() <= config.items()
    assert "gpus" not in config, "a CPU is none"
    settings = settings_of(arguments(tmp_path), "grpo")
    assert settings.is_bounds == Settings().is_bounds, "without vLLM nothing is truncated"
    assert (settings.group_size, settings.reuse_epochs, settings.max_response_length) == (4, 1, 512)


def test_upper_clip_delta_and_other_names(tmp_path: Path) -> None:
    config = config_of(arguments(tmp_path, epsilon=0.1, epsilon_high=0.28, delta=2.0, beta=0.04, num_iterations=2))
    assert (config["clip_low"], config["clip_high"], config["dual_clip"]) == (0.1, 0.28, 2.0)
    assert (config["kl_coef"], config["ppo_epochs"]) == (0.04, 2)


@pytest.mark.parametrize(
    ("mode", "low", "bounds"),
    [
        ("token_truncate", None, (None, 3.0)), ("sequence_truncate", 0.5, (None, 3.0)), ("sequence_mask", None, (0.0, 3.0)),
        ("token_mask", 0.5, (0.5, 3.0)),
    ],
)  # fmt: skip
def test_bounds_of_importance_weights(mode: str, low: float | None, bounds: tuple[float | None, float]) -> None:
    args = SimpleNamespace(
        use_vllm=True,
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=low,
        vllm_importance_sampling_clip_max=3.0,
    )
    assert settings_of(args, "grpo").is_bounds == bounds


@pytest.mark.parametrize(
    ("scale", "expected"),
    [("group", "group_std"), (True, "group_std"), ("batch", "batch_std"), ("none", "group_mean"), (False, "group_mean"),
     (None, None), ("new", None)],
)  # fmt: skip
def test_how_advantages_are_made(scale: Any, expected: str | None) -> None:
    assert advantage_of(SimpleNamespace(scale_rewards=scale), "grpo") == expected
    several = SimpleNamespace(scale_rewards=scale, multi_objective_aggregation="normalize_then_sum")
    assert advantage_of(several, "grpo") == "sum_of_group_std"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"beta": 0.0}, "leave_one_out"), ({"beta": 0.1}, "leave_one_out_kl"), ({}, "leave_one_out"),
        ({"beta": 0.1, "normalize_advantages": True}, "leave_one_out_batch_std"),
    ],
)  # fmt: skip
def test_advantages_of_rloo(given: dict[str, Any], expected: str) -> None:
    assert advantage_of(SimpleNamespace(**given), "rloo") == expected


def named(name: str, *bases: type, module: str = "trl.trainer.grpo_trainer") -> Any:
    return type(name, bases, {"__module__": module})()


def test_trainers_are_known_by_their_classes() -> None:
    grpo = type("GRPOTrainer", (), {})
    assert kind_of(named("GRPOTrainer")) == kind_of(named("MyTrainer", grpo)) == kind_of(named("UnslothGRPOTrainer")) == "grpo"
    assert kind_of(named("AsyncGRPOTrainer")) == "async_grpo"
    assert kind_of(named("GMPOTrainer", grpo)) == "gmpo"
    assert kind_of(named("RLOOTrainer")) == "rloo"
    assert kind_of(named("SFTTrainer")) == kind_of(None) == "other"
    assert (names_of(named("UnslothGRPOTrainer")), names_of(named("GRPOTrainer"))) == ("unsloth", "trl")
    swift = named("GRPOTrainer", grpo, module="swift.rlhf_trainers.grpo_trainer")
    assert (names_of(swift), kind_of(swift), observed(swift)) == ("ms_swift", "grpo", False)
    assert [observed(named(name)) for name in ("GRPOTrainer", "RLOOTrainer", "AsyncGRPOTrainer", "SFTTrainer")] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "loss", "expected"),
    [
        ("grpo", "dapo", True), ("grpo", "luspo", True), ("grpo", "cispo", True), ("grpo", "sapo", False),
        ("grpo", "vespo", False), ("gmpo", "grpo", False), ("rloo", "any", True), ("other", "grpo", False),
    ],
)  # fmt: skip
def test_which_losses_clip(kind: str, loss: str, expected: bool) -> None:
    assert clips(SimpleNamespace(loss_type=loss), kind) == expected


def test_which_ratio_the_loss_weighs_with() -> None:
    assert ratio_of(SimpleNamespace(importance_sampling_level="sequence"), "grpo") == "sequence_mean"
    assert (
        ratio_of(SimpleNamespace(importance_sampling_level="token"), "grpo") == ratio_of(SimpleNamespace(), "grpo") == "token"
    )
    assert ratio_of(SimpleNamespace(), "rloo") == "sequence_sum"


@pytest.mark.parametrize("args", [None, SimpleNamespace(), SimpleNamespace(epsilon="0.2", num_generations=True, beta=object())])
def test_arguments_of_any_kind_are_survived(args: Any) -> None:
    assert "group_size" not in config_of(args, "grpo")
    assert settings_of(args, "grpo").clip_low == Settings().clip_low

"""What a trainer's arguments say about the run: the configuration of its record, and the settings of its measures.

Everything is read by name with a default, because arguments come and go between versions of TRL.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from tocsin.batch import Settings

_KINDS: Final = (
    ("AsyncGRPOTrainer", "async_grpo"),
    ("GMPOTrainer", "gmpo"),
    ("GRPOTrainer", "grpo"),
    ("RLOOTrainer", "rloo"),
)
"""Endings of class names (Unsloth puts its own name in front), the narrower ones first."""
_OBSERVED: Final = frozenset({"grpo", "gmpo", "rloo"})
"""Kinds whose loss and generation are read; the others have another structure."""
_COPIED: Final = (
    "loss_type",
    "importance_sampling_level",
    "scale_rewards",
    "learning_rate",
    "num_iterations",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "per_device_train_batch_size",
    "generation_batch_size",
    "max_steps",
    "logging_steps",
    "save_steps",
    "seed",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "use_vllm",
    "vllm_mode",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
    "off_policy_mask_threshold",
    "mask_truncated_completions",
    "multi_objective_aggregation",
    "reward_weights",
    "bf16",
    "fp16",
)
"""Arguments that go into the configuration under their own names, where there are such."""
_ADVANTAGES: Final[Mapping[str, str]] = {
    "group": "group_std",
    "True": "group_std",
    "batch": "batch_std",
    "none": "group_mean",
    "False": "group_mean",
}
"""How TRL's `scale_rewards` makes advantages of group-centred rewards (older versions: a bool)."""
_CLIPPED_LOSSES: Final = frozenset({"grpo", "bnpo", "dr_grpo", "dapo", "luspo"})
"""Losses with PPO's clip on both sides; cispo has an upper bound only, sapo and vespo weigh without a clip."""
CLIP_METRICS: Final = frozenset({
    "ppo_clip_ratio", "ppo_clip_high_ratio", "ppo_clip_low_ratio", "ppo_dual_clip_ratio", "ppo_clip_high_given_positive_ratio",
    "ppo_clip_low_given_negative_ratio", "unclipped_update_ratio", "first_minibatch_clip_ratio",
})  # fmt: skip
"""Measures that mean nothing to a loss without PPO's clip."""


def kind_of(trainer: Any) -> str:
    """grpo | gmpo | rloo | async_grpo | other: what the trainer's class, or a class it is made of, is called."""
    names = [base.__name__ for base in type(trainer).__mro__]
    for ending, kind in _KINDS:
        if any(name.endswith(ending) for name in names):
            return kind
    return "other"


def names_of(trainer: Any) -> str:
    """The vocabulary of the trainer's log: that of Unsloth or ms-swift where they have replaced TRL's class, else trl."""
    if type(trainer).__name__.startswith("Unsloth"):
        return "unsloth"
    return "ms_swift" if type(trainer).__module__.partition(".")[0] == "swift" else "trl"


def observed(trainer: Any) -> bool:
    """Whether the trainer's loss and generation are read: ms-swift's have its class name from TRL and nothing else."""
    return kind_of(trainer) in _OBSERVED and names_of(trainer) != "ms_swift"


def config_of(args: Any, kind: str = "grpo") -> dict[str, Any]:
    """The configuration for the run record: canonical names first, then the arguments under their own. Never raises."""
    config: dict[str, Any] = {}
    group = _number(args, "num_generations")
    world = _number(args, "world_size") or 1
    samples = (_number(args, "per_device_train_batch_size") or 0) * (_number(args, "gradient_accumulation_steps") or 1) * world
    clip_low = _number(args, "epsilon")
    clip_high = _number(args, "epsilon_high")
    found = {
        "group_size": group,
        "prompts_per_step": samples // group if group and samples else None,
        "clip_low": clip_low,
        "clip_high": clip_high if clip_high is not None else clip_low,
        "dual_clip": _number(args, "delta"),
        "temperature": _number(args, "temperature"),
        "kl_coef": _number(args, "beta"),
        "max_response_length": _number(args, "max_completion_length"),
        "max_grad_norm": _number(args, "max_grad_norm"),
        "ppo_epochs": _number(args, "num_iterations"),
        "advantage": advantage_of(args, kind),
        "gpus": world * (_number(args, "n_gpu") or 0) or None,
    }
    config.update((name, value) for name, value in found.items() if value is not None)
    for name in _COPIED:
        if (value := getattr(args, name, None)) is not None:
            config[name] = getattr(value, "value", value)
    return config


def advantage_of(args: Any, kind: str) -> str | None:
    """How advantages are made of rewards; None where it is not known.

    group_std, group_mean, batch_std, leave_one_out as in `tocsin.batch`. With the others a group of equal rewards may have
    advantages: leave_one_out_kl (RLOO with a divergence in the reward), leave_one_out_batch_std (RLOO with
    `normalize_advantages`), sum_of_group_std (`normalize_then_sum`).
    """
    if kind == "rloo":
        if getattr(args, "normalize_advantages", False):
            return "leave_one_out_batch_std"
        return "leave_one_out_kl" if _number(args, "beta") else "leave_one_out"
    if getattr(args, "multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return "sum_of_group_std"
    scale = getattr(args, "scale_rewards", None)
    return None if scale is None else _ADVANTAGES.get(str(scale))


def settings_of(args: Any, kind: str) -> Settings:
    """The settings of measures. Never raises."""
    config = config_of(args, kind)
    loss = str(getattr(args, "loss_type", "grpo"))
    if loss == "cispo" and (bound := _number(args, "epsilon_high")) is not None:
        config |= {"clip_low": 1.0, "clip_high": bound - 1.0}  # cispo's bound is the ratio itself, and there is no lower one
    settings = Settings.from_config(config)
    low, high = _number(args, "vllm_importance_sampling_clip_min"), _number(args, "vllm_importance_sampling_clip_max")
    if getattr(args, "use_vllm", False) and high is not None:
        masks = str(getattr(args, "vllm_importance_sampling_mode", "")).endswith("mask")
        settings = dataclasses.replace(settings, is_bounds=(low or 0.0, high) if masks else (None, high))
    return settings


def clips(args: Any, kind: str) -> bool:
    """Whether the loss has PPO's clip, so that its measures mean something."""
    if kind != "grpo":
        return kind == "rloo"  # GMPO clips the logarithm of a token's ratio, to bounds of another kind
    return str(getattr(args, "loss_type", "grpo")) in _CLIPPED_LOSSES | {"cispo"}


def ratio_of(args: Any, kind: str) -> str:
    """The ratio that the loss weighs with: of a token; of a sequence, the mean (GSPO) or sum (RLOO) of its tokens' logs."""
    if kind == "rloo":
        return "sequence_sum"
    return "sequence_mean" if getattr(args, "importance_sampling_level", "token") == "sequence" else "token"


def _number(args: Any, name: str) -> Any:
    value = getattr(args, name, None)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None

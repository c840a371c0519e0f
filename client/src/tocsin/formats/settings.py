"""The settings of a run that a framework logs as hyperparameters, under the names that rules use.

The framework's own names stay beside them. Only NeMo RL logs its whole configuration into event files, flattened with dots.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_CANONICAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grpo.num_generations_per_prompt": "group_size",
        "grpo.num_prompts_per_step": "prompts_per_step",
        "policy.generation.temperature": "temperature",
        "policy.max_grad_norm": "max_grad_norm",
        "loss_fn.ratio_clip_min": "clip_low",
        "loss_fn.ratio_clip_max": "clip_high",
        "loss_fn.reference_policy_kl_penalty": "kl_coef",
    }
)


def with_canonical_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, and those that rules use once more under the canonical names of a run's `config`."""
    known = {_CANONICAL[name]: value for name, value in settings.items() if name in _CANONICAL}
    return {**known, **settings}

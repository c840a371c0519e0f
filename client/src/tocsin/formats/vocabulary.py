"""Whose metric names these are: told from the keys themselves, before any alias is looked up.

Each framework has marks, keys that hardly anyone else writes. The framework with most marked keys wins. Where there is no mark,
verl and TRL are known by their plainer names, which turn up elsewhere too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

UNKNOWN: Final = "canonical"
_MARKS: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "openrlhf": re.compile(
            r"train/(actor_(lr|grad_norm)|critic_(lr|grad_norm|loss)|policy_loss|ppo_(kl|clip_ratio)|vllm_kl|logprobs_diff)$"
            r"|train/(response_clip_ratio|group_reward_std|dynamic_filtering_pass_rate|rollout/\w+|timing/\w+)$"
            r"|vllm_kl$|timing/(make_experience|ppo_train)$|eval/eval_"
        ),
        "slime": re.compile(
            r"(train|rollout|eval)/step$|train/(train_rollout_logprob_abs_diff|pg_clipfrac|pg_loss|ppo_kl|ois|tis\w*|mis_\w+)$"
            r"|train/lr-pg_\d+$|rollout/(response_len/|zero_std/|raw_reward$|rollout_log_probs$|dynamic_filter/|repetition_frac$)"
            r"|passrate/pass@"
        ),
        "nemo_rl": re.compile(
            r"(train/)?(gen_kl_error|token_mult_prob_error|policy_kl_error|js_divergence_error|sampling_importance_ratio)$"
            r"|(train/)?(approx_entropy|probs_ratio\w*|global_valid_(seqs|toks)|mean_gen_tokens_per_sample|baseline_reward/pct_\w+)$"
            r"|timing/(train|validation)/|performance/\w+_per_|validation/(accuracy|avg_length|pass_k)$|ray/(node\.\d|ray_step)"
        ),
        "areal": re.compile(r"ppo_(actor|critic)/|timeperf/|rollout/(reward|accepted|rejected)$|eval-rollout/"),
        "prime_rl": re.compile(
            r"mismatch_kl/|optim/(grad_norm|lr)|progress/|off_policy/|is_masked|train/(agg|\w+)/(all|effective)/"
        ),
        "roll": re.compile(
            r"actor/(train_infer_\w+|ppo_ratio_\w+|clipfrac|approxkl|policykl|backward_steps|samples_used)$|actor_train/"
            r"|tokens?/(total_)?\w*_length/|scheduler/\w+_count$|system/(global_step|samples|tps)|time/step_\w+$|group/\w+_ratio"
        ),
        "open_instruct": re.compile(
            r"debug/vllm_|objective/(kl\d_avg|verifiable_\w+)|val/(rho_\w+|sequence_lengths\w*)$"
            r"|batch/(filtered_prompts\w*|percent_solved_\w+)|unsolved_batch_size_ratio$|model_step_\w+$"
        ),
        "trl": re.compile(
            r"(train/)?(completions/|rewards/.+/(mean|std)$|frac_reward_zero_std$|clip_ratio/|sampling/|num_tokens$)"
            r"|objective/(rlhf_reward|non_score_reward|scores)|policy/(approxkl|entropy|clipfrac)_avg$|logps/(chosen|rejected)$"
        ),
        "ms_swift": re.compile(r"(train/)?(rollout_correction/|train_speed\(s/it\)$|global_step/max_steps$)"),
    }
)
_VERL: Final = ("actor/", "actor_", "critic/", "critic_", "response_length/", "response_length_", "rollout_corr", "timing_s/")
_TRL: Final = frozenset(
    "loss grad_norm learning_rate reward reward_std kl frac_reward_zero_std completion_length completions/mean_length".split()
)


def vocabulary(keys: Iterable[str]) -> str:
    """Whose names the keys are: a framework of the alias table, "canonical" when nothing tells."""
    known = list(keys)
    counts = {framework: sum(marks.match(key) is not None for key in known) for framework, marks in _MARKS.items()}
    best = max(counts, key=lambda framework: counts[framework])
    if counts[best]:
        return "ms_swift" if counts["ms_swift"] and best == "trl" else best  # ms-swift writes TRL's names and some of its own
    plain = [key.removeprefix("train/") for key in known]
    if any(key.startswith(_VERL) for key in plain):
        return "verl"
    return "trl" if len(_TRL.intersection(plain)) >= 2 else UNKNOWN

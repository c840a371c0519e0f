"""Records to measure with: sixty metrics of a GRPO run, all canonical, drifting and noisy like real ones."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from tocsin import wire

METRICS: dict[str, tuple[float, float]] = {
    # name: (centre, relative spread)
    "rollout_logprob_abs_diff_mean": (0.003, 0.2),
    "rollout_logprob_abs_diff_std": (0.01, 0.2),
    "rollout_logprob_abs_diff_p99": (0.03, 0.2),
    "rollout_logprob_abs_diff_max": (0.4, 0.3),
    "rollout_prob_abs_diff_mean": (0.001, 0.2),
    "rollout_prob_abs_diff_max": (0.2, 0.3),
    "rollout_prob_pearson_correlation": (0.998, 0.0005),
    "rollout_kl_k1": (0.0002, 0.5),
    "rollout_kl_k3": (0.0003, 0.3),
    "is_weight_mean": (1.0, 0.003),
    "is_weight_max": (1.8, 0.2),
    "is_weight_min": (0.5, 0.2),
    "is_weight_std": (0.05, 0.2),
    "is_weight_clipped_ratio": (0.001, 0.5),
    "ess_ratio": (0.97, 0.005),
    "ess_ratio_token": (0.995, 0.001),
    "chi2_token": (0.004, 0.3),
    "first_minibatch_clip_ratio": (0.0005, 0.5),
    "grad_norm": (0.4, 0.2),
    "grad_norm_clipped": (0.4, 0.2),
    "grad_clip_ratio": (0.02, 0.5),
    "learning_rate": (1e-6, 0.0),
    "param_update_ratio": (6e-4, 0.1),
    "policy_loss": (0.002, 2.0),
    "policy_entropy": (0.35, 0.05),
    "policy_entropy_top20": (1.4, 0.05),
    "kl_old_policy": (0.0005, 0.3),
    "kl_reference": (0.002, 0.2),
    "policy_ratio_mean": (1.0, 0.001),
    "policy_ratio_p99": (1.15, 0.02),
    "policy_ratio_max": (2.2, 0.2),
    "policy_ratio_min": (0.4, 0.2),
    "ppo_clip_ratio": (0.004, 0.3),
    "ppo_clip_high_ratio": (0.002, 0.3),
    "ppo_clip_low_ratio": (0.002, 0.3),
    "reward_mean": (0.55, 0.06),
    "reward_std": (0.45, 0.05),
    "reward_max": (1.0, 0.0),
    "reward_min": (0.0, 0.0),
    "reward_group_std_mean": (0.25, 0.1),
    "correct_ratio": (0.5, 0.06),
    "zero_variance_group_ratio": (0.45, 0.1),
    "group_all_correct_ratio": (0.25, 0.15),
    "group_all_wrong_ratio": (0.2, 0.15),
    "zero_advantage_token_ratio": (0.42, 0.1),
    "advantage_mean": (0.0, 1.0),
    "advantage_max": (2.4, 0.05),
    "advantage_min": (-2.4, 0.05),
    "response_length_mean": (820.0, 0.04),
    "response_length_max": (4096.0, 0.0),
    "response_length_min": (90.0, 0.2),
    "response_length_correct_mean": (760.0, 0.04),
    "response_length_incorrect_mean": (900.0, 0.05),
    "truncated_ratio": (0.03, 0.3),
    "unique_response_ratio": (0.93, 0.02),
    "staleness_mean": (0.5, 0.1),
    "staleness_max": (2.0, 0.0),
    "step_duration_seconds": (60.0, 0.05),
    "rollout_duration_seconds": (38.0, 0.05),
    "tokens_per_second": (9000.0, 0.05),
}
assert len(METRICS) == 60


def steps(run: str, count: int, seed: int = 0) -> Iterator[wire.StepRecord]:
    """`count` healthy steps of one run, a minute apart."""
    rng = random.Random(seed)
    for step in range(1, count + 1):
        metrics = {
            name: centre * (1.0 + spread * rng.gauss(0.0, 0.5) * (1.0 + 0.1 * math.sin(step / 50)))
            if centre
            else rng.gauss(0, 1e-3)
            for name, (centre, spread) in METRICS.items()
        }
        yield wire.StepRecord(run=run, step=step, time=1.79e9 + 60.0 * step, metrics=metrics)


def encoded(run: str, count: int, seed: int = 0) -> list[bytes]:
    """The same as bytes on the wire, with the run record before them."""
    opening = wire.RunRecord(run=run, time=1.79e9, labels={"team": "bench", "algorithm": "grpo"}, config={"group_size": 8})
    return [wire.encode(opening), *(wire.encode(record) for record in steps(run, count, seed))]

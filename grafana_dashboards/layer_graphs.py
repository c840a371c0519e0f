"""Graphs of layers 0 to 4 of one run: life cycle, probabilities, gradient and mask, numbers, optimiser and critic."""

from __future__ import annotations

from typing import Final

from grafana_dashboards.layer_parts import Panels, against, graph, series, shares
from grafana_dashboards.limits import compared, variable
from grafana_dashboards.model import Scale, Target, When
from grafana_dashboards.palette import BLUE, GREY, ORANGE, PURPLE, SKY, TEAL, VERMILION
from grafana_dashboards.promql import fires, gauge
from rules.bundle import Bundle

WARNS: Final = Target(fires("EssRatioDecline"), "ESS declines: waits for confirmation", colour=ORANGE, shade=True)
CONFIRMED: Final = Target(fires("InstabilityConfirmed"), "instability confirmed", colour=VERMILION, shade=True)


def life_cycle() -> Panels:
    """Layer 0."""
    return (
        graph(
            "Time between records",
            "From record to record by the trainer's clock, and the silence from which the run counts as stalled.",
            series("record_gap_seconds", "gap", BLUE),
            series("record_gap_median", "median gap", SKY),
            series("stall_after", "stalled after", VERMILION, dashed=True),
            unit="s",
            scale=Scale.LOG,
        ),
        graph(
            "Step time and throughput",
            "A step that takes longer while responses are no longer is a slow host, not the data.",
            series("step_duration_seconds", "step time", BLUE, When.LOGGED),
            Target(gauge("tokens_per_second"), "tokens per second", When.LOGGED, ORANGE, right=True, unit="short"),
            unit="s",
            low=0,
        ),
        graph(
            "What is missing",
            "Metrics that stopped coming or stand still to the last bit, and records that the client dropped: there rules are"
            " blind.",
            series("vanished_metric_count", "vanished metrics", VERMILION),
            series("constant_metric_count", "constant metrics", ORANGE),
            series("client_dropped_records", "dropped records", BLUE, When.LOGGED),
            low=0,
        ),
    )


def probability(bundle: Bundle) -> Panels:
    """Layer 1: trainer and rollout engine must mean the same probabilities."""
    return (
        graph(
            "Logprob gap: mean, p99, max (nats)",
            "|log pi_train - log pi_rollout| of the sampled tokens. The line is the stop line for the mean, until a baseline"
            " is recorded.",
            series("rollout_logprob_abs_diff_mean", "mean", BLUE),
            series("rollout_logprob_abs_diff_p99", "p99", ORANGE),
            series("rollout_logprob_abs_diff_max", "max", GREY, dashed=True),
            lines=(variable(bundle, "LogprobGapStop", "gap_stop"),),
            scale=Scale.LOG,
        ),
        graph(
            "ESS ratio",
            "Effective sample size over samples. Orange shading: it declines, and waits for a gradient spike to confirm it;"
            " vermilion: confirmed, that pages.",
            series("ess_ratio", "ESS ratio", BLUE),
            series("ess_ratio_token", "by token", SKY),
            WARNS,
            CONFIRMED,
            unit="percentunit",
            high=1,
        ),
        graph(
            "Gradient norm beside it",
            "Before clipping, under the same shading: a tenfold jump within 20 records of a decline confirms an instability.",
            series("grad_norm", "gradient norm", BLUE),
            WARNS,
            CONFIRMED,
            scale=Scale.LOG,
        ),
        graph(
            "KL between the engines (nats per token)",
            "k1 and k3 estimate the same divergence; far apart they mean a bias, not noise.",
            series("rollout_kl_k1", "k1", ORANGE),
            series("rollout_kl_k3", "k3", BLUE),
            lines=(variable(bundle, "MismatchKl", "kl_mismatch"),),
        ),
        graph(
            "Importance weights",
            "pi_train / pi_rollout before truncation: the mean of correct weights is 1.",
            series("is_weight_mean", "mean", BLUE),
            series("is_weight_max", "max", GREY, dashed=True, right=True),
        ),
        graph(
            "Age of the rollouts (policy versions)",
            "Trainer's version minus the version that sampled. Growing by one per step: weights reach the engine no more.",
            series("staleness_mean", "mean", BLUE),
            series("staleness_max", "max", GREY, When.LOGGED, dashed=True),
            lines=(variable(bundle, "StaleRollouts", "stale"),),
            low=0,
        ),
        shares(
            "Clipped before any weight moved",
            "In the first minibatch every ratio should be 1: what is clipped there is a wrong probability.",
            series("first_minibatch_clip_ratio", "clipped tokens", BLUE),
            lines=(variable(bundle, "FirstMinibatchClipped", "clipped"),),
            high=None,
        ),
        graph(
            "Layers that differ after a weight sync",
            "Digests of trainer and rollout engine; anything above 0 pages.",
            series("weight_sync_mismatch", "layers", BLUE, When.LOGGED),
            lines=(compared(bundle, "WeightSyncMismatch", "weight_sync_mismatch"),),
            low=0,
        ),
        shares(
            "Responses that rejection masks",
            "By rejection rule; a share that falls while the gap grows is no repair.",
            Target(gauge("rejection_masked_sequence_ratio", by="option"), "{{option}}", When.LOGGED),
            lines=(variable(bundle, "RejectionHeavy", "masked"),),
        ),
    )


def gradient(bundle: Bundle) -> Panels:
    """Layer 2: size of the update, and the tokens it comes from."""
    return (
        graph(
            "Gradient norm",
            "Total L2 norm before and after clipping.",
            series("grad_norm", "before clipping", BLUE),
            series("grad_norm_clipped", "after clipping", SKY, When.LOGGED),
            Target(gauge("grad_clip_ratio"), "clipped updates", When.ALWAYS, GREY, dashed=True, right=True, unit="percentunit"),
            scale=Scale.LOG,
        ),
        graph(
            "Gradient norm over its recent median",
            "Of the 20 records before. One isolated spike heals; with an ESS decline it confirms an instability.",
            series("grad_norm_spike_ratio", "times the median", BLUE),
            lines=(variable(bundle, "GradNormTenfold", "tenfold"),),
            scale=Scale.LOG,
        ),
        graph(
            "Tokens in the loss that the policy did not write",
            "|sum of the loss mask - completion tokens|; anything above 0 pages.",
            series("loss_mask_mismatch_tokens", "tokens", BLUE),
            series("loss_mask_mismatch_positions", "positions", ORANGE, When.LOGGED),
            lines=(compared(bundle, "LossMaskMismatch", "loss_mask_mismatch_tokens"),),
            low=0,
        ),
    )


def numbers(bundle: Bundle) -> Panels:
    """Layer 3."""
    return (
        graph(
            "Metrics that are NaN or infinite",
            "A line through NaN is a gap, so they are counted. Anything above 0 pages.",
            series("nonfinite_metric_count", "metrics", BLUE),
            Target(gauge("nonfinite_count", by="tensor"), "{{tensor}}", When.LOGGED),
            lines=(compared(bundle, "NonFinite", "nonfinite_metric_count"),),
            low=0,
        ),
        graph(
            "Advantages",
            "The mean over tokens should be near 0; far from it the baseline is not the group's own.",
            series("advantage_mean", "mean", BLUE),
            series("advantage_max", "max", GREY, dashed=True),
            series("advantage_min", "min", GREY, dashed=True),
        ),
        shares(
            "Updates that were skipped, ratios at the fuse",
            "Share of applied optimiser updates, and of tokens whose log ratio hit the clamp.",
            series("update_success_ratio", "applied updates", BLUE, When.LOGGED),
            series("log_ratio_clamp_ratio", "clamped tokens", ORANGE, When.LOGGED),
        ),
    )


def optimiser(bundle: Bundle) -> Panels:
    """Layer 4."""
    return (
        against(
            "Clipped above (advantage > 0)",
            "Share of tokens beyond 1 + eps_high that wanted to rise: the upper side limits exploration. Solid: of all tokens.",
            series("ppo_clip_high_ratio", "of all tokens", BLUE),
            series("ppo_clip_high_given_positive_ratio", "of those with advantage > 0", SKY, When.LOGGED),
            high=None,
        ),
        against(
            "Clipped below (advantage < 0)",
            "Share of tokens beyond 1 - eps_low that wanted to fall. Only this side, for long: good tokens are not reinforced.",
            series("ppo_clip_low_ratio", "of all tokens", ORANGE),
            series("ppo_clip_low_given_negative_ratio", "of those with advantage < 0", PURPLE, When.LOGGED),
            high=None,
        ),
        shares(
            "Clipped in all",
            "Share of tokens with an active clip, either side. The line is absolute; the rule also wants twice the baseline.",
            series("ppo_clip_ratio", "clipped", BLUE, When.LOGGED),
            series("ppo_dual_clip_ratio", "dual clip", ORANGE, When.LOGGED),
            lines=(variable(bundle, "ClipFractionHigh", "clip"),),
            high=None,
        ),
        graph(
            "KL (nats per token)",
            "To the reference, and of one update to the policy before it.",
            series("kl_reference", "to the reference", BLUE),
            series("kl_old_policy", "of the update", ORANGE),
            lines=(compared(bundle, "KlReferenceRise", "kl_reference"),),
        ),
        graph(
            "Policy ratio",
            "pi_theta / pi_old: the 99th percentile and the extreme.",
            series("policy_ratio_p99", "p99", BLUE),
            series("policy_ratio_max", "max", GREY, When.LOGGED, dashed=True),
            lines=(compared(bundle, "PolicyRatioTail", "policy_ratio_p99"),),
            scale=Scale.LOG,
        ),
        graph(
            "Size of the update",
            "L2 norm of the change over that of the parameters, and the learning rate.",
            series("param_update_ratio", "update / parameters", BLUE),
            series("learning_rate", "learning rate", GREY, dashed=True, right=True),
            scale=Scale.LOG,
        ),
    )


def critic(bundle: Bundle) -> Panels:
    """Layer 4, of trainers with a critic."""
    return (
        graph(
            "Explained variance of the critic",
            "1 - Var(return - value) / Var(return); below 0 a constant would do better.",
            series("value_explained_variance", "explained", BLUE, When.LOGGED),
            unit="percentunit",
            lines=(compared(bundle, "CriticExplainsNothing", "value_explained_variance"),),
            high=1,
        ),
        graph("Loss of the critic", "Of the value function.", series("critic_loss", "loss", BLUE, When.LOGGED)),
        shares(
            "Clipped value updates",
            "Share of tokens.",
            series("value_clip_ratio", "clipped", TEAL, When.LOGGED),
            lines=(variable(bundle, "ValueClipHigh", "clipped_values"),),
        ),
    )

"""Graphs of layers 5 and 6 of one run: rewards, groups, lengths; diversity."""

from __future__ import annotations

from grafana_dashboards.layer_parts import Panels, against, graph, series, shares
from grafana_dashboards.limits import variable
from grafana_dashboards.model import Target, When
from grafana_dashboards.palette import BLUE, GREY, ORANGE, PURPLE, SKY, VERMILION
from grafana_dashboards.promql import gauge
from rules.bundle import Bundle


def reward(bundle: Bundle) -> Panels:
    """Layer 5."""
    return (
        graph(
            "Reward",
            "Mean per sample before any KL penalty, its spread over the batch and within groups.",
            series("reward_mean", "mean", BLUE),
            series("reward_std", "spread of the batch", GREY, dashed=True),
            series("reward_group_std_mean", "spread within groups", SKY),
        ),
        graph(
            "Reward by component",
            "Mean of each reward function: one that rises while another falls is being gamed.",
            Target(gauge("reward_component_mean", by="component"), "{{component}}"),
        ),
        shares(
            "Correct and wrong",
            "Share of correct samples, and of groups with at least one (pass@G): the first may rise while the second falls.",
            series("correct_ratio", "correct", BLUE),
            series("group_pass_ratio", "groups with a correct one", ORANGE),
        ),
        against(
            "Groups without spread: observed, expected",
            "Share of groups whose rewards are all equal, and the share to be expected from difficulty and group size.",
            series("zero_variance_group_ratio", "observed", BLUE),
            series("zero_variance_expected", "expected", ORANGE),
        ),
        graph(
            "Excess over the expectation (z)",
            "Observed minus expected, in standard deviations.",
            series("zero_variance_z", "all groups", BLUE),
            series("zero_variance_z_all_wrong_seen", "all-wrong, prompts seen before", PURPLE),
            lines=(variable(bundle, "ZeroVarianceAboveExpected", "excess_z"),),
        ),
        against(
            "All-correct groups",
            "Groups that are solved every time: too easy, filter them.",
            series("group_all_correct_ratio", "observed", BLUE),
            series("zero_variance_expected_all_correct", "expected", SKY),
        ),
        against(
            "All-wrong groups",
            "Groups without any correct response: too hard, or a verifier that fails.",
            series("group_all_wrong_ratio", "observed", VERMILION),
            series("zero_variance_expected_all_wrong", "expected", ORANGE),
        ),
        graph(
            "Response length: correct, wrong (tokens)",
            "Only the wrong ones grow: a length bias. Both grow, the correct ones faster: a length hack.",
            series("response_length_correct_mean", "correct", BLUE),
            series("response_length_incorrect_mean", "wrong", ORANGE),
            series("response_length_max", "longest", GREY, dashed=True),
            low=0,
        ),
        shares(
            "Truncated and aborted",
            "Share of responses cut by the length limit, and of those that failed.",
            series("truncated_ratio", "truncated", BLUE),
            series("aborted_ratio", "aborted", ORANGE, When.LOGGED),
            lines=(variable(bundle, "TruncationHigh", "truncated"),),
        ),
    )


def diversity() -> Panels:
    """Layer 6."""
    return (
        graph(
            "Entropy (nats per token)",
            "Of the policy over response tokens, and over the fifth of positions where it is highest.",
            series("policy_entropy", "all tokens", BLUE),
            series("policy_entropy_top20", "top 20 % of positions", SKY),
            low=0,
        ),
        shares(
            "Distinct responses",
            "Distinct responses over responses, and the largest share with one and the same opening.",
            series("unique_response_ratio", "distinct", BLUE),
            series("response_opening_share", "same opening", ORANGE, When.LOGGED),
        ),
        against(
            "Do responses tell their prompt?",
            "Share of responses whose own prompt scores highest among P prompts, and what chance gives.",
            series("retrieval_accuracy", "accuracy", BLUE, When.LOGGED),
            series("retrieval_chance", "chance", GREY, When.LOGGED),
        ),
    )

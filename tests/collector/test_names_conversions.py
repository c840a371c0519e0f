"""Each conversion of the table on one row, and values that mean that there is none."""

from __future__ import annotations

from typing import Any

import pytest

from collector import catalogue
from collector.conversions import FROM_ROW, SCALARS
from tests.kit.naming import CONVERT, EXACT, PROXY, RAW, readings, series

# ---- conversions, one row each


@pytest.mark.parametrize(
    ("framework", "row", "config", "metric", "value"),
    [
        ("ms_swift", {"global_step/max_steps": "12/100"}, {}, "train_step", 12.0),
        ("ms_swift", {"iteration": "7/100"}, {}, "train_step", 7.0),
        ("areal", {"timeperf/rollout": 1.0, "timeperf/train_step": 2.5}, {}, "step_duration_seconds", 3.5),
        ("verl", {"perf/throughput": 100.0}, {"n_gpus": 8}, "tokens_per_second", 800.0),
        ("areal", {"ppo_actor/update/approx_kl/avg": 0.1}, {}, "kl_old_policy", -0.1),
        ("roll", {"actor/policykl": 0.1}, {}, "kl_old_policy", -0.1),
        ("nemo_rl", {"probs_ratio": 1.0, "probs_ratio_clamped": 0.75}, {}, "ppo_clip_ratio", 0.25),
        ("nemo_rl", {"token_mult_prob_error": 1.25}, {}, "rollout_logprob_abs_diff_mean", 0.25),
        ("areal", {"ppo_actor/update/compute_logp/kl_div_direct/avg": 0.1}, {}, "rollout_kl_k1", 0.1),
        ("areal", {"ppo_actor/update/behave_approx_kl/avg": 0.1}, {}, "rollout_kl_k1", -0.1),
        ("areal", {"ppo_actor/correct_n_seqs": 3.0, "ppo_actor/n_seqs": 12.0}, {}, "correct_ratio", 0.25),
        (
            "slime",
            {"rollout/zero_std/count_0.0": 3, "rollout/zero_std/count_1.0": 1, "rollout/dynamic_filter/drop_zero_std_0.0": 4},
            {"rollout_batch_size": 16},
            "zero_variance_group_ratio",
            8 / 20,
        ),
        ("verl", {"training/filter_groups/evicted_samples": 8}, {"train_batch_size": 24}, "zero_variance_group_ratio", 0.25),
        ("slime", {"rollout/response_len/mean": 9.0}, {"prompts_per_step": 16}, "zero_variance_group_ratio", 0.0),
        ("nemo_rl", {"baseline_reward/pct_0": 20, "baseline_reward/pct_1": 30}, {}, "zero_variance_group_ratio", 0.5),
        ("nemo_rl", {"baseline_reward/pct_0": 20}, {}, "group_all_wrong_ratio", 0.2),
        ("nemo_rl", {"baseline_reward/pct_1": 30}, {}, "group_all_correct_ratio", 0.3),
        (
            "prime_rl",
            {
                "train/agg/all/a/solved_none": 0.25,
                "train/agg/all/a/solved_all": 0.25,
                "train/agg/all/b/solved_none": 0.125,
                "train/agg/all/b/solved_all": 0.125,
            },
            {},
            "zero_variance_group_ratio",
            0.375,
        ),
        ("prime_rl", {"batch/solve_none": 0.25, "batch/solve_all": 0.5}, {}, "zero_variance_group_ratio", 0.75),
        (
            "roll",
            {"group/all_correct_groups_ratio": 0.25, "group/all_incorrect_groups_ratio": 0.5},
            {},
            "zero_variance_group_ratio",
            0.75,
        ),
        (
            "open_instruct",
            {"batch/filtered_prompts_solved": 3, "batch/filtered_prompts": 8, "batch/total_prompts": 16},
            {},
            "group_all_correct_ratio",
            0.125,
        ),
        (
            "open_instruct",
            {"batch/filtered_prompts_zero": 6, "batch/filtered_prompts": 8, "batch/total_prompts": 16},
            {},
            "group_all_wrong_ratio",
            0.25,
        ),
        (
            "openrlhf",
            {"dynamic_filtering_pass_rate": 400.0},
            {"group_size": 8, "prompts_per_step": 32},
            "filtered_groups",
            32.0,
        ),
        ("slime", {"rollout/dynamic_filter/drop_a": 2, "rollout/dynamic_filter/drop_b": 3}, {}, "filtered_groups", 5.0),
        ("areal", {"ppo_actor/seq_len/avg": 10.0, "ppo_actor/prompt_len/avg": 4.0}, {}, "response_length_mean", 6.0),
        ("roll", {"token/total_response_length/clip": 4, "system/batch_size": 16}, {}, "truncated_ratio", 0.25),
        ("roll", {"token/total_response_length/clip": 4}, {"prompts_per_step": 2, "group_size": 8}, "truncated_ratio", 0.25),
        ("open_instruct", {"val/stop_rate": 0.75}, {}, "truncated_ratio", 0.25),
        ("open_instruct", {"training_step": 9, "model_step_min": 7}, {}, "staleness_max", 2.0),
    ],
)
def test_conversion(framework: str, row: dict[str, Any], config: dict[str, Any], metric: str, value: float) -> None:
    found = series(framework, row, **config)
    assert found[metric][0] == pytest.approx(value)
    assert found[metric][1] in (CONVERT, PROXY, EXACT)


def test_every_conversion_has_a_row_above() -> None:
    marks = getattr(test_conversion, "pytestmark")  # noqa: B009 - mypy does not know what the decorator adds
    tested = {(metric, framework) for framework, _, _, metric, _ in marks[0].args[1]}
    assert tested == {*SCALARS, *FROM_ROW}


@pytest.mark.parametrize("place", sorted(FROM_ROW), ids=str)
def test_conversion_without_its_inputs_gives_no_value(place: tuple[str, str]) -> None:
    metric, framework = place
    keys = [key for key in catalogue.aliases()["metrics"][metric][framework]["keys"] if not key.startswith("/")]
    for key in keys:
        for value in (None, "text", 0.0):
            for reading in readings(framework, {key: value}):
                assert reading.value is None or reading.value == reading.value


# ---- nulls in disguise


def test_zero_that_means_not_computed() -> None:
    assert series("openrlhf", {"kl": 0.0, "actor_grad_norm": 0.0}) == {
        "kl_reference": (None, EXACT),
        "grad_norm": (None, EXACT),
    }
    assert series("openrlhf", {"train/kl": 0})["kl_reference"] == (None, EXACT)
    assert series("verl", {"actor/kl_loss": 0.0})["kl_reference"] == (0.0, EXACT)


def test_sentinels() -> None:
    assert series("nemo_rl", {"probs_ratio_min": -1.0, "train/probs_ratio_max": -1}) == {
        "policy_ratio_min": (None, EXACT),
        "policy_ratio_max": (None, EXACT),
    }
    assert series("nemo_rl", {"train/probs_ratio_clamped_min": -1.0, "probs_ratio_clamped_max": 1.5}) == {
        "train/probs_ratio_clamped_min": (None, RAW),
        "probs_ratio_clamped_max": (1.5, RAW),
    }


def test_constants_carry_no_information() -> None:
    assert series("areal", {"rollout/accepted": 1.0, "rollout/rejected": 1.0}) == {}

"""From trainers' keys to series: the traps of the alias table, one by one, and its data against its code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from collector import catalogue
from collector.aliases import CONDITIONS, EXCLUDED, Table
from collector.conversions import EXTRA_KEYS, FROM_ROW, SCALARS
from collector.model import Provenance
from collector.names import MAX_PLANS, Names, Reading, Refused, Vocabularies, read
from collector.signals import definitions

EXACT, CONVERT, PROXY, RAW = Provenance.EXACT, Provenance.CONVERT, Provenance.PROXY, Provenance.RAW
FRAMEWORKS = tuple(catalogue.aliases()["sources"])


def readings(vocabulary: str, metrics: dict[str, Any], **config: Any) -> list[Reading]:
    names = Names(vocabulary)
    found = list(read(names.plan(tuple(metrics)), metrics, config))
    return [reading for reading in found if isinstance(reading, Reading)]


def series(vocabulary: str, metrics: dict[str, Any], **config: Any) -> dict[str, tuple[float | None, Provenance]]:
    found = {}
    for reading in readings(vocabulary, metrics, **config):
        assert reading.series not in found, f"{reading.series} twice in one row"
        found[reading.series] = (reading.value, reading.provenance)
    return found


# ---- the data and the code


def test_every_transform_of_the_table_has_its_function_and_no_other() -> None:
    written = {
        (metric, framework)
        for metric, entry in catalogue.aliases()["metrics"].items()
        for framework, spec in entry.items()
        if isinstance(spec, Mapping) and ("transform" in spec or spec.get("class") == "convert")
    }
    # slime's drop counts are one metric in several keys: a sum without a transform in the table. verl's count of dropped groups
    # stands under a ratio there, as a proxy; a count is no ratio.
    assert {*SCALARS, *FROM_ROW} - written == {("filtered_groups", "slime"), ("zero_variance_group_ratio", "verl")}
    assert written <= {*SCALARS, *FROM_ROW}
    assert not SCALARS.keys() & FROM_ROW.keys()


@pytest.mark.parametrize("place", [*CONDITIONS, *EXCLUDED, *EXTRA_KEYS], ids=str)
def test_every_special_case_is_about_an_entry_of_the_table(place: tuple[str, str]) -> None:
    metric, framework = place
    assert framework in catalogue.aliases()["metrics"][metric]


def test_catalogue() -> None:
    metrics = catalogue.canonical()
    assert len(catalogue.aliases()["metrics"]) == 67
    assert metrics["reward_component_mean"].label == "component"
    assert metrics["nonfinite_count"].label == "tensor"
    assert not metrics.keys() & definitions().keys()
    for metric in (*metrics.values(), *definitions().values()):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.unit and metric.definition
        assert not metric.name.endswith("_total")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_plain_key_of_the_table_is_found(framework: str) -> None:
    """Alone in its row, as is and as a tracker or an export spells it."""
    for metric, entry in catalogue.aliases()["metrics"].items():
        spec = entry.get(framework, {})
        if (metric, framework) in {*SCALARS, *FROM_ROW} or (metric, framework) in CONDITIONS:
            continue
        for key in spec.get("keys", ()):
            if key.startswith("/"):
                continue
            spellings = [key] if framework in ("slime", "prime_rl") else [key, f"train/{key}"]
            for spelling in spellings:
                found = series(framework, {spelling: 0.25})
                assert found.get(metric, (0, None))[1] == spec["class"], (metric, spelling, found)


def test_unknown_framework_keeps_every_key_raw() -> None:
    names = Names("my_trainer")
    assert not names.known
    assert series("my_trainer", {"grad_norm": 1.0, "a/b": 2.0}) == {"grad_norm": (1.0, RAW), "a/b": (2.0, RAW)}


# ---- canonical


def test_canonical_names_are_themselves() -> None:
    found = series("canonical", {"grad_norm": 1, "my_own": 2.0, "reward_component_mean": {"a": 1.0, "b": None}, "odd/key": 3.0})
    assert found == {
        "grad_norm": (1.0, EXACT),
        "my_own": (2.0, RAW),
        'reward_component_mean{component="a"}': (1.0, EXACT),
        'reward_component_mean{component="b"}': (None, EXACT),
        "odd/key": (3.0, RAW),
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_canonical_name_is_itself_in_every_vocabulary(framework: str) -> None:
    """As adapters send measures beside the logged row; but for names that the framework uses itself, in whatever sense."""
    table = Table(framework)
    names = [name for name in catalogue.canonical() if not table.targets(name) and table.normal(name) not in table.constant]
    assert len(names) > 100
    for name in names:
        for other in ("kl", "training_tok/s", "progress/epoch"):  # what the conditions of some keys look at
            found = series(framework, {name: 0.25, other: 1.0})
            assert found.get(name, (None, None))[1] == EXACT, f"{name} beside {other}"


def test_label_values_are_escaped_once() -> None:
    (reading,) = readings("canonical", {"reward_component_mean": {'a"\\b': 1.0}})
    assert reading.series == 'reward_component_mean{component="a\\"\\\\b"}'


def test_objects_where_there_is_no_label() -> None:
    names = Names("canonical")
    metrics = {"policy_entropy": {"a": 1.0}, "timing": {"gen": 2.0, "bad": []}, "reward_domain_mean": {"x" * 300: 1.0}}
    found = list(read(names.plan(tuple(metrics)), metrics, {}))
    assert [entry for entry in found if isinstance(entry, Refused)] == [
        Refused("policy_entropy", "unexpected_object"),
        Refused("timing/bad", "not_a_number: expected a number, got list"),
        Refused("reward_domain_mean", "bad_label"),
    ]
    assert [entry.series for entry in found if isinstance(entry, Reading)] == ["timing/gen"]


def test_names_that_cannot_be() -> None:
    names = Names("canonical", frozenset({"resumed"}))
    metrics = {"": 1.0, "x" * 201: 1.0, "resumed": 1.0, "fine": 1.0}
    found = list(read(names.plan(tuple(metrics)), metrics, {}))
    assert [entry.reason for entry in found if isinstance(entry, Refused)] == ["bad_name", "bad_name", "reserved_name"]


def test_clients_measures_may_stand_beside_the_frameworks_keys() -> None:
    found = series(
        "verl", {"actor/grad_norm": 1.0, "rollout_logprob_abs_diff_mean": 0.004, "rollout_corr/log_ppl_abs_diff": 0.1}
    )
    assert found["rollout_logprob_abs_diff_mean"] == (0.004, EXACT)
    assert found["rollout_corr/log_ppl_abs_diff"] == (0.1, RAW)


# ---- prefixes, tags, exports


def test_train_is_stripped_once_where_a_tracker_adds_it() -> None:
    assert series("trl", {"train/grad_norm": 1.0})["grad_norm"] == (1.0, EXACT)
    assert series("openrlhf", {"train/rollout/reward_mean": 1.0})["reward_mean"] == (1.0, EXACT)
    assert series("slime", {"train/grad_norm": 1.0})["grad_norm"] == (1.0, EXACT)
    assert series("slime", {"grad_norm": 1.0})["grad_norm"] == (1.0, EXACT)  # our name, not slime's key
    assert series("slime", {"train/train/grad_norm": 1.0}) == {"train/train/grad_norm": (1.0, RAW)}


@pytest.mark.parametrize(
    "key",
    [
        "eval_rewards/x/mean",
        "eval/rewards/x/mean",
        "train/eval_rewards/x/mean",
        "validation/rewards/x/mean",
        "eval_rewards_x_mean",
        "val/rewards/x/mean",
        "test_rewards/x/mean",
    ],
)
def test_evaluation_never_becomes_training(key: str) -> None:
    for framework in FRAMEWORKS:
        assert series(framework, {key: 1.0}) == {key: (1.0, RAW)}


def test_evaluation_of_roll_is_no_domain() -> None:
    assert series("roll", {"math/critic/score/mean": 0.4, "val_math/critic/score/mean": 0.9}) == {
        'reward_component_mean{component="math"}': (0.4, PROXY),
        "val_math/critic/score/mean": (0.9, RAW),
    }


def test_eval_score_of_trl_in_both_spellings() -> None:
    assert series("trl", {"eval/reward": 0.5}) == {"eval_score": (0.5, EXACT)}
    assert series("trl", {"eval_reward": 0.5}) == {"eval_score": (0.5, EXACT)}


def test_verl_bypass_mode() -> None:
    found = series("verl", {"actor/rollout_corr/kl": 0.1, "actor/rollout_corr/rollout_is_min": 0.2})
    assert found == {"rollout_kl_k1": (0.1, EXACT), "is_weight_min": (0.2, PROXY)}  # a mean of minima is none


def test_verl_legacy_names() -> None:
    found = series("verl", {"mismatch/mismatch_k3_kl": 0.1, "mismatch/rollout_is_eff_sample_size": 0.9})
    assert found == {"rollout_kl_k3": (0.1, EXACT), "ess_ratio": (0.9, EXACT)}


def test_roll_tags() -> None:
    assert series("roll", {"actor/lr@mean": 1e-6, "critic/score/mean@mean": 0.5}) == {
        "learning_rate": (1e-6, EXACT),
        "reward_mean": (0.5, EXACT),
    }


def test_flat_exports() -> None:
    found = series(
        "verl",
        {
            "actor_grad_norm": 1.0,
            "critic_score_mean": 0.5,
            "actor_rollout_corr_k3_kl": 0.1,
            "gdpo_my_part_mean": 0.3,
            "val-core_gsm8k_acc_mean@8": 0.7,
            "timing_s_agent_loop_min": 3.0,
        },
    )
    assert found == {
        "grad_norm": (1.0, EXACT),
        "reward_mean": (0.5, EXACT),
        "rollout_kl_k3": (0.1, EXACT),
        'reward_component_mean{component="my_part"}': (0.3, EXACT),
        'eval_score{dataset="gsm8k"}': (0.7, EXACT),
        "timing_s_agent_loop_min": (3.0, RAW),
    }
    assert series("trl", {"rewards_accuracy_mean": 0.5, "rewards_accuracy_std": 0.1}) == {
        'reward_component_mean{component="accuracy"}': (0.5, EXACT),
        'reward_component_std{component="accuracy"}': (0.1, EXACT),
    }


def test_verls_keys_as_mlflow_takes_them() -> None:
    assert series("verl", {"val-core/look_at_me/acc/mean_at_8": 0.5, "val-core/x/acc/best_at_4/mean": 0.75}) == {
        'eval_score{dataset="look_at_me"}': (0.5, EXACT),
        'eval_pass_at_k{dataset="x@4"}': (0.75, PROXY),
    }


def test_verls_main_variable_before_the_others() -> None:
    for order in (
        ("val-core/x/acc/best@4/mean", "val-aux/x/reward/best@4/mean"),
        ("val-aux/x/r", "val-core/x/acc/best@4/mean"),
    ):
        found = series("verl", {key: (0.5 if "core" in key else 0.9) for key in order})
        assert found['eval_pass_at_k{dataset="x@4"}'] == (0.5, PROXY)
    assert series("verl", {"val-aux/x/reward/best@4/mean": 0.9})['eval_pass_at_k{dataset="x@4"}'] == (0.9, PROXY)


def test_unsloth_inherits_the_entries_of_trl_that_it_has_none_of() -> None:
    assert series("unsloth", {"entropy": 0.3, "eval_reward": 0.5, "clip_ratio/high_mean": 0.1}) == {
        "policy_entropy": (0.3, EXACT),
        "eval_score": (0.5, EXACT),
        "ppo_clip_high_ratio": (0.1, EXACT),
    }
    # Its own entries stay: other classes, and no AsyncGRPO meaning of `kl`.
    assert series("unsloth", {"kl": 0.1, "sampling/sampling_logp_difference/mean": 0.2}) == {
        "kl_reference": (0.1, EXACT),
        "rollout_logprob_abs_diff_mean": (0.2, PROXY),
    }
    assert series("unsloth", {"completions/mean_terminated_length": 0.0}) == {"completions/mean_terminated_length": (None, RAW)}


# ---- several keys


def test_first_listed_key_wins_and_the_other_keeps_its_number() -> None:
    for order in (("critic/score/mean", "rollout/score/mean"), ("rollout/score/mean", "critic/score/mean")):
        row = {key: (0.5 if key.startswith("critic") else 0.9) for key in order}
        assert series("roll", row) == {"reward_mean": (0.5, EXACT), "rollout/score/mean": (0.9, RAW)}


def test_second_listed_key_stands_in_for_a_null() -> None:
    assert series("verl", {"actor/kl_loss": None, "actor/reward_kl_penalty": 0.2})["kl_reference"] == (0.2, EXACT)


def test_one_key_may_feed_two_metrics() -> None:
    assert series("ms_swift", {"reward_std": 0.2}) == {"reward_std": (0.2, PROXY), "reward_group_std_mean": (0.2, EXACT)}


def test_async_grpo_means_other_things_by_the_same_names() -> None:
    plain = series("trl", {"kl": 0.1, "reward_std": 0.3})
    assert plain == {"kl_reference": (0.1, EXACT), "reward_std": (0.3, EXACT)}
    other = series("trl", {"kl": 0.1, "reward_std": 0.3, "ratio": 1.0})
    assert other == {
        "rollout_kl_k3": (0.1, EXACT),
        "reward_group_std_mean": (0.3, EXACT),
        "policy_ratio_mean": (1.0, EXACT),
    }


def test_online_dpo_rewards_are_no_components() -> None:
    assert series("trl", {"rewards/chosen": 1.0, "rewards/format": 0.5}) == {
        "rewards/chosen": (1.0, RAW),
        'reward_component_mean{component="format"}': (0.5, EXACT),
    }


def test_prime_rl_writers_share_a_key() -> None:
    assert series("prime_rl", {"time/step": 3.0, "time/forward_backward": 1.0})["step_duration_seconds"] == (3.0, EXACT)
    assert series("prime_rl", {"time/step": 3.0, "progress/tokens": 9.0})["time/step"] == (3.0, RAW)


def test_slime_evaluations() -> None:
    found = series("slime", {"eval/gsm8k": 0.5, "eval/step": 3.0, "eval/gsm8k-truncated_ratio": 0.1, "eval/gsm8k-pass@4": 0.7})
    assert found['eval_score{dataset="gsm8k"}'] == (0.5, EXACT)
    assert found['eval_pass_at_k{dataset="gsm8k@4"}'] == (0.7, EXACT)
    assert found["eval/step"] == (3.0, RAW)
    assert found["eval/gsm8k-truncated_ratio"] == (0.1, RAW)


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


# ---- bounds


def test_plans_are_kept_and_bounded() -> None:
    names = Names("canonical")
    assert names.plan(("grad_norm",)) is names.plan(("grad_norm",))
    for n in range(3 * MAX_PLANS):
        names.plan((f"key{n}",))
    assert len(names._plans) <= MAX_PLANS
    vocabularies = Vocabularies(max_unknown=4)
    for n in range(20):
        assert not vocabularies.of(f"made up {n}").known
    assert len(vocabularies._names) <= 4
    assert vocabularies.of("verl") is vocabularies.of("verl") or len(vocabularies._names) == 5

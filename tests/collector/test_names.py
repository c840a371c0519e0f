"""From trainers' keys to series: the traps of the alias table, one by one, and its data against its code."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from collector import catalogue
from collector.aliases import CONDITIONS, EXCLUDED, Table
from collector.conversions import EXTRA_KEYS, FROM_ROW, SCALARS
from collector.names import MAX_PLANS, Names, Reading, Refused, Vocabularies, read
from collector.signals import definitions
from tests.kit.naming import EXACT, PROXY, RAW, readings, series

FRAMEWORKS = tuple(catalogue.aliases()["sources"])


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

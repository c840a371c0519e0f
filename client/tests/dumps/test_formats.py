"""Each framework's dump, with its traps, against what is true of its samples."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from tests.kit import dumps
from tests.kit.dump_formats import MADE, holds, told
from tocsin.dumps import DUMPS, Options
from tocsin.dumps.sample import BadRow


@pytest.mark.parametrize("wrapped", [True, False])
def test_nemo(wrapped: bool) -> None:
    made = [*MADE[:-1], dataclasses.replace(MADE[-1], trained=False)]
    found = told("nemo-samples", dumps.nemo_rows(made, wrapped=wrapped))
    holds(found, dumps.mismatch(made))
    holds(found, dumps.rewards(made))
    holds(found, dumps.lengths(made))
    assert found.groups is not None and found.groups.size == 4 and found.groups.success == [0, 4, 2, 2, 2, 2]
    assert len(set(found.groups.prompt)) == 6
    assert found.notes == []


def test_nemo_a_sample_without_a_response_is_aborted_and_stays_in_its_group() -> None:
    made = [*MADE[:7], dataclasses.replace(MADE[7], response="", rollout=(), train=()), *MADE[8:]]
    found = told("nemo-samples", dumps.nemo_rows(made))
    holds(found, {"aborted_ratio": 1 / len(made), **dumps.rewards(made), **dumps.mismatch([*made[:7], *made[8:]])})
    assert found.groups is not None and found.groups.success == [0, 4, 2, 2, 2, 2]


def test_nemo_bounds_of_advantages_only_when_the_configuration_says_how_they_are_made() -> None:
    rows = dumps.nemo_rows(MADE)
    assert "advantage_bound_excess" not in told("nemo-samples", rows).metrics
    assert "advantage_bound_excess" in told("nemo-samples", rows, {"advantage": "group_std"}).metrics


def test_nemo_a_masked_sample_counts_in_rewards_and_not_in_tokens() -> None:
    wild = dataclasses.replace(MADE[0], train=tuple(value - 5.0 for value in MADE[0].train), trained=False)
    found = told("nemo-samples", dumps.nemo_rows([wild, *MADE[1:]]))
    holds(found, dumps.mismatch(MADE[1:]))
    holds(found, dumps.rewards(MADE))


def test_nemo_with_dynamic_sampling_a_row_has_its_own_reward_and_the_groups_are_not_all() -> None:
    rows = dumps.nemo_rows(MADE)
    for row in rows:
        row["filtered_rewards"], row["rewards"] = row["rewards"], [0.5]
    found = told("nemo-samples", rows)
    assert found.groups is None and not {"reward_mean", "zero_variance_group_ratio", "correct_ratio"} & found.metrics.keys()
    holds(found, dumps.mismatch(MADE))
    holds(found, dumps.lengths(MADE))
    assert (found.rollouts[0].picked, found.rollouts[0].reward) == ("first", MADE[0].reward)
    assert len(found.notes) == 1 and "dynamic sampling" in found.notes[0]


def test_nemo_placeholder_logprobs_are_no_mismatch() -> None:
    rows = dumps.nemo_rows(MADE)
    for row in rows:
        row["prev_logprobs"] = [[0.0] * len(row["prev_logprobs"][0])]
    found = told("nemo-samples", rows)
    assert not [name for name in found.metrics if name.startswith(("rollout_logprob", "ess", "chi2", "rollout_kl"))]
    holds(found, dumps.rewards(MADE))
    assert len(found.notes) == 1 and "placeholders" in found.notes[0]


def test_nemo_without_a_mask_has_no_token_measures() -> None:
    """Rows of old versions: 0 is a logprob like any other."""
    keys = ("content", "rewards", "generation_logprobs", "prev_logprobs", "input_lengths", "idx")
    found = told("nemo-samples", [{key: row[key] for key in keys} for row in dumps.nemo_rows(MADE)])
    assert not {"rollout_logprob_abs_diff_mean", "response_length_mean"} & found.metrics.keys()
    holds(found, dumps.rewards(MADE))
    holds(found, dumps.characters(MADE))


def test_nemo_not_a_number_is_seen() -> None:
    broken = dataclasses.replace(MADE[0], train=(math.nan, *MADE[0].train[1:]))
    found = told("nemo-samples", dumps.nemo_rows([broken, *MADE[1:]]))
    count = found.metrics["nonfinite_count"]
    assert isinstance(count, dict) and sum(value or 0 for value in count.values()) > 0
    holds(found, dumps.rewards(MADE))


def test_open_instruct() -> None:
    rows = dumps.open_instruct_rows(MADE, 3)
    found = told("open-instruct-rollouts", rows, {"filter_zero_std_samples": False})
    holds(found, dumps.rewards(MADE, scale=10.0))
    holds(found, dumps.lengths(MADE))
    holds(found, {"truncated_ratio": sum(row["finish_reason"] == "length" for row in rows) / len(rows)})
    assert found.groups is not None and found.groups.success == [0, 4, 2, 2, 2, 2]
    domains = found.metrics["reward_domain_mean"]
    assert isinstance(domains, dict) and set(domains) == {"gsm8k", "math"}
    assert not [name for name in found.metrics if name.startswith("rollout_logprob")]


def test_open_instruct_filters_before_it_dumps_unless_told() -> None:
    found = told("open-instruct-rollouts", dumps.open_instruct_rows(MADE, 3))
    assert found.groups is None and "zero_variance_group_ratio" not in found.metrics
    holds(found, dumps.lengths(MADE))


def test_ms_swift() -> None:
    found = told("ms-swift-completions", [dumps.swift_row(MADE, 3)], {"reward_weights": [1.0, 0.0]})
    holds(found, dumps.rewards(MADE))
    holds(found, dumps.characters(MADE))
    components = found.metrics["reward_component_mean"]
    assert isinstance(components, dict) and set(components) == {"Accuracy", "Format"}


def test_ms_swift_sums_its_functions_and_leaves_out_what_does_not_apply() -> None:
    row = dumps.swift_row(MADE[:4], 3)
    row["Format"] = [None, math.nan, 1.0, 0.0]
    found = told("ms-swift-completions", [row])
    assert found.metrics["reward_mean"] == pytest.approx(sum([*row["Accuracy"], 1.0]) / 4)


def test_ms_swift_columns_that_are_no_functions_are_left_out_when_the_functions_are_named() -> None:
    row = {**dumps.swift_row(MADE, 3), "temperature": [0.7] * len(MADE)}
    found = told("ms-swift-completions", [row], {"reward_functions": ["Accuracy"]})
    holds(found, dumps.rewards(MADE))
    with pytest.raises(BadRow, match="no column of numbers 'Accurate'"):
        DUMPS["ms-swift-completions"].read(row, Options(reward_functions=("Accurate",)))


def test_areal(tmp_path: Path) -> None:
    dumps.write_areal(tmp_path, 3, MADE)
    rows = [json.loads(line) for file in sorted((tmp_path / "3").iterdir()) for line in file.read_text().splitlines()]
    found = told("areal-trajectories", rows)
    holds(found, dumps.rewards(MADE))
    holds(found, dumps.lengths(MADE))


def test_areal_correct_is_a_reward_above_zero() -> None:
    row = {"task_id": 1, "sample_idx": 0, "seqlen": 5, "prompt_len": 2, "reward": 0.25, "prompt": "p", "completion": "c"}
    assert [sample.correct for sample in DUMPS["areal-trajectories"].read(row, Options())] == [True]

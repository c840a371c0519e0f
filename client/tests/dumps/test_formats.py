"""Each framework's dump, with its traps, against what is true of its samples."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import dumps
from tocsin import wire
from tocsin.batch import Batch, summarize
from tocsin.dumps import DUMPS, Dump, Options
from tocsin.dumps.collect import Collection
from tocsin.dumps.measure import Measured, measured
from tocsin.dumps.record import make_log, step_records
from tocsin.dumps.rows import decode
from tocsin.dumps.sample import BadRow

MADE = dumps.make(3, prompts=6, size=4)


def told(name: str, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None = None) -> Measured:
    """What a format makes of rows, through JSON."""
    dump, options = DUMPS[name], Options.from_config(config or {})
    return measured(collected(dump, rows, options), 3, dump, options)


def collected(dump: Dump, rows: Sequence[Mapping[str, Any]], options: Options) -> Collection:
    collection = Collection()
    for row in rows:
        value, error = decode(json.dumps(row).encode())
        assert value is not None, error
        for sample in dump.read(value, options):
            collection.add(sample)
    return collection


def holds(found: Measured, truth: Mapping[str, float], rel: float = 1e-5) -> None:
    for name, value in truth.items():
        assert found.metrics[name] == pytest.approx(value, rel=rel, abs=1e-7), name


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


@pytest.mark.parametrize("uid", [True, False])
@pytest.mark.parametrize("acc", [True, False])
def test_verl(uid: bool, acc: bool) -> None:
    found = told("verl-rollouts", dumps.verl_rows(MADE, 3, uid=uid, acc=acc))
    holds(found, dumps.rewards(MADE))
    holds(found, dumps.characters(MADE))
    assert not [name for name in found.metrics if name.startswith("response_length")]
    components = found.metrics["reward_component_mean"]
    assert isinstance(components, dict) and components["format"] == pytest.approx(0.5)
    assert set(components) == ({"format", "acc"} if acc else {"format"})


def test_verl_groups_of_one_prompt_stay_apart_by_uid_and_its_id_by_the_text() -> None:
    """A prompt drawn twice in a step is two groups; in another step it is the same prompt under another uid."""
    rows = dumps.verl_rows(MADE[:4], 1) + [
        {**row, "uid": row["uid"].replace("0001-", "0009-"), "request_id": f"x{at}"}
        for at, row in enumerate(dumps.verl_rows(MADE[:4], 1))
    ]
    found, again = told("verl-rollouts", rows), told("verl-rollouts", dumps.verl_rows(MADE[:4], 2))
    assert found.groups is not None and again.groups is not None
    assert found.groups.prompt == [again.groups.prompt[0], f"{again.groups.prompt[0]}#2"] and found.groups.size == 4


def test_verl_a_rollout_in_pieces_counts_once_with_its_last_output() -> None:
    rows = dumps.verl_rows(MADE, 3)
    pieces = [{**row, "output": "only the beginning", "uid": row["uid"]} for row in rows[:4]]
    later = [{**row, "uid": row["uid"].removesuffix("_0") + "_1"} for row in rows[:4]]
    found = told("verl-rollouts", [*pieces, *later, *rows[4:]])
    holds(found, dumps.rewards(MADE))
    holds(found, dumps.characters(MADE))


def test_verl_copies_of_a_request_count_once() -> None:
    rows = dumps.verl_rows(MADE, 3, uid=False)
    found = told("verl-rollouts", [*rows, *rows[:3]])
    holds(found, dumps.rewards(MADE))
    assert found.notes == ["copies of one sample in a step count once"]


def test_verl_aborted_samples_are_counted_and_are_no_lengths() -> None:
    made = [dataclasses.replace(MADE[0], response=""), *MADE[1:]]
    found = told("verl-rollouts", dumps.verl_rows(made, 3))
    assert found.metrics["aborted_ratio"] == pytest.approx(1 / len(made))
    holds(found, dumps.rewards(made))
    texts = [len(sample.response) for sample in MADE[1:]]
    holds(found, {"response_chars_mean": sum(texts) / len(texts)})


def test_verl_graded_scores_say_nothing_of_correct_unless_told() -> None:
    made = [dataclasses.replace(sample, reward=sample.reward * 0.5 + 0.1) for sample in MADE]
    rows = dumps.verl_rows(made, 3, acc=False)
    assert "correct_ratio" not in told("verl-rollouts", rows).metrics
    found = told("verl-rollouts", rows, {"correct_above": 0.5})
    holds(found, {"correct_ratio": dumps.rewards(MADE)["correct_ratio"]})


def test_verl_scores_of_minus_one_and_one_are_binary() -> None:
    rows = [{**row, "score": row["score"] * 2 - 1} for row in dumps.verl_rows(MADE, 3, acc=False)]
    holds(told("verl-rollouts", rows), {"correct_ratio": dumps.rewards(MADE)["correct_ratio"]})


def test_verl_a_score_that_is_no_number_is_told_and_not_swallowed() -> None:
    """The literal NaN, as Python writes it: the mean is NaN, the group has one, the others are what they were."""
    rows = dumps.verl_rows(MADE, 3)
    rows[4] = {**rows[4], "score": math.nan, "acc": False}
    found = told("verl-rollouts", rows)
    mean = found.metrics["reward_mean"]
    assert isinstance(mean, float) and math.isnan(mean)
    assert found.groups is not None
    assert [math.isnan(float(value or 0)) for value in found.groups.reward_mean].count(True) == 1
    assert [rollout.picked for rollout in found.rollouts if math.isnan(float(rollout.reward or 0))] == ["worst"]


def test_verl_old_dumps_write_everything_as_text() -> None:
    rows = [{key: str(value) for key, value in row.items()} for row in dumps.verl_rows(MADE, 3, uid=False)]
    found = told("verl-rollouts", rows)
    holds(found, dumps.rewards(MADE))


def test_verl_kept_groups_only_when_told() -> None:
    found = told("verl-rollouts", dumps.verl_rows(MADE, 3), {"filter_groups": True})
    assert found.groups is None and "zero_variance_group_ratio" not in found.metrics
    holds(found, dumps.characters(MADE))


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


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("nemo-samples", {}, "no rewards"),
    ("nemo-samples", {"rewards": ["x"]}, "rewards is"),
    ("nemo-samples", {"agent_ref": [{"name": "a"}], "full_result": [{"reward": 1.0}]}, "NeMo Gym"),
    ("nemo-samples", {"rewards": [1.0]}, "no prompt"),
    ("nemo-samples", {"rewards": [1.0], "token_loss_mask": 3, "token_ids": [[1]]}, "token_loss_mask is 3"),
    (
        "nemo-samples",
        {"rewards": [1.0], "token_loss_mask": [[0, 1]], "token_ids": [[1]]},
        "token_ids has 1 entries, the mask 2",
    ),
    ("nemo-samples", {"rewards": [1.0], "token_loss_mask": [[0, 1]], "token_ids": [["a", 1]]}, "no whole numbers"),
    (
        "nemo-samples",
        {"rewards": [1.0], "token_loss_mask": [[0, 1]], "token_ids": [[1, 2]], "prev_logprobs": [[0.0]]},
        "prev_logprobs has 1 entries, the mask 2",
    ),
    (
        "nemo-samples",
        {"rewards": [1.0], "token_loss_mask": [[0, 1]], "token_ids": [[1, 2]], "prev_logprobs": [[0.0, None]]},
        "prev_logprobs has entries that are no numbers",
    ),
    ("verl-rollouts", {"input": "a", "output": "b"}, "no score"),
    ("verl-rollouts", {"input": "a", "score": 1.0}, "no output"),
    ("verl-rollouts", {"input": 3, "output": "b", "score": 1}, "input is 3, expected text"),
    ("open-instruct-rollouts", {"step": 1}, "prompt_tokens"),
    (
        "open-instruct-rollouts",
        {"prompt_tokens": [1], "response_tokens": [1], "reward": 1, "step": -1, "prompt_idx": 0, "sample_idx": 0},
        "step is -1",
    ),
    (
        "open-instruct-rollouts",
        {"prompt_tokens": [1], "response_tokens": [1], "reward": 1, "step": 1, "logprobs": [], "prompt_idx": 0},
        "0 logprobs for 1 response tokens",
    ),
    ("ms-swift-completions", {"prompt": [], "completion": 3}, "expected a list 'completion'"),
    ("ms-swift-completions", {"prompt": ["a"], "completion": ["b"], "step": []}, "columns of 0 steps"),
    ("ms-swift-completions", {"prompt": ["a"], "completion": ["b"], "step": ["1"]}, "no reward function"),
    ("ms-swift-completions", {"prompt": ["a"], "completion": ["b"], "step": ["x"], "A": [1]}, "step is 'x'"),
    ("areal-trajectories", {"reward": 1, "prompt": "p", "task_id": 1, "seqlen": 1, "prompt_len": 2}, "above seqlen"),
    ("areal-trajectories", {"reward": 1, "prompt": "p", "task_id": None}, "task_id is None"),
]


@pytest.mark.parametrize(("name", "row", "why"), BAD)
def test_bad_rows_say_what_is_wrong(name: str, row: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRow, match=why):
        list(DUMPS[name].read(row, Options()))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"group_size": 0}, "group_size is 0"),
        ({"group_size": "16"}, "group_size is '16'"),
        ({"correct_above": True}, "correct_above is True"),
        ({"reward_weights": 3}, "reward_weights is 3"),
        ({"reward_functions": "accuracy"}, "reward_functions is 'accuracy'"),
        ({"dynamic_sampling": "yes"}, "dynamic_sampling is 'yes'"),
    ],
)
def test_a_configuration_that_means_nothing_is_refused(config: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Options.from_config(config)


def test_of_kept_groups_nothing_is_told_that_needs_all_of_them() -> None:
    """Whatever `summarize` computes from rewards, groups or verdicts is left out, except lengths by correctness: a new measure
    of these inputs must be put into BEFORE_FILTERING, or be one of the two below that kept groups can tell."""
    rows = dumps.nemo_rows(MADE)
    whole = told("nemo-samples", rows)
    kept = told("nemo-samples", [{**row, "filtered_rewards": row["rewards"]} for row in rows])
    collection = collected(DUMPS["nemo-samples"], rows, Options())
    samples = collection.samples(DUMPS["nemo-samples"], Options())
    lengths = np.array([sample.length for sample in samples])
    responses = [sample.response for sample in samples]
    packed = {name: np.frombuffer(collection.packed.get(name) or b"", np.float32) for name in ("old", "rollout", "advantages")}
    without = summarize(
        Batch(
            lengths=np.frombuffer(collection.packed.lengths, np.int64),
            old_logprobs=packed["old"],
            rollout_logprobs=packed["rollout"],
            advantages=packed["advantages"],
            response_lengths=lengths,
            responses=responses,
        )
    )
    needs_rewards = whole.metrics.keys() - without.metrics.keys() - {"aborted_ratio"}
    still_told = {"response_length_correct_mean", "response_length_incorrect_mean"}
    by_prompt = {"response_edit_distance_median", "group_size", "response_garbled_ratio"}
    assert needs_rewards & kept.metrics.keys() <= still_told | by_prompt
    assert still_told <= kept.metrics.keys()


_GOOD = {
    "nemo-samples": dumps.nemo_rows(MADE)[0],
    "verl-rollouts": dumps.verl_rows(MADE, 3)[0],
    "open-instruct-rollouts": dumps.open_instruct_rows(MADE, 3)[0],
    "ms-swift-completions": dumps.swift_row(MADE[:2], 3),
    "trl-completions": dumps.swift_row(MADE[:2], 3),
    "areal-trajectories": {
        "task_id": 1, "sample_idx": 0, "seqlen": 5, "prompt_len": 2, "reward": 0.25, "prompt": "p", "completion": "c"
    },
}  # fmt: skip
_ODD_VALUES: list[Any] = [
    None, True, -1, 0.5, math.nan, math.inf, 10**400, "", "nan", "1e999", "True", "a_1_2", "a_b_" + "9" * 5000, "\ud83d",
    [], [[]], [[1]], [[None]], [[math.nan, "x"]], [10**400], [[10**400]], {}, {"a": [1]}, [{"content": "c"}, {"content": None}],
]  # fmt: skip
_ODD = st.recursive(
    st.one_of(st.integers(), st.floats(), st.text(max_size=4), st.sampled_from(_ODD_VALUES)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", sorted(_GOOD))
def test_an_odd_value_under_any_key_is_read_or_a_bad_row(name: str) -> None:
    for key in _GOOD[name]:
        for value in _ODD_VALUES:
            with contextlib.suppress(BadRow):
                list(DUMPS[name].read({**_GOOD[name], key: value}, Options()))


@settings(max_examples=150)
@given(st.data(), st.sampled_from(sorted(_GOOD)))
def test_whatever_a_row_holds_it_is_a_sample_or_a_bad_row(data: st.DataObject, name: str) -> None:
    """Any value under any key: only BadRow is raised, and what is read can be measured and encoded."""
    row = dict(_GOOD[name])
    for key in data.draw(st.lists(st.sampled_from(sorted(row)), max_size=3)):
        row[key] = data.draw(_ODD)
    collection = Collection()
    with contextlib.suppress(BadRow):
        for sample in DUMPS[name].read(row, Options()):
            collection.add(sample)
    if len(collection):
        log = make_log(DUMPS[name], "r", lambda: 5.0, None)
        records, _ = step_records(collection, 3, None, log, DUMPS[name], Options())
        for parsed in records:
            assert parsed.record is not None
            decoded = wire.decode(wire.encode(parsed.record)).record
            assert type(decoded) is type(parsed.record)


@pytest.mark.parametrize("name", ["nemo-samples", "areal-trajectories"])
def test_truncation_is_told_by_the_configured_limit(name: str, tmp_path: Path) -> None:
    limit = max(sample.length for sample in MADE)
    rows: Sequence[Mapping[str, Any]] = dumps.nemo_rows(MADE)
    if name == "areal-trajectories":
        dumps.write_areal(tmp_path, 3, MADE)
        rows = [json.loads(line) for file in sorted((tmp_path / "3").iterdir()) for line in file.read_text().splitlines()]
    assert "truncated_ratio" not in told(name, rows).metrics
    share = sum(sample.length == limit for sample in MADE) / len(MADE)
    holds(told(name, rows, {"max_response_length": limit}), {"truncated_ratio": share})

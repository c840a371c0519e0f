"""Rows that are wrong or odd in any format, and settings that mean nothing."""

from __future__ import annotations

import contextlib
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
from tests.kit.dump_formats import MADE, collected, holds, told
from tocsin import wire
from tocsin.batch import Batch, summarize
from tocsin.dumps import DUMPS, Options
from tocsin.dumps.collect import Collection
from tocsin.dumps.record import make_log, step_records
from tocsin.dumps.sample import BadRow

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

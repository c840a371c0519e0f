"""The law for the whole alias table, beyond the samples: whatever key it lists for a framework reaches the canonical metric.

The keys are the table's own; for a pattern, examples are made of it. What is expected is read from the table by
`reference`, slowly, and not by the collector.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.frameworks import reference
from tests.frameworks.reading import START, collected
from tocsin.wire import Record, RunRecord, StepRecord

ALIASES: Final = reference.load()
NEEDS_MORE: Final = {
    ("rollout_kl_k3", "trl"): "only in AsyncGRPO's rows, which have other keys too",
    ("reward_group_std_mean", "trl"): "only in AsyncGRPO's rows",
    ("rollout_kl_k3", "unsloth"): "as TRL's",
    ("reward_group_std_mean", "unsloth"): "as TRL's",
    ("tokens_per_second", "verl"): "per GPU: needs their number",
    ("ppo_clip_ratio", "nemo_rl"): "a difference of two",
    ("correct_ratio", "areal"): "a quotient",
    ("response_length_mean", "areal"): "a difference",
    ("zero_variance_group_ratio", "verl"): "a count: needs the prompts per step",
    ("zero_variance_group_ratio", "slime"): "counts: need the prompts per step",
    ("zero_variance_group_ratio", "nemo_rl"): "a sum of two",
    ("zero_variance_group_ratio", "prime_rl"): "a sum of two",
    ("zero_variance_group_ratio", "roll"): "a sum of two",
    ("group_all_correct_ratio", "open_instruct"): "a quotient",
    ("group_all_wrong_ratio", "open_instruct"): "a quotient",
    ("filtered_groups", "openrlhf"): "a rate: needs group size and prompts per step",
    ("truncated_ratio", "roll"): "a count: needs the size of the batch",
    ("staleness_max", "open_instruct"): "a difference",
}
"""Entries that one key alone does not feed; the samples have them."""
NOT_MEANT: Final = {
    ("reward_component_mean", "trl"): r"^(train/)?rewards/(chosen|rejected|margins|accuracies)",
    ("eval_score", "slime"): r"^eval/(step$|.*-(truncated_ratio|repetition_frac|pass@\d+)$)",
}
"""Keys that a pattern takes and its note takes back."""


class Listed(NamedTuple):
    """One key or pattern of the table."""

    framework: str
    metric: str
    key: str


def listed() -> Iterator[Listed]:
    for framework, source in ALIASES["sources"].items():
        for metric, entry in ALIASES["metrics"].items():
            owner = framework if framework in entry else source.get("inherits")
            spec: dict[str, Any] = entry.get(owner, {})
            if (metric, framework) not in NEEDS_MORE:
                yield from (Listed(framework, metric, key) for key in spec.get("keys", []))


def series_of(framework: str, key: str) -> dict[str, float]:
    """What a row of one key brings: series -> value."""
    records: list[Record] = [
        RunRecord(run="sample", time=START),
        StepRecord(run="sample", step=1, time=START, names=framework, metrics={key: 0.25}),
    ]
    return {name: value.value for name, value in collected(records, {}).get(1, {}).items()}


LISTED = list(listed())
PLAIN = [each for each in LISTED if not each.key.startswith("/")]
PATTERNS = [each for each in LISTED if each.key.startswith("/")]


@pytest.mark.parametrize("each", PLAIN, ids=lambda each: " ".join(each))
def test_a_listed_key(each: Listed) -> None:
    assert each.metric in {name.partition("{")[0] for name in series_of(each.framework, each.key)}
    if each.framework not in ("slime", "prime_rl"):
        assert each.metric in {name.partition("{")[0] for name in series_of(each.framework, f"train/{each.key}")}


@pytest.mark.parametrize("each", PATTERNS, ids=lambda each: " ".join(each))
@settings(max_examples=8, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data())
def test_a_key_of_a_pattern(each: Listed, data: st.DataObject) -> None:
    alphabet = st.characters(codec="ascii", categories=["Ll", "Lu", "Nd"], include_characters="_-./@ ")
    key = data.draw(st.from_regex(each.key[1:-1], fullmatch=True, alphabet=alphabet).filter(lambda key: len(key) <= 100))
    found = series_of(each.framework, key)
    expected = reference.metrics_of(ALIASES, each.framework, key)
    taken_back = {
        metric for (metric, framework), what in NOT_MEANT.items() if framework == each.framework and re.search(what, key)
    }
    if each.metric in expected - taken_back:
        assert each.metric in {name.partition("{")[0] for name in found}, key
    # An evaluation stays one, whatever else its name looks like.
    if key.startswith(tuple(ALIASES["prefix_rules"]["eval"])):
        assert all(name.startswith("eval_") or name == key for name in found)


def test_no_exception_without_its_entry() -> None:
    for metric, framework in {*NEEDS_MORE, *NOT_MEANT}:
        source = ALIASES["sources"][framework].get("inherits", framework)
        assert {framework, source} & ALIASES["metrics"][metric].keys()
    assert len(PLAIN) > 300
    assert len(PATTERNS) > 30
    assert all(char in string.printable for each in LISTED for char in each.key)

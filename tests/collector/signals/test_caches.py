"""What signals keep besides the samples is a cache or is dumped: a run that is restored before every record ends the same."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from collector.run import Run
from tests.collector.records import apply
from tests.collector.test_run_restore import stream
from tocsin import wire

INPUTS = (
    "ess_ratio",
    "rollout_logprob_abs_diff_mean",
    "staleness_mean",
    "ppo_clip_high_ratio",
    "ppo_clip_low_ratio",
    "positive_advantage_token_ratio",
    "response_length_mean",
    "response_length_min",
    "response_length_correct_mean",
    "response_length_incorrect_mean",
    "truncated_ratio",
    "reward_mean",
    "reward_std",
    "zero_variance_group_ratio",
    "grad_norm",
    "policy_entropy",
    "correct_ratio",
    "group_pass_ratio",
    "retrieval_accuracy",
    "retrieval_chance",
)
ODD = (math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 1e200, 0.0, 1.0, -1.0, 5e-324, None)


def filled(seed: int) -> list[wire.Record]:
    """A bad day's records, with values for all inputs: some runs of them odd, some trending, some tied."""
    source = random.Random(seed)
    records = stream(seed)
    for record in records:
        if isinstance(record, wire.StepRecord):
            record.metrics |= {name: _value(source, record.step) for name in INPUTS if source.random() < 0.9}
            labels = [label for label in "abc" if source.random() < 0.9]
            record.metrics["reward_component_mean"] = {label: _value(source, record.step) for label in labels}
    return records


def _value(source: random.Random, step: int) -> Any:
    kind = source.random()
    return source.choice(ODD) if kind < 0.1 else round(source.random(), 1) if kind < 0.4 else step / 100 + source.random()


@pytest.mark.parametrize("seed", range(20))
def test_restored_before_every_record_equals_never(seed: int) -> None:
    undisturbed, restored = Run("r", depth=64), Run("r", depth=64)
    for record in filled(seed):
        apply(undisturbed, record)
        restored = Run.load(restored.dump(), depth=64)
        apply(restored, record)
        assert set(restored.arrived) == set(undisturbed.arrived)
    assert restored.dump() == undisturbed.dump()

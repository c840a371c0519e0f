"""From the arrays of a step to the series of a run: `summarize`, the reporter, the wire, the collector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocsin
from collector.model import Provenance
from collector.run import Run
from collector.signals import definitions
from tests.collector.records import apply
from tocsin.batch import Batch, Settings, summarize
from tocsin.transports.memory import MemoryTransport

SIZE, PROMPTS, BREAKS, STEPS = 8, 48, 40, 50


def steps(seed: int = 0) -> list[Batch]:
    """Prompts of mixed difficulty, visited again and again; from step BREAKS on the verifier rejects everything."""
    random = np.random.default_rng(seed)
    difficulty = random.beta(0.8, 0.8, 200)
    batches = []
    for step in range(STEPS):
        prompts = np.repeat(random.choice(200, PROMPTS, replace=False), SIZE)
        correct = (random.random(len(prompts)) < difficulty[prompts]) & (step < BREAKS)
        rewards = correct * 0.1 + 0.1  # not 0 and 1: equal rewards have to be told as such
        mask = np.arange(16) < random.integers(1, 17, (len(prompts), 1))
        old = -random.exponential(0.5, mask.shape).astype(np.float32)
        groups = rewards.reshape(-1, SIZE)
        spread = groups.max(1, keepdims=True) > groups.min(1, keepdims=True)
        advantages = np.where(
            spread, (groups - groups.mean(1, keepdims=True)) / (groups.std(1, ddof=1, keepdims=True) + 1e-6), 0.0
        )
        fields: dict[str, Any] = {"mask": mask, "old_logprobs": old, "rollout_logprobs": old, "new_logprobs": old}
        batches.append(
            Batch(
                **fields, rewards=rewards, correct=correct, prompts=prompts, advantages=advantages.reshape(-1), grad_norms=[0.5]
            )
        )
    return batches


@pytest.fixture(scope="module")
def run() -> Run:
    transport = MemoryTransport()
    with tocsin.Reporter("measured", config={"group_size": SIZE}, transport=transport) as reporter:
        for step, batch in enumerate(steps()):
            summary = summarize(batch, Settings(group_size=SIZE))
            reporter.log(step, summary.metrics, groups=summary.groups)
    assert not reporter.counters.bad_values
    found = Run("measured")
    apply(found, *transport.records)
    return found


def test_every_measure_is_an_exact_series(run: Run) -> None:
    derived = set(definitions())
    measured = {key: series for key, series in run.series.items() if series.provenance is not Provenance.SIGNAL}
    assert {"zero_variance_group_ratio", "advantage_zero_group_max", 'nonfinite_count{tensor="ratio"}'} <= measured.keys()
    for key, series in measured.items():
        assert series.provenance is Provenance.EXACT, f"{key} is {series.provenance}"
        assert key.partition("{")[0] not in derived


def test_the_groups_are_what_the_expectation_is_made_of(run: Run) -> None:
    observed = np.array(run.series["zero_variance_group_ratio"].values)
    expected = np.array(run.series["zero_variance_expected"].values)
    healthy = slice(-(STEPS - BREAKS) - 20, -(STEPS - BREAKS))
    assert np.abs(observed[healthy] - expected[healthy]).mean() < 0.1
    assert 0.1 < observed[healthy].mean() < 0.9
    broken = run.series["zero_variance_z"].at(BREAKS)
    assert broken is not None and broken > 4.0


def test_healthy_advantages_are_told_as_healthy(run: Run) -> None:
    assert set(run.series["advantage_zero_group_max"].values) == {0.0}
    assert max(run.series["advantage_bound_excess"].values) <= 0.0
    assert max(run.series["advantage_group_mean_max"].values) < 1e-9
    assert set(run.series["ppo_clip_ratio"].values) == {0.0}

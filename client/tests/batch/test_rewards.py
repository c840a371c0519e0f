"""Rewards of all generated responses: together, by component, by domain."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch

from tests.kit.token_batches import measured, number
from tocsin.batch.rewards import MAX_LABELS

NAMES = ("reward_mean", "reward_std", "reward_min", "reward_max")
NAN = math.nan


def test_by_hand() -> None:
    summary = measured(rewards=[1.0, 2.0, 4.0])
    assert number(summary, "reward_mean") == pytest.approx(7 / 3)
    assert number(summary, "reward_std") == pytest.approx(statistics.stdev([1, 2, 4]))  # unbiased, as trainers log it
    assert (number(summary, "reward_min"), number(summary, "reward_max")) == (1.0, 4.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_any_type_of_tensor(dtype: torch.dtype) -> None:
    rewards = torch.tensor([0.1, 1.7, -3.0, 0.1]).to(dtype)
    summary = measured(rewards=rewards, components={"x": rewards})
    exact = [float(value) for value in rewards]
    for name, expected in zip(NAMES, (statistics.fmean(exact), statistics.stdev(exact), min(exact), max(exact)), strict=True):
        assert number(summary, name) == pytest.approx(expected, rel=1e-12)
    component = summary.metrics["reward_component_mean"]
    assert isinstance(component, dict)
    assert component["x"] == pytest.approx(statistics.fmean(exact), rel=1e-12)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.1 + 0.2])
def test_rewards_that_are_all_the_same_have_this_mean_and_no_deviation(value: float) -> None:
    for count in (2, 3, 5, 6, 7, 10, 12, 33, 49):
        summary = measured(rewards=[value] * count, components={"x": [value] * count}, domains=["d"] * count)
        assert number(summary, "reward_mean") == value
        assert number(summary, "reward_std") == 0.0
        assert summary.metrics["reward_component_std"] == {"x": 0.0}
        assert summary.metrics["reward_component_mean"] == {"x": value}
        assert summary.metrics["reward_domain_mean"] == {"d": value}


def test_a_nan_reward_shows() -> None:
    summary = measured(rewards=[1.0, NAN, 3.0])
    assert all(math.isnan(number(summary, name)) for name in NAMES)
    infinite = measured(rewards=[1.0, -math.inf])
    assert number(infinite, "reward_mean") == number(infinite, "reward_min") == -math.inf
    assert number(infinite, "reward_max") == 1.0
    assert math.isnan(number(infinite, "reward_std"))


def test_few_responses() -> None:
    assert measured(rewards=[0.5]).metrics["reward_std"] is None
    empty = measured(rewards=[], correct=[], components={"x": []}, domains=[])
    assert {name: empty.metrics[name] for name in (*NAMES, "correct_ratio")} == dict.fromkeys((*NAMES, "correct_ratio"))
    assert empty.metrics["reward_component_mean"] == {"x": None}
    assert empty.metrics["reward_domain_mean"] == {}


def test_correct_is_a_verdict_and_no_guess_from_the_reward() -> None:
    assert number(measured(rewards=[1.0, 1.0, 0.0, 0.0], correct=[True, False, False, False]), "correct_ratio") == 0.25
    assert "correct_ratio" not in measured(rewards=[1.0, 0.0]).metrics


def test_components_where_they_apply() -> None:
    summary = measured(
        components={
            "accuracy": [1.0, 0.0, NAN, 1.0],
            "format": [NAN, 0.5, NAN, NAN],
            "none": [NAN] * 4,
            "far": [math.inf, 0, 0, 0],
        }
    )
    assert summary.metrics["reward_component_mean"] == {
        "accuracy": pytest.approx(2 / 3),
        "format": 0.5,
        "none": None,
        "far": math.inf,
    }
    stds = summary.metrics["reward_component_std"]
    assert isinstance(stds, dict)
    assert stds["accuracy"] == pytest.approx(statistics.stdev([1, 0, 1]))
    assert stds["format"] is None and stds["none"] is None
    assert stds["far"] is not None and math.isnan(stds["far"])
    assert summary.metrics["reward_component_range"] == {"accuracy": 1.0, "format": 0.0, "none": None, "far": math.inf}


def test_domains_each_for_itself() -> None:
    summary = measured(rewards=[1.0, 0.0, 3.0, NAN], domains=["math", "code", "math", "chat"])
    means = summary.metrics["reward_domain_mean"]
    assert isinstance(means, dict)
    assert (means["math"], means["code"]) == (2.0, 0.0)
    assert means["chat"] is not None and math.isnan(means["chat"])
    assert list(means) == ["math", "code", "chat"]  # largest first


def test_a_name_for_each_response_does_not_flood_the_run() -> None:
    names = [f"d{place}" for place in range(MAX_LABELS)]
    full = measured(rewards=np.zeros(MAX_LABELS), domains=names, components=dict.fromkeys(names, np.zeros(MAX_LABELS)))
    assert not {"reward_domain_mean", "reward_component_mean"} & set(full.skipped)
    count = MAX_LABELS + 36
    summary = measured(
        rewards=np.arange(count + 1.0),
        domains=["twice", *(f"d{place}" for place in range(count - 1)), "twice"],
        components={f"c{place}": np.zeros(count + 1) for place in range(count)},
    )
    means = summary.metrics["reward_domain_mean"]
    assert isinstance(means, dict)
    assert len(means) == MAX_LABELS
    assert means["twice"] == count / 2
    assert summary.skipped["reward_domain_mean"] == f"36 domains beyond the {MAX_LABELS} largest are left out"
    components = summary.metrics["reward_component_mean"]
    assert isinstance(components, dict)
    assert list(components) == [f"c{place}" for place in range(MAX_LABELS)]
    assert summary.skipped["reward_component_mean"] == f"36 components beyond the first {MAX_LABELS} are left out"

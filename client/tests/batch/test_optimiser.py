"""Norms and losses of one optimiser step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.kit.token_batches import measured, number
from tocsin.batch import Settings

NAN, INF = math.nan, math.inf
LIMIT = Settings(max_grad_norm=1.0)


@pytest.mark.parametrize(
    "make", [list, np.array, torch.tensor, lambda x: torch.tensor(x).bfloat16(), lambda x: [torch.tensor(y) for y in x]]
)
def test_norms_from_anywhere(make: Any) -> None:
    summary = measured(LIMIT, grad_norms=make([0.5, 3.0, 1.0, 1.5]))
    assert number(summary, "grad_norm") == 1.5
    assert number(summary, "grad_norm_max") == 3.0
    assert number(summary, "grad_norm_clipped") == 0.875
    assert number(summary, "grad_clip_ratio") == 0.5


def test_one_norm_is_a_number_or_a_tensor_with_a_graph() -> None:
    weight = torch.ones(3, requires_grad=True)
    for norm in (1.5, torch.tensor(1.5), (weight * 0.5).sum()):
        assert number(measured(grad_norms=norm), "grad_norm") == 1.5


def test_micro_batches_may_still_have_their_graph() -> None:
    weight = torch.ones(3, requires_grad=True)
    losses = [(weight * scale).mean() for scale in (1.0, 3.0)]
    assert number(measured(critic_loss=losses), "critic_loss") == 2.0
    assert number(measured(grad_norms=(losses[0], 3.0)), "grad_norm") == 2.0
    assert measured(loss=[*losses, weight.sum() * NAN]).metrics["nonfinite_count"] == {"loss": 1.0}
    assert (
        number(
            measured(param_norm=[torch.tensor([3.0, 4.0]), torch.tensor([[0.0]])], param_update_norm=1), "param_update_ratio"
        )
        == 0.2
    )


def test_what_is_no_number_is_left_out_and_told() -> None:
    summary = measured(grad_norms=["a", "b"], critic_loss=object(), nll_loss=[torch.tensor(1.0), "x"])
    assert {"grad_norms", "critic_loss", "nll_loss"} <= set(summary.skipped)
    assert not {"grad_norm", "critic_loss", "nll_loss"} & set(summary.metrics)


def test_against_the_clipping_of_torch() -> None:
    norms, clipped = [], []
    for scale in (0.1, 0.49, 0.51, 2.0, 40.0):
        weights = [torch.nn.Parameter(torch.zeros(64)), torch.nn.Parameter(torch.zeros(8, 8))]
        for seed, weight in enumerate(weights):
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)) * scale / math.sqrt(128)
        norms.append(torch.nn.utils.clip_grad_norm_(weights, 1.0))
        clipped.append(torch.nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None]))
    told = measured(grad_norms=norms, grad_norms_clipped=clipped)
    by_limit = measured(LIMIT, grad_norms=norms)
    for name in ("grad_norm", "grad_norm_max", "grad_norm_clipped", "grad_clip_ratio"):
        assert number(told, name) == pytest.approx(number(by_limit, name), rel=1e-4), name
    assert 0 < number(told, "grad_clip_ratio") < 1


def test_rounding_is_no_clipping() -> None:
    summary = measured(grad_norms=[1.0, 1.0, 0.0], grad_norms_clipped=[0.99, 0.99999, 0.0])
    assert number(summary, "grad_clip_ratio") == pytest.approx(1 / 3)


def test_what_clipping_needs() -> None:
    nothing = measured(grad_norms=[1.0])
    for name in ("grad_norm_clipped", "grad_clip_ratio"):
        assert nothing.skipped[name] == "needs grad_norms_clipped, or max_grad_norm in the settings"
        assert name not in nothing.metrics
        assert name not in measured(Settings(max_grad_norm=0.0), grad_norms=[1.0]).metrics  # 0 is "off" in trainers
    uneven = measured(LIMIT, grad_norms=[1.0, 2.0], grad_norms_clipped=[1.0])
    assert uneven.skipped["grad_clip_ratio"] == "2 norms before clipping, 1 after it"
    assert number(uneven, "grad_norm_clipped") == 1.0


def test_norms_that_are_not_finite() -> None:
    nan = measured(LIMIT, grad_norms=[0.5, NAN])
    assert all(math.isnan(number(nan, name)) for name in ("grad_norm", "grad_norm_max", "grad_norm_clipped"))
    assert number(nan, "grad_clip_ratio") == 0.0
    infinite = measured(LIMIT, grad_norms=[0.5, INF])
    assert number(infinite, "grad_norm") == number(infinite, "grad_norm_max") == INF
    assert math.isnan(number(infinite, "grad_norm_clipped"))
    assert number(infinite, "grad_clip_ratio") == 0.5


def test_no_update_gives_none() -> None:
    summary = measured(LIMIT, grad_norms=[])
    assert {name: summary.metrics[name] for name in ("grad_norm", "grad_norm_max", "grad_norm_clipped", "grad_clip_ratio")} == {
        "grad_norm": None,
        "grad_norm_max": None,
        "grad_norm_clipped": None,
        "grad_clip_ratio": None,
    }


@pytest.mark.parametrize(
    ("update", "size", "ratio"),
    [
        (0.5, 100.0, 0.005),
        ([3.0, 4.0], [6.0, 8.0], 0.5),  # parts are put together by squares
        (torch.tensor(0.5), np.float32(2.0), 0.25),
        (0.0, 2.0, 0.0),
        (0.5, 0.0, None),
        (0.0, 0.0, None),
        (0.5, [], None),
        (INF, 1.0, INF),
        (1.0, INF, 0.0),
    ],
)
def test_size_of_the_update(update: Any, size: Any, ratio: float | None) -> None:
    assert measured(param_update_norm=update, param_norm=size).metrics["param_update_ratio"] == ratio


def test_size_of_the_update_with_nan() -> None:
    assert math.isnan(number(measured(param_update_norm=NAN, param_norm=1.0), "param_update_ratio"))
    assert math.isnan(number(measured(param_update_norm=1.0, param_norm=NAN), "param_update_ratio"))


@pytest.mark.parametrize("name", ["critic_loss", "nll_loss", "mtp_loss"])
def test_losses_passed_on(name: str) -> None:
    assert number(measured(**{name: 0.25}), name) == 0.25
    assert number(measured(**{name: torch.tensor([[1.0], [2.0]], requires_grad=True)}), name) == 1.5
    assert measured(**{name: []}).metrics[name] is None
    assert math.isnan(number(measured(**{name: [1.0, NAN]}), name))
    assert number(measured(**{name: [1.0, INF]}), name) == INF
    assert measured().skipped[name] == f"needs {name}"


def test_reuse() -> None:
    assert number(measured(Settings(reuse_epochs=2)), "reuse_epochs") == 2.0
    assert measured().skipped["reuse_epochs"] == "not in the settings"
    assert number(measured(Settings.from_config({"ppo_epochs": 4})), "reuse_epochs") == 4.0

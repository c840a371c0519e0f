"""B12: what a run costs, from its configuration and its clock; the share of steps without any gradient, counted anew."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.run import Run
from collector.signals.cost import WINDOW
from tests.collector.records import GAP, START, apply, opened, played, row


@pytest.mark.parametrize(("config", "gpus"), [({"gpus": 64}, 64), ({"n_gpus": 8.0}, 8), ({"gpus": 16, "world_size": 4}, 16)])
def test_gpu_seconds(config: dict[str, Any], gpus: int) -> None:
    run = played([opened(**config), *(row(n, grad_norm=1.0) for n in range(1, 181))])
    assert run.series["gpu_seconds"].values[-1] == pytest.approx(gpus * 180 * GAP)
    # The cost since a step is a difference.
    since = run.series["gpu_seconds"].values[-1] - (run.series["gpu_seconds"].at(90) or 0.0)
    assert since == pytest.approx(gpus * 90 * GAP)


@pytest.mark.parametrize("gpus", [None, 0, -8, True, "many", math.nan])
def test_no_gpus_no_seconds(gpus: object) -> None:
    run = played([opened() if gpus is None else opened(gpus=gpus), row(1, grad_norm=1.0)])
    assert "gpu_seconds" not in run.series


def test_time_goes_on_through_a_resume_and_a_clock_that_goes_back_costs_nothing() -> None:
    run = played([opened(gpus=10), row(1), row(2, attempt=2, time=START + 7200.0)])
    assert run.series["gpu_seconds"].values[-1] == pytest.approx(20.0 * 3600)
    run = played([opened(gpus=10), row(1, time=START - 7200.0)])
    assert run.series["gpu_seconds"].values[-1] == 0.0


NORMS = st.sampled_from([0.0, 0.0, -0.0, 1.0, 0.3, math.nan, math.inf, 5e-324])


@settings(max_examples=80)
@given(st.lists(NORMS, min_size=1, max_size=130), st.integers(0, 129), st.integers(0, 129))
def test_share_equals_a_count(norms: list[float], late: int, overwritten: int) -> None:
    run = Run("r", depth=64)
    held = late % len(norms)
    held = held if len(norms) - held <= 8 and held < len(norms) - 1 and held > 0 else -1
    for at, norm in enumerate(norms):
        if at != held:
            apply(run, row(at, grad_norm=norm))
    if held >= 0:
        apply(run, row(held, grad_norm=norms[held]))
    if held >= 4:
        before = norms[max(0, held + 1 - WINDOW) : held + 1]
        assert run.series["zero_gradient_share"].at(held) == pytest.approx(before.count(0.0) / len(before))
    last = max(0, len(norms) - 1 - overwritten % 8)
    norms[last] = 0.0
    apply(run, row(last, grad_norm=0.0))  # the same step again, with another value
    norms.append(0.0)
    apply(run, row(len(norms) - 1, grad_norm=0.0))
    recent = norms[-WINDOW:]
    assert ("zero_gradient_share" in run.arrived) == (len(recent) >= 5)
    if len(recent) < 5:
        return
    assert run.series["zero_gradient_share"].values[-1] == pytest.approx(recent.count(0.0) / len(recent))


def test_a_truncated_response_is_no_zero_gradient() -> None:
    run = played([row(n, grad_norm=0.2, truncated_ratio=1.0) for n in range(1, 20)])
    assert run.series["zero_gradient_share"].values[-1] == 0.0

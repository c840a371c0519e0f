"""A step whose rollouts come as a row of their own is the step that it would be without, whichever row is first."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from collector.run import Run
from tests.collector.records import GAP, groups, opened, played, row, time_of
from tocsin import wire

STEPS = 60


def rollouts(step: int, after: float) -> wire.StepRecord:
    sample = [wire.Rollout(prompt="p", response="r", index=0, picked="first")]
    return wire.StepRecord(
        run="r", step=step, time=time_of(step) + after, rollouts=sample, rollout_log="/rollouts/file.jsonl.gz"
    )


def metrics(step: int) -> wire.StepRecord:
    noise = random.Random(step)
    return row(
        step, grad_norm=noise.random(), policy_entropy=noise.random(), reward_mean=noise.random(),
        groups=groups(noise.randint(0, 8), noise.randint(0, 8)),
    )  # fmt: skip


def records(order: str) -> Iterator[wire.Record]:
    yield opened()
    for step in range(1, STEPS):
        if order == "rollouts first":
            yield rollouts(step, -GAP / 4)
        yield metrics(step)
        if order == "rollouts last":
            yield rollouts(step, GAP / 4)
        if order == "rollouts late" and step > 2:
            yield rollouts(step - 2, 2.25 * GAP)


def seen(run: Run) -> dict[str, tuple[list[int], list[float]]]:
    return {key: (list(series.steps), list(series.values)) for key, series in run.series.items()}


@pytest.mark.parametrize("order", ["rollouts first", "rollouts last", "rollouts late"])
def test_every_series_is_the_same(order: str) -> None:
    plain, mixed = played(records("without")), played(records(order))
    expected, found = seen(plain), seen(mixed)
    assert found.keys() == expected.keys()
    for key, (steps, values) in expected.items():
        assert found[key][0] == steps, key
        assert found[key][1] == pytest.approx(values), key
    assert list(mixed.steps) == list(range(1, STEPS))
    assert mixed.record == plain.record

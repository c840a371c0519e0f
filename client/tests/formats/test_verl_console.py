"""verl's console logger."""

from __future__ import annotations

import math
from functools import partial

import pytest

from tests.kit import log_lines
from tocsin.formats import FORMATS
from tocsin.wire import EndRecord, StepRecord

FORMAT = FORMATS["verl-console"]


parse = partial(log_lines.parse, FORMAT)
steps = partial(log_lines.steps, FORMAT)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "(TaskRunner pid=123) ",
        "\x1b[36m(TaskRunner pid=123)\x1b[0m ",
        "(main_task pid=19799, ip=10.0.0.1) ",
        "Training Progress:   1%|  | 1/100 [00:10<1:00:00, 9.0s/it]\r(TaskRunner pid=1) ",
    ],
)
def test_what_may_stand_before_a_step(prefix: str) -> None:
    (record,) = steps(f"{prefix}step:12 - actor/grad_norm:0.812 - actor/lr:1e-06")
    assert (record.step, record.names) == (12, "verl")
    assert record.metrics == {"actor/grad_norm": 0.812, "actor/lr": 1e-06}


def test_the_forms_of_values() -> None:
    (record,) = steps(
        "step:3 - a/np:np.float64(0.1) - a/int:np.int64(3) - a/nan:nan - a/inf:-inf - a/bool:True - a/npnan:np.float64(nan)"
        " - val-core/openai/gsm8k/reward/mean@1:0.5 - a/text:none - a/zero:-0.000 [repeated 2x across cluster]"
    )
    metrics = record.metrics
    assert (metrics["a/np"], metrics["a/int"], metrics["a/inf"], metrics["a/bool"]) == (0.1, 3.0, -math.inf, 1.0)
    assert math.isnan(metrics["a/nan"])
    assert math.isnan(metrics["a/npnan"])
    assert metrics["val-core/openai/gsm8k/reward/mean@1"] == 0.5
    assert math.copysign(1.0, metrics["a/zero"]) == -1.0
    assert "a/text" not in metrics


def test_a_line_end_in_colour_codes() -> None:
    (record,) = steps("\x1b[36m(T pid=1)\x1b[0m step:1 - a/b:0.5 - c/d:2.5\x1b[32m [repeated 3x across cluster]\x1b[0m")
    assert record.metrics == {"a/b": 0.5, "c/d": 2.5}


def test_text_that_looks_alike_is_noise() -> None:
    assert (
        parse(
            "(main_task pid=1) epoch 0, step 383",
            "(main_task pid=1) Solution: step:1 - add:2 - multiply:3",
            "step:1 - add:2",
            "next step:12 - actor/grad_norm:0.8",
            "t_length/mean:144.000 - prompt_length/max:146.000",
        )
        == []
    )


def test_a_step_without_a_readable_value_is_an_unreadable_place() -> None:
    (place,) = parse("step:7 - actor/grad_norm:oops")
    assert (place.record, place.error) == (None, "step 7 has no readable value")


def test_attempts_and_the_end() -> None:
    places = parse(
        "step:8 - a/b:1",
        "step:9 - a/b:1",
        "step:9 - val/c:1",
        "step:5 - a/b:1",
        "('Final validation metrics: {}')",
        "step:6 - a/b:1",
    )
    assert [(place.record.attempt, place.record.step) for place in places if isinstance(place.record, StepRecord)] == [
        (1, 8),
        (1, 9),
        (1, 9),
        (2, 5),
        (3, 6),
    ]
    assert [(place.record.attempt, place.record.step) for place in places if isinstance(place.record, EndRecord)] == [(2, 5)]


def test_fully_asynchronous_training_writes_a_step_in_several_lines() -> None:
    first, second = steps("step:1 - fully_async/a:1", "step:1 - actor/lr:2", "step:2 - actor/lr:3")
    assert (first.step, first.metrics) == (1, {"fully_async/a": 1.0, "actor/lr": 2.0})
    assert (second.step, second.metrics) == (2, {"actor/lr": 3.0})

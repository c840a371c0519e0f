"""OpenRLHF's console."""

from __future__ import annotations

import math
from functools import partial

import pytest

from tests.kit import log_lines
from tocsin.formats import FORMATS

FORMAT = FORMATS["openrlhf-console"]


parse = partial(log_lines.parse, FORMAT)
steps = partial(log_lines.steps, FORMAT)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "✨ ",
        "\x1b[36m(PPOTrainer pid=9, ip=10.0.0.1)\x1b[0m INFO 01-01 00:00:00 [ppo_trainer.py:7] ✨ ",
        "Episode [1/1]:  5%|▌   | 1/20 [00:01<00:20]\r",
    ],
)
@pytest.mark.parametrize("after", ["", "\x1b[32m [repeated 2x across cluster]\x1b[0m", " ..."])
def test_what_may_stand_around_a_row(before: str, after: str) -> None:
    (record,) = steps(f"{before}Global step 12: {{'policy_loss': 0.1, 'actor_lr': 1e-06}}{after}")
    assert (record.step, record.names, record.metrics) == (12, "openrlhf", {"policy_loss": 0.1, "actor_lr": 1e-06})


def test_the_forms_of_values() -> None:
    (record,) = steps(
        "Global step 3: {'kl': nan, 'reward': np.float64(0.5), 'n': np.int64(3), 'inf': -inf, 'none': None, 'ok': True,"
        " 'text': 'abc', 'list': [1, 2], 'dynamic_filtering_pass_rate': '0.5', 'timing/generation': 2}"
    )
    assert math.isnan(record.metrics.pop("kl"))
    assert record.metrics == {
        "reward": 0.5,
        "n": 3.0,
        "inf": -math.inf,
        "none": None,
        "ok": 1.0,
        "dynamic_filtering_pass_rate": 0.5,
        "timing/generation": 2.0,
    }


def test_several_rows_of_one_line_and_a_restart() -> None:
    found = steps(
        "Global step 3: {'kl': 0.1}\rGlobal step 4: {'kl': 0.2}", "Global step 4: {'kl': 0.3}", "Global step 2: {'kl': 0.4}"
    )
    assert [(record.attempt, record.step) for record in found] == [(1, 3), (1, 4), (1, 4), (2, 2)]


def test_noise_is_nothing_and_a_cut_row_is_told() -> None:
    places = parse(
        "Resuming at Global step 5",
        "Global step 6: {}",
        "Global step 7: {'note': 'text'}",
        "SubGlobal step 8: {'kl': 0.1}",
        "Global step 9: {'kl': 0.1, 'actor_lr': 1e-",
    )
    assert [(place.record, place.error) for place in places] == [(None, "step 9 breaks off after 1 values")]

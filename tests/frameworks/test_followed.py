"""The samples by the ways in that are no log file: event files by the frameworks' own writers, and metrics endpoints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from tests.frameworks import reading
from tocsin.formats import read_records
from tocsin.formats.vocabulary import vocabulary
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.endpoint import SETTLE_SECONDS, Choice, Endpoint
from tocsin.ship.fetch import address
from tocsin.ship.source import Reading
from tocsin.wire import Record, StepRecord

FLOAT32 = 1e-6
"""Event files hold 32-bit floats."""


def same(value: float, expected: float, rel: float) -> bool:
    return value == pytest.approx(expected, rel=rel, abs=0.0) or (math.isnan(value) and math.isnan(expected))


def check(sample: str, records: list[Record], rel: float, besides: frozenset[str] = frozenset()) -> None:
    """The canonical series of the sample, its values and classes, and no other but those `besides`."""
    table = reading.table(sample)
    assert {record.names for record in records if isinstance(record, StepRecord)} == {table.names}
    steps = reading.collected(records, table.config)
    assert steps.keys() == table.steps.keys()
    for step, expected in table.steps.items():
        canonical = {key: value for key, value in steps[step].items() if value.canonical}
        assert canonical.keys() == expected.keys() | besides, f"step {step}"
        for key, (wanted, kind) in expected.items():
            assert canonical[key].kind == kind, key
            assert same(canonical[key].value, wanted, rel), key


# --- event files -----------------------------------------------------------------------------------------------------------


def _torch(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def _tensorboard_x(folder: Path) -> Any:
    from tensorboardX import SummaryWriter

    return SummaryWriter(str(folder))


@pytest.mark.parametrize(
    ("sample", "writer"),
    [
        ("openrlhf.tensorboard.rows.json", _torch),
        ("nemo_rl.tensorboard.rows.json", _torch),
        ("areal.tensorboard.rows.json", _tensorboard_x),
        ("trl.trackers.rows.json", _torch),
        ("verl.file.jsonl", _torch),
        ("verl.bypass.jsonl", _torch),
        ("roll.state.json", _torch),
    ],
)
def test_event_files(sample: str, writer: Callable[[Path], Any], tmp_path: Path) -> None:
    """Written as the framework does, with nobody saying whose they are."""
    sent = reading.sent(sample)
    open_writer = writer(tmp_path / "run")
    for record in sent.records:
        if isinstance(record, StepRecord):
            for key, value in sent.metrics(record.step).items():
                if value is not None:  # TensorBoard has no null
                    open_writer.add_scalar(key, value, record.step, record.time)
    open_writer.close()
    places = list(read_records(tmp_path / "run", run="sample"))
    assert [place.error for place in places if place.record is None] == []
    check(sample, [place.record for place in places if place.record is not None], FLOAT32)


def test_the_three_clocks_of_slime_are_one_record_per_training_step(tmp_path: Path) -> None:
    """Two training steps per rollout, from two processes, as slime's writers leave it."""
    trainer, rollouts = _torch(tmp_path), _torch(tmp_path)
    time = 1790000000.0
    for number in range(2):
        for key, value in {"rollout/raw_reward": 0.25 + number, "rollout/truncated_ratio": 0.5, "rollout/step": number}.items():
            rollouts.add_scalar(key, value, number, time + 60 * number)
        for step in (2 * number, 2 * number + 1):
            for key, value in {
                "train/train_rollout_logprob_abs_diff": 0.125 * step,
                "train/grad_norm": 1.0,
                "train/step": step,
            }.items():
                trainer.add_scalar(key, value, step, time + 60 * number + 10 * (step % 2 + 1))
        trainer.add_scalar("perf/step_time", 30.0, number, time + 60 * number + 25)
    for writer in (trainer, rollouts):
        writer.close()
    records = [place.record for place in read_records(tmp_path, run="sample") if place.record is not None]
    steps = reading.collected(records, {})
    assert {step: values["rollout_logprob_abs_diff_mean"].value for step, values in steps.items()} == {
        0: 0.0,
        1: 0.125,
        2: 0.25,
        3: 0.375,
    }
    assert {step: values["reward_mean"].value for step, values in steps.items() if "reward_mean" in values} == {
        0: 0.25,
        2: 1.25,
    }
    assert {step for step, values in steps.items() if "step_duration_seconds" in values} == {1, 3}
    assert steps[0]["rollout_logprob_abs_diff_mean"].kind == "exact"


# --- whose names they are --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [sample for sample in reading.names() if not sample.startswith(("unsloth", "ms_swift.meg"))])
def test_whose_names_they_are_is_told_from_the_names(sample: str) -> None:
    """Unsloth's are TRL's; Megatron's ms-swift says who it is by its step key, which is no metric."""
    records = [record for record in reading.sent(sample).records if isinstance(record, StepRecord)]
    keys = {key for record in records for key in record.metrics}
    if sample.startswith("ms_swift"):
        keys.add("global_step/max_steps")
    assert vocabulary(keys) == reading.table(sample).names


# --- endpoints -------------------------------------------------------------------------------------------------------------


def scraped(gauges: dict[str, float], tmp_path: Path, **labels: str) -> list[Record]:
    """The records that an endpoint with these gauges makes."""
    registry = CollectorRegistry()
    for name, value in gauges.items():
        gauge = Gauge(name, name, list(labels), registry=registry)
        (gauge.labels(**labels) if labels else gauge).set(value)
    now = [1790000000.0]
    read = Reading(to="x", run="sample", bookmarks=Bookmarks(tmp_path / "state"), key="k", clock=lambda: now[0])
    endpoint = Endpoint(address("http://trainer/metrics"), read, Choice(), lambda target: generate_latest(registry).decode())
    endpoint.poll(False)
    now[0] += SETTLE_SECONDS
    return [place.record for place in endpoint.poll(False).parsed if place.record is not None]


def test_verl_through_rl_insight(tmp_path: Path) -> None:
    sample = "verl.rl_insight.rows.json"
    (step,) = reading.table(sample).steps
    metrics = reading.sent(sample).metrics(step)
    gauges = {
        f"rl_insight_monitor_{re.sub('[^a-zA-Z0-9_:]', '_', key)}": value for key, value in metrics.items() if value is not None
    }
    gauges["rl_insight_monitor_training_global_step"] = float(step)
    check(
        sample,
        scraped(gauges, tmp_path, project="verl", experiment_name="grpo-7b"),
        1e-12,
        frozenset({"train_step", "policy_version"}),
    )


def test_the_trainer_of_prime_rl(tmp_path: Path) -> None:
    records = scraped(
        {
            "trainer_step": 5.0, "trainer_loss": 0.25, "trainer_throughput_tokens_per_sec": 12000.0, "trainer_grad_norm": 0.5,
            "trainer_peak_memory_gib": 60.0, "trainer_learning_rate": 1e-06, "trainer_mfu_percent": 21.0,
            "trainer_entropy": 0.375, "trainer_mismatch_kl": 0.0, "trainer_last_step_timestamp_seconds": 1789999999.0,
        },
        tmp_path,
    )  # fmt: skip
    canonical = {key: (value.value, value.kind) for key, value in reading.collected(records, {})[5].items() if value.canonical}
    assert canonical == {
        "train_step": (5.0, "exact"),
        "policy_loss": (0.25, "proxy"),
        "tokens_per_second": (12000.0, "proxy"),
        "grad_norm": (0.5, "exact"),
        "learning_rate": (1e-06, "exact"),
        "policy_entropy": (0.375, "exact"),
    }  # and no rollout_kl_k3: 0.0 is how prime-rl says that it has none

"""Recorded logs of real runs against their expected parse (`parsed.csv.gz`), cell by cell."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
from pathlib import Path

import pytest

from tests.kit import recorded
from tocsin import wire
from tocsin.formats import detect, read_records
from tocsin.wire import EndRecord, RunRecord, StepRecord

CONSOLES = [
    "nips-gate1-adq-s42-healthy",
    "nips-rho030-s42-reward-crash-truncation",
    "nips-rho100-s42-dip-recover-collapse",
    "nips-vanilla-s43-dip-and-recover",
    "openenv-watchdog-all-truncated-but-learning",
]
STATES = ["gemma3-250-healthy-sparse-log", "text2sql-1000-flat", "unsloth-250-healthy-kl-spike"]
TABLES = [
    "ag-alfworld-grpo-dead",
    "ag-alfworld-sft-grpo-mis",
    "ag-babyai-dapo-healthy",
    "ag-babyai-sft-dapo-entropy-collapse",
    "ag-textcraft-joint-gp1-large-ppo-kl",
    "ag-textcraft-split-gp2-single-grad-spike",
]
VERL = "tinyzero-ppo-verl-console-17steps"
TWO_ATTEMPTS = "unsloth-46-nan-grad-start"


def log_of(name: str) -> Path:
    folder = recorded.need() / "public" / name
    return next(path for path in folder.iterdir() if path.name.startswith(("raw.", "trainer_state.")))


def expected(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rb") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")))


def steps_of(path: Path) -> list[StepRecord]:
    parsed = list(read_records(path))
    assert [place.error for place in parsed if place.record is None] == []
    assert all(before.offset <= after.offset for before, after in itertools.pairwise(parsed))
    return [place.record for place in parsed if isinstance(place.record, StepRecord)]


def number(cell: str) -> float | None:
    return {"": None, "True": 1.0, "False": 0.0}[cell] if cell in ("", "True", "False") else float(cell)


def differences(row: dict[str, str], metrics: dict[str, object], *, nan_is_empty: bool) -> list[str]:
    """Cells that differ. A table made by pandas shows NaN as an empty cell, like a missing one."""
    wrong = []
    for key in row.keys() | metrics.keys():
        want, got = number(row.get(key, "")), metrics.get(key)
        if nan_is_empty and isinstance(got, float) and math.isnan(got):
            got = None
        both_nan = isinstance(got, float) and want is not None and math.isnan(got) and math.isnan(want)
        if want != got and not both_nan:
            wrong.append(f"{key}: expected {want}, got {got}")
    return wrong


@pytest.mark.parametrize(
    ("name", "format"),
    [*((name, "trl-console") for name in CONSOLES), *((name, "trainer-state") for name in STATES), (VERL, "verl-console")],
)
def test_every_cell_is_the_expected_one(name: str, format: str) -> None:
    path = log_of(name)
    assert detect(path) == format
    rows = expected(path.parent / "parsed.csv.gz")
    steps = steps_of(path)
    assert [record.step for record in steps] == [int(float(row.pop("step"))) for row in rows]
    for row, record in zip(rows, steps, strict=True):
        assert differences(row, record.metrics, nan_is_empty=True) == []
        assert record.run == name
        assert record.attempt == 1


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_a_table(name: str) -> None:
    path = log_of(name)
    assert detect(path) == "csv"
    rows = expected(path)
    steps = steps_of(path)
    assert [record.step for record in steps] == [int(row.pop("step")) for row in rows]
    for row, record in zip(rows, steps, strict=True):
        assert differences(row, record.metrics, nan_is_empty=False) == []
        assert record.names == "verl"


def test_two_attempts_in_one_console() -> None:
    """labels.yaml: 20 records with NaN gradients that `finished`, then a restart that works, with a gap before its end."""
    path = log_of(TWO_ATTEMPTS)
    parsed = list(read_records(path))
    assert all(place.record is not None for place in parsed)
    records = [place.record for place in parsed]
    runs = [record for record in records if isinstance(record, RunRecord)]
    assert [(record.attempt, record.labels) for record in runs] == [
        (1, {"framework": "unsloth"}),
        (2, {"framework": "unsloth"}),
    ]
    first = [record for record in records if isinstance(record, StepRecord) and record.attempt == 1]
    second = [record for record in records if isinstance(record, StepRecord) and record.attempt == 2]
    assert [record.step for record in first] == list(range(1, 21))
    assert all(math.isnan(record.metrics["grad_norm"]) for record in first)
    # 33 examples are 33 steps: epoch leaps from 0.73 to 1.45, so the missing middle is steps 25 to 47 of 50.
    assert [record.step for record in second] == [*range(1, 25), 48, 49, 50]
    assert not any(math.isnan(record.metrics["grad_norm"]) for record in second)
    ends = [record for record in records if isinstance(record, EndRecord)]
    assert [(record.attempt, record.step, record.status) for record in ends] == [(1, 20, "finished"), (2, 50, "finished")]
    assert {record.names for record in (*first, *second)} == {"unsloth"}


def test_cells_of_two_attempts() -> None:
    path = log_of(TWO_ATTEMPTS)
    rows = expected(path.parent / "parsed.csv.gz")
    steps = steps_of(path)
    for row, record in zip(rows, steps, strict=False):
        del row["step"]  # counts through both attempts
        assert differences(row, record.metrics, nan_is_empty=True) == []


def test_a_row_that_the_end_of_a_line_cut_is_joined() -> None:
    """The expected parse stops before the 47th row, which a line end cuts inside a key. The run summary that W&B printed at
    the end of the same log shows the values of that row."""
    path = log_of(TWO_ATTEMPTS)
    rows = expected(path.parent / "parsed.csv.gz")
    steps = steps_of(path)
    assert len(steps) == len(rows) + 1
    with gzip.open(path, "rt", encoding="utf-8") as file:
        summary = dict(line.split()[1:3] for line in file if line.startswith("wandb: ") and len(line.split()) == 3)
    for key in ("grad_norm", "num_tokens", "reward", "reward_std", "kl", "completions/max_terminated_length"):
        assert steps[-1].metrics[key] == pytest.approx(float(summary[f"train/{key}"]), abs=5e-5)


def test_our_own_recordings_pass_untouched() -> None:
    for path in sorted((recorded.need() / "tiny").iterdir()):
        assert detect(path) == "canonical"
        with gzip.open(path, "rb") as file:
            lines = file.read().splitlines()
        parsed = list(read_records(path))
        assert [place.value for place in parsed] == lines
        assert [place.record for place in parsed] == [wire.decode(line).record for line in lines]


def test_records_survive_the_wire() -> None:
    for name in [*CONSOLES, *STATES, TABLES[0], VERL, TWO_ATTEMPTS]:
        for place in read_records(log_of(name)):
            assert place.record is not None
            back = wire.decode(wire.encode(place.record)).record
            if isinstance(back, StepRecord) and isinstance(place.record, StepRecord):
                got = {key: wire.metric_value(value) for key, value in back.metrics.items()}
                assert repr(got) == repr(place.record.metrics)
            else:
                assert back == place.record

"""Lines, gzip and run ids."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.formats import read_records, run_id
from tocsin.formats.reading import head, lines
from tocsin.wire import StepRecord


@given(st.binary(max_size=300), st.integers(0, 5))
def test_lines_are_the_bytes(data: bytes, offset: int) -> None:
    data = data.replace(b"\x00", b"\n")
    found = list(lines(io.BytesIO(data), offset))
    assert b"".join(line.value for line in found) == data
    places = [offset, *(line.next_offset for line in found)]
    assert [line.offset for line in found] == places[:-1]
    assert all(line.value.endswith(b"\n") for line in found if line.complete)
    assert [line.complete for line in found[:-1]] == [True] * len(found[:-1])


def test_a_line_over_the_limit_is_one_unreadable_place() -> None:
    data = b"first\n" + b"x" * 1_000_000 + b"\nlast\n"
    first, middle, last = lines(io.BytesIO(data), limit=1000)
    assert (first.value, last.value) == (b"first\n", b"last\n")
    assert middle.error == "a line of more than 1000 bytes"
    assert (middle.offset, middle.next_offset) == (6, 6 + 1_000_001)
    assert last.offset == middle.next_offset


def test_a_progress_bar_without_an_end_is_cut_at_a_carriage_return() -> None:
    bar = b"\r 50%|##  | 1/2 [00:01<00:01, 1.0s/it]" * 30_000
    row = b"{'loss': 0.5, 'grad_norm': 1.0, 'step': 4}\n"
    found = list(lines(io.BytesIO(bar + row), soft_break=b"\r", limit=10_000))
    assert all(not line.error and line.complete for line in found)
    assert b"".join(line.value for line in found) == bar + row
    assert found[-1].value.endswith(row)


def test_gzip_is_told_by_content_and_may_end_early(tmp_path: Path) -> None:
    rows = b"".join(b'{"step": %d, "data": {"actor/lr": 0.%d}}\n' % (step, step) for step in range(1, 5000))
    packed = gzip.compress(rows)
    path = tmp_path / "log.jsonl"
    path.write_bytes(packed)
    whole = list(read_records(path))
    assert sum(isinstance(place.record, StepRecord) for place in whole) == 4999
    path.write_bytes(packed[: len(packed) // 2])
    half = list(read_records(path))
    assert half[:-1] == whole[: len(half) - 1]
    assert half[-1].record is None
    assert half[-1].error.startswith("the compressed data end here")
    damaged = bytearray(packed)
    damaged[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
    path.write_bytes(damaged)
    assert list(read_records(path))[-1].error.startswith("the compressed data end here")
    assert head(path, 10) == rows[:10]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("runs/grpo-7b.jsonl", "grpo-7b"),
        ("runs/grpo-7b.log.gz", "grpo-7b"),
        ("runs/qwen2.5-7b.log", "qwen2.5-7b"),
        ("runs/grpo-7b/raw.log.gz", "grpo-7b"),
        ("runs/grpo-7b/trainer_state.json", "grpo-7b"),
        ("runs/grpo-7b/checkpoint-200/trainer_state.json", "grpo-7b"),
        ("runs/grpo-7b/output/train.log", "output"),
        ("/metrics.csv", "metrics"),
        ("runs/grpo-7b/", "grpo-7b"),
        (f"runs/{'x' * 250}.log", "x" * 200),
    ],
)
def test_run_ids(path: str, name: str) -> None:
    assert run_id(Path(path)) == name

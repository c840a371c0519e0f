"""Whole event files and folders as records: what real writers leave, which files are one run, what is damaged."""

from __future__ import annotations

import builtins
import functools
import gzip
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import events
from tocsin import wire
from tocsin.formats import FORMATS, Parsed, UnknownFormat, detect, read_records, run_id
from tocsin.formats.event_paths import event_files, renamed, roots
from tocsin.formats.event_proto import decoder
from tocsin.wire import RunRecord, StepRecord


def read(path: Path, **options: Any) -> list[StepRecord]:
    return [place.record for place in read_records(path, **options) if isinstance(place.record, StepRecord)]


def metrics(path: Path) -> list[tuple[int, int, dict[str, float]]]:
    return [(record.attempt, record.step, record.metrics) for record in read(path)]


def errors(places: Iterator[Parsed]) -> list[str]:
    return [place.error for place in places if place.record is None]


# --- real writers --------------------------------------------------------------------------------------------------------


def _torch(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def _torch_tensors(folder: Path) -> Any:
    """As newer writers do: scalars are tensors."""
    writer = _torch(folder)
    writer.add_scalar = functools.partial(writer.add_scalar, new_style=True)
    return writer


def _tensorboard_x(folder: Path) -> Any:
    from tensorboardX import SummaryWriter

    return SummaryWriter(str(folder))


@pytest.mark.parametrize("make", [_torch, _torch_tensors, _tensorboard_x])
def test_what_real_writers_leave(make: Callable[[Path], Any], tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard_log" / "grpo-7b"
    writer = make(folder)
    for step in (1, 2):
        writer.add_scalar("actor/grad_norm", 0.5 * step, step, 1790000000.0 + step)
        writer.add_scalar("actor/entropy", math.nan, step, 1790000000.5 + step)
        writer.add_scalar("critic/score/max", math.inf, step, 1790000000.25 + step)
        writer.add_text("samples", "text", step)
        writer.add_histogram("weights", np.array([1.0, 2.0]), step)
    writer.close()
    assert detect(folder) == "tensorboard"
    opening, *_ = [place.record for place in read_records(folder)]
    assert isinstance(opening, RunRecord)
    assert (opening.run, opening.labels) == ("grpo-7b", {"framework": "verl"})
    first, second = read(folder)
    assert (first.step, first.time, first.names) == (1, 1790000001.5, "verl")
    assert (first.metrics["actor/grad_norm"], second.metrics["actor/grad_norm"]) == (0.5, 1.0)
    assert math.isnan(first.metrics["actor/entropy"])
    assert first.metrics["critic/score/max"] == math.inf
    assert len(first.metrics) == 3


@pytest.mark.parametrize("make", [_torch, _tensorboard_x])
def test_hyperparameters_and_groups_of_scalars(make: Callable[[Path], Any], tmp_path: Path) -> None:
    writer = make(tmp_path / "run")
    writer.add_hparams({"lr": 0.5, "grpo.num_generations_per_prompt": 8, "model": "m"}, {"final": 1.0})
    writer.add_scalar("train/gen_kl_error", 0.25, 3)
    writer.add_scalars("train/reward", {"math": 0.5, "code": 0.75}, 3)
    writer.close()
    opening, *_ = [place.record for place in read_records(tmp_path / "run")]
    assert isinstance(opening, RunRecord)
    assert opening.config == {"lr": 0.5, "grpo.num_generations_per_prompt": 8, "group_size": 8, "model": "m"}
    assert metrics(tmp_path / "run") == [
        (1, 3, {"train/gen_kl_error": 0.25, "train/reward/math": 0.5, "train/reward/code": 0.75})
    ]


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("DT_FLOAT", {"float_val": [0.5]}, 0.5),
        ("DT_DOUBLE", {"double_val": [0.1]}, 0.1),
        ("DT_HALF", {"half_val": [0x3800]}, 0.5),
        ("DT_BFLOAT16", {"half_val": [0x3F00]}, None),
        ("DT_INT32", {"int_val": [7]}, 7.0),
        ("DT_INT64", {"int64_val": [2**40]}, 2.0**40),
        ("DT_BOOL", {"bool_val": [True]}, 1.0),
        ("DT_FLOAT", {"tensor_content": struct.pack("<f", 0.5)}, 0.5),
        ("DT_STRING", {"string_val": [b"0.5"]}, None),
        ("DT_FLOAT", {"tensor_content": b"\0"}, None),
        ("DT_FLOAT", {}, None),
        ("DT_RESOURCE", {}, None),
    ],
)
def test_tensors_of_one_number(name: str, content: dict[str, Any], value: float | None) -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2

    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(name), **content)
    event = event_pb2.Event(step=1, summary=summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="a", tensor=tensor)]))
    assert decoder()(event.SerializeToString()).scalars == (() if value is None else (("a", value),))
    del tensor.tensor_shape.dim[:]
    tensor.tensor_shape.dim.add(size=10**12)
    event.summary.value[0].tensor.CopyFrom(tensor)
    assert decoder()(event.SerializeToString()).scalars == ()


# --- which files are one run ---------------------------------------------------------------------------------------------

ONE = [(10.0, 1, {"train/gen_kl_error": 0.5})]


def test_a_folder_with_one_run_below(tmp_path: Path) -> None:
    events.write(tmp_path / "logs" / "exp_001" / "tensorboard" / "events.out.tfevents.1.h.1.0", ONE, 9.0)
    for folder in (tmp_path / "logs", tmp_path / "logs" / "exp_001", tmp_path / "logs" / "exp_001" / "tensorboard"):
        assert metrics(folder) == [(1, 1, {"train/gen_kl_error": 0.5})]
    assert run_id(tmp_path / "logs" / "exp_001" / "tensorboard") == "exp_001"
    assert run_id(tmp_path / "my-run" / "events.out.tfevents.1.h.1.0") == "my-run"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("exp_001/tensorboard", "exp_002/tensorboard"),
        ("Aug23_10-02-11_node1", "Aug24_09-00-00_node2"),
        ("20260823-100211", "20260824-090000"),
    ],
)
def test_a_folder_per_start_is_one_run_in_attempts(first: str, second: str, tmp_path: Path) -> None:
    rows = [(10.0 + step, step, {"train/gen_kl_error": float(step)}) for step in (1, 2, 3)]
    events.write(tmp_path / first / "events.out.tfevents.1", rows, 9.0)
    events.write(tmp_path / second / "events.out.tfevents.2", [(100.0, 3, {"train/gen_kl_error": 9.0})], 99.0)
    assert [(attempt, step) for attempt, step, _ in metrics(tmp_path)] == [(1, 1), (1, 2), (1, 3), (2, 3)]


def test_several_runs_in_a_folder_are_named(tmp_path: Path) -> None:
    for name in ("grpo-a", "grpo-b"):
        events.write(tmp_path / name / "events.out.tfevents.1", ONE, 9.0)
    with pytest.raises(UnknownFormat, match=r"the event files of 2 runs \(grpo-a, grpo-b\); name the folder of one"):
        read_records(tmp_path)
    for project in ("p", "q"):
        events.write(tmp_path / "x" / project / "exp_001" / "events.out.tfevents.1", ONE, 9.0)
    with pytest.raises(UnknownFormat, match="2 runs"):
        read_records(tmp_path / "x")


def test_parts_of_one_run(tmp_path: Path) -> None:
    events.write(tmp_path / "train" / "events.out.tfevents.1", [(10.0, 1, {"loss": 0.5})], 9.0)
    events.write(tmp_path / "validation" / "events.out.tfevents.1", [(11.0, 1, {"loss": 0.75})], 9.0)
    assert metrics(tmp_path) == [(1, 1, {"train/loss": 0.5, "validation/loss": 0.75})]


def test_files_that_are_none_of_the_run(tmp_path: Path) -> None:
    events.write(tmp_path / "events.out.tfevents.1", ONE, 9.0)
    (tmp_path / "events.out.tfevents.2.profile-empty").write_bytes(events.begin(1.0))
    (tmp_path / ".events.out.tfevents.3.h.1.0.Xy12ab").write_bytes(events.begin(1.0)[:9])
    events.write(tmp_path / "checkpoint-100" / "events.out.tfevents.1", ONE, 9.0)
    events.write(tmp_path / "1796003386.7323875" / "events.out.tfevents.1", [(10.0, 0, {"final": 1.0})], 9.0)
    assert [path.parent.name for path in event_files(tmp_path)] == ["1796003386.7323875", tmp_path.name]
    assert metrics(tmp_path) == [(1, 1, {"train/gen_kl_error": 0.5})]


@pytest.mark.parametrize(
    ("prefix", "tag", "name"),
    [
        ("loss_a", "loss", "loss/a"),
        ("train_loss_a_b", "train/loss", "train/loss/a_b"),
        ("train/loss/a", "train/loss", "train/loss/a"),
        ("validation", "epoch_loss", "validation/epoch_loss"),
        ("deep/er", "loss", "deep/er/loss"),
        ("1796003386.7323875", "m", ""),
    ],
)
def test_names_of_scalars_in_folders_below(prefix: str, tag: str, name: str) -> None:
    assert renamed(prefix, tag) == name


def test_roots_of_nested_runs(tmp_path: Path) -> None:
    files = [tmp_path / "run" / "events.1", tmp_path / "run" / "loss_a" / "events.1"]
    assert roots(tmp_path, files) == [tmp_path / "run"]


def test_two_writers_are_read_in_order_of_time(tmp_path: Path) -> None:
    """slime: the rollouts' process and the trainer's, one folder."""
    train = [(10.0 * step + 5, step, {"train/pg_loss": float(step)}) for step in range(4)]
    rollouts = [(10.0 * number + 1, number, {"rollout/raw_reward": float(number)}) for number in range(4)]
    events.write(tmp_path / "events.out.tfevents.1.h.1.0", train, 0.5)
    events.write(tmp_path / "events.out.tfevents.1.h.2.0", rollouts, 0.25)
    assert metrics(tmp_path) == [
        (1, number, {"rollout/raw_reward": float(number), "train/pg_loss": float(number)}) for number in range(4)
    ]


def test_a_writers_clock_that_runs_ahead_puts_nothing_out_of_order(tmp_path: Path) -> None:
    """The first event has the time of its making; the others may have been given theirs by the trainer."""
    train = [(10.0 * step + 5, step, {"train/pg_loss": float(step)}) for step in range(4)]
    rollouts = [(10.0 * number + 1, number, {"rollout/raw_reward": float(number)}) for number in range(4)]
    events.write(tmp_path / "events.out.tfevents.1.h.1.0", train, 5000.0)
    events.write(tmp_path / "events.out.tfevents.1.h.2.0", rollouts, 6000.0)
    assert [(attempt, step, len(values)) for attempt, step, values in metrics(tmp_path)] == [(1, step, 2) for step in range(4)]


# --- damage --------------------------------------------------------------------------------------------------------------


def test_damage_is_told_with_its_place_and_the_rest_is_read(tmp_path: Path) -> None:
    rows = [(10.0 + step, step, {"train/gen_kl_error": float(step)}) for step in range(1, 5)]
    path = events.write(tmp_path / "events.out.tfevents.1", rows, 9.0)
    data = bytearray(path.read_bytes())
    place = data.index(events.events(rows)[1])
    data[place + 20] ^= 1
    path.write_bytes(bytes(data[:-3]))
    length = len(events.events(rows)[1])
    assert [step for _, step, _ in metrics(tmp_path)] == [1, 3]
    assert errors(read_records(tmp_path)) == [
        f"events.out.tfevents.1, byte {place}: {length} damaged bytes",
        f"events.out.tfevents.1, byte {len(data) - length}: the last {length - 3} bytes are no whole event",
    ]


def test_an_event_that_is_none_is_told(tmp_path: Path) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    path = events.write(tmp_path / "events.out.tfevents.1", ONE, 9.0)
    with path.open("ab") as file:
        RecordWriter(file).write(b"\xff\xff\xff")
    (error,) = errors(read_records(tmp_path))
    assert error.startswith(f"events.out.tfevents.1, byte {path.stat().st_size - 19}: no event of TensorBoard: Error parsing")


@settings(max_examples=100)
@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 8))
def test_any_bytes_raise_nothing_and_offsets_never_fall(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("events")
    rows = [(10.0 + step, step, {"train/gen_kl_error": float(step), "x": math.nan}) for step in range(1, 5)]
    data = events.whole(rows, 9.0)
    (folder / "events.out.tfevents.1").write_bytes((data[:at] + noise + data[at:])[: -cut or None])
    events.write(folder / "events.out.tfevents.2", rows[:2], 9.5)
    reached = 0
    for place in read_records(folder, "tensorboard"):
        assert reached <= place.offset <= place.next_offset
        reached = place.offset
        if place.record is None:
            assert place.error
        else:
            wire.decode(wire.encode(place.record))


def test_event_files_are_not_fed_line_by_line() -> None:
    with pytest.raises(TypeError, match="tensorboard has no parser of lines"):
        FORMATS["tensorboard"].parser(run="r")


def test_a_compressed_file_and_an_empty_folder_say_so(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.gz"
    path.write_bytes(gzip.compress(events.whole(ONE, 9.0)))
    with pytest.raises(UnknownFormat, match="unpack it first"):
        read_records(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no event files"):
        read_records(tmp_path / "empty", "tensorboard")


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """As if these packages were not installed."""
    real = builtins.__import__

    def find(name: str, *rest: Any) -> Any:
        if any(name == package or name.startswith(f"{package}.") for package in missing):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", find)


@pytest.mark.parametrize("missing", [("tensorboard",), ("google.protobuf",), ("tensorboard", "crc32c")])
def test_without_the_extra_the_error_names_it(
    missing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events.write(tmp_path / "events.out.tfevents.1", ONE, 9.0)
    without(monkeypatch, *missing)
    with pytest.raises(UnknownFormat, match=r"pip install 'tocsin\[tensorboard\]'"):
        list(read_records(tmp_path))


def test_without_the_fast_checksum_the_same_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = events.write(tmp_path / "events.out.tfevents.1", ONE, 9.0)
    path.write_bytes(path.read_bytes() + b"x" * 30 + b"".join(events.events(ONE)))
    fast = list(read_records(tmp_path))
    without(monkeypatch, "crc32c")
    assert list(read_records(tmp_path)) == fast
    assert [place.error for place in fast if place.record is None] == [f"{path.name}, byte 96: 30 damaged bytes"]

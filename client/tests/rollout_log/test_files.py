"""Steps in files: whole or not at all, within the disk's share, readable whatever happened to the writer."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.services import missing
from tocsin.rollout_log import read_rollouts
from tocsin.rollout_log.files import FileWriter, StepTooLarge, file_name, folder_name, log_files

ROOMY = 10**9


def lines(step: int, count: int = 3, text: str = "text") -> list[bytes]:
    return [msgspec.json.encode({"step": step, "index": index, "of": count, "response": text}) for index in range(count)]


def name(step: int, created: int) -> str:
    return file_name(step, 1, 0, created, "abcdef")


def steps(path: Path) -> list[int | None]:
    return sorted({row.get("step") for row in read_rollouts(path)}, key=str)


@pytest.fixture
def writer() -> Iterator[FileWriter]:
    made = FileWriter(ROOMY)
    yield made
    made.close()


@pytest.mark.parametrize("run", ["grpo-7b.042", "team/run 1", "../../etc", ".", "é" * 100, "x" * 200])
def test_a_run_has_a_folder_of_its_own(run: str) -> None:
    folder = folder_name(run)
    assert Path(folder).name == folder
    assert not folder.startswith(".")
    assert (folder == run) is (run == "grpo-7b.042")
    assert folder != folder_name(run + "/")


def test_files_are_listed_by_age_and_others_are_none_of_ours(tmp_path: Path) -> None:
    for step, created in ((5, 30), (9, 10), (7, 20)):
        (tmp_path / name(step, created)).write_bytes(b"x" * step)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "attempt001-rank0-step1.jsonl.gz").write_text("not in the form of ours")
    assert [(file.created_ns, file.size) for file in log_files(tmp_path)] == [(10, 9), (20, 7), (30, 5)]
    assert log_files(tmp_path / "none") == []


def test_a_file_is_gzip_for_every_reader(writer: FileWriter, tmp_path: Path) -> None:
    path = tmp_path / "run" / name(1, 1)
    writer.write(path, lines(1))
    writer.write(path, lines(2, count=100_000, text="long"))
    writer.write(path, lines(3, count=0))
    writer.close()
    with gzip.open(path) as file:
        expected = [*lines(1), *lines(2, count=100_000, text="long")]
        assert file.read() == b"".join(line + b"\n" for line in expected)
    assert subprocess.run(["gzip", "-t", str(path)], check=False, capture_output=True).returncode == 0
    assert len(list(read_rollouts(path, step=2))) == 100_000
    assert len(list(read_rollouts(path.parent))) == 100_003
    assert list(read_rollouts(str(path), step=4)) == []


def test_after_a_pause_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / name(1, 1)
    for step in (1, 2):
        writer = FileWriter(ROOMY)
        writer.write(path, lines(step))
        writer.close()
        writer.close()
    assert steps(path) == [1, 2]


def test_a_step_that_fails_leaves_nothing(writer: FileWriter, tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        for _ in range(100):
            yield from lines(2, count=1, text=random_text(40_000))
        raise RuntimeError("no more")

    path = tmp_path / name(1, 1)
    writer.write(path, lines(1))
    size = path.stat().st_size
    with pytest.raises(RuntimeError):
        writer.write(path, broken())
    assert path.stat().st_size == size
    writer.write(path, lines(3))
    assert steps(path) == [1, 3]


def test_what_a_failed_write_left_is_cut_before_the_next(
    writer: FileWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes a part of a step and then neither the rest nor the truncation."""
    path = tmp_path / name(1, 1)
    writer.write(path, lines(1))
    real = os.write
    calls = 0

    def refuse(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    def write(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        return real(fd, bytes(data)[:7]) if calls == 1 else refuse()

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="No space"):
            writer.write(path, lines(2))
    assert steps(path) == [1], "a reader takes the torn end for what it is"
    writer.write(path, lines(3))
    assert steps(path) == [1, 3]
    with gzip.open(path) as file:
        file.read()


def test_a_disk_that_is_really_full(writer: FileWriter) -> None:
    full = Path("/dev/full")
    if not full.exists():
        missing("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        writer.write(full, lines(1))


@pytest.mark.parametrize(("total", "left"), [(10**13, 1024**3), (10**9, 5 * 10**7)])
def test_what_the_job_may_need_of_the_disk_is_left_to_it(
    total: int, left: int, writer: FileWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name(1, 1)
    free = left
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=total, free=free))
    writer.write(path, lines(1))
    free = left - 1
    with pytest.raises(OSError, match="left to the job"):
        writer.write(path, lines(2))
    free = left
    writer.write(path, lines(3))
    assert steps(path) == [1, 3]


def test_a_file_that_somebody_deleted_is_begun_again(writer: FileWriter, tmp_path: Path) -> None:
    path = tmp_path / name(1, 1)
    writer.write(path, lines(1))
    path.unlink()
    writer.write(path, lines(2))
    assert steps(path) == [2]


def random_text(size: int) -> str:
    return os.urandom(size // 2).hex()


def test_the_oldest_files_make_room(tmp_path: Path) -> None:
    limit = 100_000
    writer = FileWriter(limit)
    for step in range(30):
        writer.write(tmp_path / name(step, step), lines(step, count=1, text=random_text(20_000)))
        assert sum(file.size for file in log_files(tmp_path)) <= limit
    kept = log_files(tmp_path)
    assert [file.created_ns for file in kept] == list(range(30 - len(kept), 30))
    assert len(kept) >= 6
    assert writer.deleted == 30 - len(kept)
    writer.close()


def test_files_of_earlier_starts_count_and_go_first(tmp_path: Path) -> None:
    """A later attempt that begins at an earlier step: age decides, not the step."""
    earlier = FileWriter(ROOMY)
    for step in range(500, 510):
        earlier.write(tmp_path / name(step, step), lines(step, count=1, text=random_text(20_000)))
    earlier.close()
    writer = FileWriter(60_000)
    writer.write(tmp_path / name(100, 1000), lines(100, count=1, text=random_text(20_000)))
    assert steps(tmp_path) == [100, *range(506, 510)]
    assert sum(file.size for file in log_files(tmp_path)) <= 60_000
    writer.close()


def test_a_step_that_no_deletion_makes_room_for(tmp_path: Path) -> None:
    writer = FileWriter(50_000)
    path = tmp_path / name(1, 1)
    writer.write(path, lines(1))
    with pytest.raises(StepTooLarge):
        writer.write(path, [*lines(2, count=100, text=random_text(4_000)), random_text(1_000_000).encode()])
    assert steps(path) == [1]
    writer.close()


def test_a_step_that_is_too_large_costs_no_more_than_half_of_the_log(tmp_path: Path) -> None:
    writer = FileWriter(100_000)
    for step in range(8):
        writer.write(tmp_path / name(step, step), lines(step, count=1, text=random_text(20_000)))
    before = sum(file.size for file in log_files(tmp_path))
    with pytest.raises(StepTooLarge):
        writer.write(tmp_path / name(9, 9), [random_text(10_000).encode() for _ in range(1_000)])
    assert sum(file.size for file in log_files(tmp_path)) > before - 60_000
    writer.write(tmp_path / name(10, 10), lines(10))
    assert 10 in steps(tmp_path)
    writer.close()


def test_a_file_that_somebody_cut_goes_on_at_its_end(writer: FileWriter, tmp_path: Path) -> None:
    path = tmp_path / name(1, 1)
    writer.write(path, lines(1))
    size = path.stat().st_size
    writer.write(path, lines(2))
    os.truncate(path, size)
    writer.write(path, lines(3))
    assert steps(path) == [1, 3]


def test_the_files_of_other_ranks_may_go_under_their_writer(tmp_path: Path) -> None:
    first, second = FileWriter(60_000), FileWriter(60_000)
    paths = tmp_path / name(0, 1), tmp_path / name(0, 2)
    for step in range(60):
        first.write(paths[0], lines(step, count=1, text=random_text(2_000)))
        second.write(paths[1], lines(step, count=1, text=random_text(2_000)))
    assert first.deleted + second.deleted > 0
    assert sum(file.size for file in log_files(tmp_path)) <= 60_000
    assert 59 in steps(tmp_path)
    first.close()
    second.close()


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / name(1, 1)
    writer = FileWriter(ROOMY)
    for step in (1, 2, 3):
        writer.write(path, lines(step, text=random_text(300)))
    writer.close()
    return path.read_bytes()


def test_a_torn_end_costs_its_step_at_most(three_steps: bytes, tmp_path: Path) -> None:
    """Cut after each byte: whatever was whole before is read, and no more than what was written."""
    path = tmp_path / name(1, 1)
    whole = list(three_steps.split(b"\x1f\x8b\x08"))
    ends = [sum(len(part) + 3 for part in whole[1 : index + 1]) for index in range(1, 4)]
    for cut in range(len(three_steps)):
        path.write_bytes(three_steps[:cut])
        found = [row["step"] for row in read_rollouts(path)]
        complete = sum(cut >= end for end in ends)
        assert found[: 3 * complete] == [step for step in (1, 2, 3)[:complete] for _ in range(3)]
        assert len(found) <= 9


def test_a_torn_end_is_told(three_steps: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / name(1, 1)
    path.write_bytes(three_steps[:-1])
    with caplog.at_level(logging.WARNING, "tocsin"):
        assert {row["step"] for row in read_rollouts(path)} >= {1, 2}
    assert path.name in caplog.text


@settings(max_examples=200)
@given(data=st.data())
def test_a_damaged_file_never_raises(data: st.DataObject, three_steps: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("damaged") / name(1, 1)
    at = data.draw(st.integers(0, len(three_steps) - 1))
    path.write_bytes(three_steps[:at] + bytes([data.draw(st.integers(0, 255))]) + three_steps[at + 1 :])
    assert len(list(read_rollouts(path))) <= 9


def test_lines_that_are_no_responses(tmp_path: Path) -> None:
    path = tmp_path / name(1, 1)
    for line in (b"5", b"[]", b"\xff", b"", b'{"reward": 1', b'{"components": 5}', b'{"step": 1, "reward": [1]}'):
        path.write_bytes(gzip.compress(b'{"step": 1}\n' + line + b"\n"))
        assert next(iter(read_rollouts(path))) == {"step": 1}
        assert len(list(read_rollouts(path))) <= 2


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        list(read_rollouts(tmp_path / "none.jsonl.gz"))
    assert list(read_rollouts(tmp_path)) == []

"""The queue and the thread between the training loop and the files."""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.services import until
from tocsin import wire
from tocsin.rollout_log import read_rollouts
from tocsin.rollout_log.columns import Columns, take
from tocsin.rollout_log.files import files_of_step, log_files
from tocsin.rollout_log.writer import RolloutLog


def columns(step: int, text: str = "text", count: int = 2, **more: Any) -> Columns:
    return take(step, 1.0, [text] * count, **more)


def make(folder: Path | None, **settings: Any) -> RolloutLog:
    return RolloutLog(folder, **{"run": "run-1", "attempt": 1, "rank": 0, **settings})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RolloutLog]:
    made = make(tmp_path)
    yield made
    made.close(10)


class Gate:
    """Stands before the disk: writes wait in it, or are refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.refusals = 0
        self.refuse = False
        self._write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, fd: int, data: bytes) -> int:
        self.entered.set()
        if self.refuse:
            self.refusals += 1
            raise OSError(28, "No space left on device")
        assert self.open.wait(60)
        return self._write(fd, data)


def test_steps_go_to_the_file_that_was_told(log: RolloutLog, tmp_path: Path) -> None:
    told = [log.put(columns(step)) for step in (1, 2, 2, 5)]
    assert log.flush(30)
    (file,) = log_files(tmp_path / "run-1")
    for sample in told:
        assert [rollout.response for rollout in sample.sample()] == ["text", "text"]
        assert sample.pointer == str(file.path)
    assert [row["step"] for row in read_rollouts(file.path)] == [1, 1, 2, 2, 2, 2, 5, 5]
    assert log.counts() == (4, 8, 0, {}, 0)


def test_a_full_file_and_a_step_backwards_begin_new_files(tmp_path: Path) -> None:
    log = make(tmp_path, file_bytes=10_000)
    told = [log.put(columns(step, "x" * 1_000)) for step in (1, 2, 3, 4, 5, 6, 3, 4)]
    assert log.flush(30)
    log.close(10)
    names = [Path(sample.pointer).name.split("-")[2] for sample in told]
    assert names == ["step000000001"] * 4 + ["step000000005"] * 2 + ["step000000003"] * 2
    assert [row["step"] for row in read_rollouts(tmp_path / "run-1") if row["index"] == 0] == [1, 2, 3, 4, 5, 6, 3, 4]


@settings(max_examples=30)
@given(sizes=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), min_size=1, max_size=20), attempts=st.integers(1, 2))
def test_a_step_is_found_in_whatever_files_it_is(
    sizes: list[tuple[int, int]], attempts: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Steps forwards, backwards and twice, in files of any cut, of two starts of the job."""
    folder = tmp_path_factory.mktemp("any")
    for attempt in range(1, attempts + 1):
        log = make(folder, file_bytes=5_000, attempt=attempt)
        for step, size in sizes:
            log.put(columns(step, "x" * 1_000 * size, count=1))
        log.close(30)
    every = [(row["attempt"], row["step"], len(row["response"])) for row in read_rollouts(folder / "run-1")]
    assert len(every) == attempts * len(sizes)
    for step in range(14):
        found = [(row["attempt"], row["step"], len(row["response"])) for row in read_rollouts(folder / "run-1", step)]
        assert found == [row for row in every if row[1] == step]


def test_only_files_that_may_hold_a_step_are_opened(tmp_path: Path) -> None:
    log = make(tmp_path, file_bytes=5_000)
    for step in range(100):
        log.put(columns(step, "x" * 1_000))
    log.close(30)
    kept = log_files(tmp_path / "run-1")
    assert len(kept) == 50
    assert [file.first_step for file in files_of_step(kept, 41)] == [40]
    assert [file.first_step for file in files_of_step(kept, 42)] == [40, 42]
    assert files_of_step(kept[10:], 3) == []


def test_a_step_larger_than_a_file_has_one_for_itself(tmp_path: Path) -> None:
    log = make(tmp_path, file_bytes=10_000)
    told = [log.put(columns(step, "x" * 50_000)).pointer for step in (1, 2)]
    log.close(30)
    assert len(set(told)) == 2
    assert [len(list(read_rollouts(path))) for path in told] == [2, 2]


def test_the_files_share_the_disks_limit(tmp_path: Path) -> None:
    log = make(tmp_path, disk_bytes=400_000)
    for step in range(100):
        log.put(columns(step, os.urandom(10_000).hex(), count=1))
    assert log.flush(60)
    kept = log_files(tmp_path / "run-1")
    assert sum(file.size for file in kept) <= 400_000
    assert 99 in {row["step"] for row in read_rollouts(tmp_path / "run-1")}
    counts = log.counts()
    assert (counts.written, counts.lost) == (100, {})
    assert counts.deleted_files > 0
    log.close(10)


def test_a_step_larger_than_the_disks_limit_is_counted(tmp_path: Path) -> None:
    log = make(tmp_path, disk_bytes=50_000)
    log.put(columns(1, os.urandom(100_000).hex(), count=1))
    log.put(columns(2))
    assert log.flush(30)
    log.close(10)
    assert log.counts()[:4] == (1, 2, 0, {"too_large": 1})
    assert [row["step"] for row in read_rollouts(tmp_path / "run-1")] == [2, 2]


def test_when_the_disk_cannot_keep_up_the_oldest_steps_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    log = make(tmp_path, queue_bytes=100_000)
    log.put(columns(0))
    assert gate.entered.wait(30)
    told = [log.put(columns(step, str(step % 10) * 10_000)) for step in range(1, 51)]
    lost = log.counts().lost
    assert 40 <= lost["queue_full"] <= 48
    gc.collect()
    assert told[0].sample() == []
    assert told[0].pointer == "", "the record does not send a reader to a file that lacks the step"
    assert told[-1].sample() != []
    gate.open.set()
    log.close(30)
    found = [row["step"] for row in read_rollouts(tmp_path / "run-1") if row["index"] == 0]
    assert found == [0, *range(lost["queue_full"] + 1, 51)]


def test_memory_is_let_go_of_when_a_step_is_on_disk(log: RolloutLog) -> None:
    import weakref

    step = columns(1)
    alive = weakref.ref(step)
    sample = log.put(step)
    del step
    assert log.flush(30)
    until(lambda: (gc.collect(), alive() is None)[1], "the step to go")
    assert [rollout.picked for rollout in sample.sample()] == ["first", "random"]


def test_a_full_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("tocsin.rollout_log.writer.RETRY_SECONDS", 0.01)
    gate = Gate(monkeypatch)
    gate.open.set()
    gate.refuse = True
    log = make(tmp_path)
    for step in range(3):
        log.put(columns(step))
    until(lambda: gate.refusals >= 3, "three attempts")
    assert not log.flush(0.01)
    gate.refuse = False
    assert log.flush(30)
    assert [row["step"] for row in read_rollouts(tmp_path / "run-1")] == [0, 0, 1, 1, 2, 2]
    assert log.counts() == (3, 6, 0, {}, 0)
    assert len([record for record in caplog.records if "cannot write rollouts" in record.message]) == 1
    log.close(10)


def test_a_close_does_not_wait_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    gate.refuse = True
    log = make(tmp_path)
    log.put(columns(1))
    log.put(columns(2))
    until(lambda: gate.refusals, "an attempt")
    log.close(0.05)
    until(lambda: log.counts().lost == {"disk": 2}, "the thread to give up")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    log = make(tmp_path / "file")
    sample = log.put(columns(1))
    log.close(0.5)
    until(lambda: log.counts().lost == {"disk": 1}, "the thread to give up")
    assert sample.sample() != [], "the record has its sample all the same"


def test_without_a_folder_the_sample_is_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = make(None)
    sample = log.put(columns(1))
    assert log.flush(30)
    assert (len(sample.sample()), sample.pointer) == (2, "")
    assert log.counts() == (0, 0, 0, {}, 0)
    log.close(10)
    assert list(tmp_path.iterdir()) == []


def test_after_a_close_steps_are_counted(tmp_path: Path) -> None:
    log = make(tmp_path)
    log.put(columns(1))
    log.close(30)
    log.close(30)
    sample = log.put(columns(2))
    assert sample.pointer == ""
    assert log.flush(0)
    assert log.counts() == (1, 2, 0, {"closed": 1}, 0)


def test_nothing_is_started_before_the_first_step(tmp_path: Path) -> None:
    before = threading.active_count()
    log = make(tmp_path)
    assert log.flush(0)
    log.close(0)
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


def test_columns_that_break_while_they_are_written(log: RolloutLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(self: Columns, bad: Counter[str]) -> Iterator[dict[str, Any]]:
        if self.step == 1:
            yield {"step": 1}
            raise RuntimeError("a bug")
        yield {"step": 2}

    monkeypatch.setattr(Columns, "rows", rows)
    log.put(columns(1))
    log.put(columns(2))
    assert log.flush(30)
    assert log.counts()[:4] == (1, 2, 0, {"bad_step": 1})
    assert [row["step"] for row in read_rollouts(tmp_path / "run-1")] == [2]


def test_what_cannot_be_read_is_counted_once(log: RolloutLog) -> None:
    sample = log.put(columns(1, rewards=["high", 1.0], correct=[True], components={"x": [1.0, object()]}))
    assert log.flush(30)
    assert [rollout.reward for rollout in sample.sample()] == [None, 1.0]
    assert dict(log.bad) == {"bad_value": 2, "bad_column": 1}


def test_the_sample_is_of_the_step_and_says_why(log: RolloutLog) -> None:
    rewards = [0.0, 1.0, -2.0, -1.0]
    step = take(4, 1.0, ["a", "bb", "ccc", "d"], prompts="same for all", rewards=rewards, truncated=[0, 0, 1, 0])
    made = functools.partial(wire.Rollout, prompt="same for all")
    assert log.put(step).sample() == [
        made(response="a", index=0, picked="first", reward=0.0, truncated=False),
        made(response="ccc", index=2, picked="worst", reward=-2.0, truncated=True),
        made(response="bb", index=1, picked="best", reward=1.0, truncated=False),
        made(response="d", index=3, picked="random", reward=-1.0, truncated=False),
    ]


def test_a_sample_that_waits_for_its_record_is_small(log: RolloutLog) -> None:
    sample = log.put(take(1, 1.0, ["x" * 1_000_000] * 64, prompts="y" * 1_000_000))
    assert log.flush(30)
    rollouts = sample.sample()
    assert len(rollouts) == 8
    assert all(len(rollout.prompt) + len(rollout.response) <= wire.MAX_ROLLOUT_BYTES for rollout in rollouts)
    assert dict(log.bad) == {}

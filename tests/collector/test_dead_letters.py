"""Dead letters on a disk that fills and rotates, on a topic whose broker is away, and the share of rejected values."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dead_letters import DeadLetter, FileDeadLetters, MemoryDeadLetters, RejectedShare, decode, encode
from collector.ports import DeadLetters
from collector.sources.kafka.dead_letters import KafkaDeadLetters


def put(letters: DeadLetters, offset: int, value: bytes = b"x") -> None:
    letters.put(partition="t/0", offset=offset, reason="not_json", detail="d", value=value, rejected_at=0.0)


def offsets(folder: Path) -> dict[str, list[int]]:
    return {path.name: [decode(line).offset for line in path.read_bytes().splitlines()] for path in sorted(folder.iterdir())}


def test_a_full_file_moves_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    size = len(encode(DeadLetter(partition="t/0", offset=0, reason="not_json", detail="d", size=1, truncated=False, value=b"x",
                                 rejected_at=0.0))) + 1  # fmt: skip
    letters = FileDeadLetters(tmp_path, max_bytes=2 * size, files=3)
    for offset in range(9):
        put(letters, offset)
    letters.close()
    assert offsets(tmp_path) == {
        "dead-letters.jsonl": [8],
        "dead-letters.jsonl.1": [6, 7],
        "dead-letters.jsonl.2": [4, 5],
    }
    assert (letters.kept, letters.dropped) == (9, 0)


def test_a_single_file_begins_anew(tmp_path: Path) -> None:
    letters = FileDeadLetters(tmp_path, max_bytes=1, files=1)
    for offset in range(3):
        put(letters, offset)  # each is larger than max_bytes and is kept all the same
    letters.close()
    assert offsets(tmp_path) == {"dead-letters.jsonl": [2]}


def test_a_second_process_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for offset in range(2):
        letters = FileDeadLetters(tmp_path)
        put(letters, offset)
        letters.close()
    assert offsets(tmp_path) == {"dead-letters.jsonl": [0, 1]}


def test_half_a_line_of_a_crash_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / FileDeadLetters.NAME
    path.write_bytes(b'{"v":1,"partition":"t/0","off')
    letters = FileDeadLetters(tmp_path)
    put(letters, 5)
    letters.close()
    broken, whole = path.read_bytes().splitlines()
    assert broken == b'{"v":1,"partition":"t/0","off'
    assert decode(whole).offset == 5


def test_a_disk_that_fails_costs_letters_and_no_exception_and_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "not-a-folder"
    folder.write_text("a file is in the way", encoding="utf-8")
    letters = FileDeadLetters(folder)
    with caplog.at_level(logging.ERROR):
        for offset in range(5):
            put(letters, offset)
    assert (letters.kept, letters.dropped) == (0, 5)
    assert len(caplog.records) == 1
    folder.unlink()
    put(letters, 6)  # it is tried again each time
    assert (letters.kept, letters.dropped) == (1, 5)
    letters.close()
    put(letters, 7)
    assert (letters.kept, letters.dropped) == (1, 6)


@pytest.mark.parametrize(("max_bytes", "files"), [(0, 1), (1, 0)])
def test_impossible_limits_are_refused(tmp_path: Path, max_bytes: int, files: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FileDeadLetters(tmp_path, max_bytes=max_bytes, files=files)


def test_memory_keeps_the_last() -> None:
    letters = MemoryDeadLetters(limit=2)
    for offset in range(5):
        put(letters, offset)
    assert [letter.offset for letter in letters.letters] == [3, 4]
    assert (letters.kept, letters.dropped) == (5, 3)


def test_a_broker_that_is_away_costs_letters_beyond_the_limit_and_no_time(unreachable: str) -> None:
    letters = KafkaDeadLetters(unreachable, pending_bytes=2_000, connect_seconds=0.1, close_seconds=30.0)
    for offset in range(100):
        put(letters, offset)
    assert letters.kept == 0
    assert 0 < letters.dropped < 100
    letters.close()
    assert letters.dropped == 100


class TestRejectedShare:
    def test_nothing_came(self) -> None:
        assert math.isnan(RejectedShare().share)
        assert math.isnan(RejectedShare().add(10.0, 0, 0))

    def test_share_of_what_came_within_the_window(self) -> None:
        share = RejectedShare(window=60.0)
        assert share.add(0.0, 90, 10) == pytest.approx(0.1)
        assert share.add(30.0, 100, 0) == pytest.approx(0.05)
        assert share.add(59.9, 0, 0) == pytest.approx(0.05)
        assert share.add(60.0, 0, 0) == 0.0  # the first hundred left
        assert math.isnan(share.add(200.0, 0, 0))

    def test_an_hour_of_silence_forgets_all(self) -> None:
        share = RejectedShare()
        share.add(0.0, 0, 1_000)
        assert share.add(3600.0, 1, 0) == 0.0

    def test_a_clock_that_steps_back_loses_nothing(self) -> None:
        share = RejectedShare(window=60.0)
        share.add(1000.0, 1, 1)
        assert share.add(10.0, 2, 0) == 0.25

    @pytest.mark.parametrize(("window", "resolution"), [(0.0, 60), (-1.0, 60), (60.0, 0)])
    def test_impossible_windows_are_refused(self, window: float, resolution: int) -> None:
        with pytest.raises(ValueError, match="must be positive"):
            RejectedShare(window, resolution)

    @given(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(0, 50), st.integers(0, 50)),
            min_size=1,
            max_size=60,
        )
    )
    def test_equals_a_recount_of_all_that_came(self, batches: list[tuple[int, int, int]]) -> None:
        share = RejectedShare(window=60.0)
        came: list[tuple[float, int, int]] = []
        now = 0.0
        for pause, accepted, rejected in batches:
            now += pause
            came.append((now, accepted, rejected))
            got = share.add(now, accepted, rejected)
            recent = [item for item in came if item[0] > now - 60.0]
            total = sum(item[1] + item[2] for item in recent)
            expected = sum(item[2] for item in recent) / total if total else math.nan
            assert got == pytest.approx(expected, nan_ok=True)

    def test_memory_is_bounded(self) -> None:
        share = RejectedShare(window=60.0)
        for tick in range(100_000):
            share.add(tick * 0.01, 1, 0)
        assert len(share._buckets) <= 60


def test_encoded_letters_are_single_lines() -> None:
    dead = DeadLetter(partition="p", offset=1, reason="r", detail="a\nb", size=1, truncated=False, value=b"\n",
                      rejected_at=time.time())  # fmt: skip
    assert b"\n" not in encode(dead)
    assert decode(encode(dead)) == dead

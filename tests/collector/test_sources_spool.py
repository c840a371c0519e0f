"""The spool source on files that grow, break off, are cut, removed, replaced, and hold lines that are too long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import SourceUnavailable
from collector.sources import lines
from collector.sources.lines import LineReader
from collector.sources.memory import MemoryPositions
from collector.sources.spool import SpoolSource
from tocsin import spool
from tocsin.wire import MAX_RECORD_BYTES


def file_in(folder: Path, number: int, run: str = "r") -> Path:
    records = folder / spool.RECORDS
    records.mkdir(exist_ok=True)
    return records / spool.record_file_name(run, number, 1, f"{number:06x}")


def opened(folder: Path, at: dict[str, int] | None = None, **options: float) -> SpoolSource:
    source = SpoolSource(folder, clock=lambda: 9.0, wait=lambda seconds: None, **options)  # type: ignore[arg-type]  # options of several types
    source.open(MemoryPositions(at))
    return source


def values(batch: Batch) -> list[bytes]:
    return [record.value for record in batch.records]


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def test_a_folder_that_does_not_exist_yet_is_empty_and_then_is_not(tmp_path: Path) -> None:
    source = opened(tmp_path / "later")
    assert source.poll(1.0) == Batch([], [], [], caught_up=True)
    (tmp_path / "later").mkdir()
    path = file_in(tmp_path / "later", 1)
    append(path, b"a\n")
    assert source.poll(0.0) == Batch([RawRecord(b"a", path.name, 0, 2, 9.0)], [], [path.name], caught_up=True)


def test_poll_waits_by_the_interval_and_no_longer_than_it_may(tmp_path: Path) -> None:
    waited: list[float] = []
    source = SpoolSource(tmp_path, poll_interval=0.4, wait=waited.append)
    source.open(MemoryPositions())
    source.poll(1.0)
    assert waited == [0.4, 0.4, pytest.approx(0.2)]


def test_a_new_file_shows_although_the_folders_time_of_change_stood_still(tmp_path: Path) -> None:
    """Two files within one tick of the file system's clock: the second one leaves no trace in the folder's time."""
    append(file_in(tmp_path, 1), b"a\n")
    source = opened(tmp_path)
    folder = tmp_path / spool.RECORDS
    tick = folder.stat().st_mtime_ns
    source.poll(0.0)
    append(file_in(tmp_path, 2), b"b\n")
    os.utime(folder, ns=(tick, tick))
    assert values(source.poll(0.0)) == [b"b"]


def test_a_quiet_folder_is_not_listed_again_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_in(tmp_path, 1)
    append(path, b"a\n")
    os.utime(tmp_path / spool.RECORDS, (1_000, 1_000))
    source = opened(tmp_path)
    assert values(source.poll(0.0)) == [b"a"]
    listed = 0
    real = spool.record_files

    def counting(folder: Path) -> list[Path]:
        nonlocal listed
        listed += 1
        return real(folder)

    monkeypatch.setattr(spool, "record_files", counting)
    append(path, b"b\n")  # growth of a file does not touch its folder
    assert values(source.poll(0.0)) == [b"b"]
    assert listed == 0
    append(file_in(tmp_path, 2), b"c\n")
    assert values(source.poll(0.0)) == [b"c"]
    assert listed == 1


def test_files_are_read_in_the_order_of_their_names_and_others_are_left_alone(tmp_path: Path) -> None:
    second, first = file_in(tmp_path, 2), file_in(tmp_path, 1)
    append(second, b"c\n")
    append(first, b"a\nb\n")
    append(tmp_path / spool.RECORDS / "notes.txt", b"no record\n")
    batch = opened(tmp_path).poll(0.0)
    assert values(batch) == [b"a", b"b", b"c"]
    assert list(batch.assigned) == [first.name, second.name]


def test_a_younger_file_never_overtakes_what_an_older_one_holds(tmp_path: Path) -> None:
    append(file_in(tmp_path, 1), b"".join(b"%d\n" % number for number in range(700)))
    append(file_in(tmp_path, 2), b"last\n")
    source = opened(tmp_path)
    first = source.poll(0.0)
    assert len(first.records) == 500
    assert not first.caught_up
    second = source.poll(0.0)
    assert values(first) + values(second) == [*(b"%d" % number for number in range(700)), b"last"]
    assert second.caught_up


def test_a_line_is_a_record_once_it_is_complete(tmp_path: Path) -> None:
    path = file_in(tmp_path, 1)
    source = opened(tmp_path)
    append(path, b"one\ntw")
    batch = source.poll(0.0)
    assert values(batch) == [b"one"]
    assert batch.caught_up  # an unfinished line is no record: its writer may be dead
    assert source.lag() == {path.name: 2}
    assert values(source.poll(0.0)) == []
    append(path, b"o\n\n  \nthree\n")
    batch = source.poll(0.0)
    assert [(record.value, record.offset, record.next_offset) for record in batch.records] == [
        (b"two", 4, 8),
        (b"three", 12, 18),
    ]
    assert source.lag() == {}


def test_a_line_over_the_limit_is_one_fault_and_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_in(tmp_path, 1)
    source = opened(tmp_path)
    append(path, b"a\n" + b"x" * (MAX_RECORD_BYTES + 1))
    assert values(source.poll(0.0)) == [b"a"]
    # From here on it is searched for its end only, from where the search stood.
    largest = 0
    real_open = Path.open

    def spying_open(self: Path, *args: object, **kwargs: object) -> object:
        file = real_open(self, *args, **kwargs)  # type: ignore[call-overload]
        real_read = file.read

        class Spy:
            def __enter__(self) -> Spy:
                return self

            def __exit__(self, *error: object) -> None:
                file.close()

            def seek(self, offset: int) -> int:
                return int(file.seek(offset))

            def read(self, size: int = -1) -> bytes:
                nonlocal largest
                content: bytes = real_read(size)
                largest = max(largest, len(content))
                return content

        return Spy()

    monkeypatch.setattr(Path, "open", spying_open)
    for _ in range(3):
        with real_open(path, "ab") as file:
            file.write(b"x" * 1_000_000)
        batch = source.poll(0.0)
        assert (values(batch), list(batch.faults)) == ([], [])
    with real_open(path, "ab") as file:
        file.write(b"\nb\n")
    batch = source.poll(0.0)
    size = MAX_RECORD_BYTES + 1 + 3_000_000
    assert list(batch.faults) == [SourceFault(path.name, 2, f"a line of {size} bytes, the limit is {MAX_RECORD_BYTES}")]
    assert [(record.value, record.offset) for record in batch.records] == [(b"b", size + 3)]
    assert largest <= 4 * lines.CHUNK


def test_a_line_at_the_limit_is_a_record(tmp_path: Path) -> None:
    path = file_in(tmp_path, 1)
    whole = b"x" * MAX_RECORD_BYTES
    append(path, whole + b"\n" + whole + b"x\n" + whole + b"\n")
    source = opened(tmp_path)
    records: list[RawRecord] = []
    faults: list[SourceFault] = []
    for _ in range(4):
        batch = source.poll(0.0)
        records += batch.records
        faults += batch.faults
    assert [record.offset for record in records] == [0, 2 * MAX_RECORD_BYTES + 3]
    assert [record.value for record in records] == [whole, whole]
    assert [fault.offset for fault in faults] == [MAX_RECORD_BYTES + 1]


def test_a_file_that_was_cut_is_a_fault_once_and_goes_on_where_it_stood(tmp_path: Path) -> None:
    """A writer whose batch did not fit on the disk takes it back and writes the same batch again."""
    path = file_in(tmp_path, 1)
    append(path, b"a\nb\nc\n")
    source = opened(tmp_path)
    source.poll(0.0)
    os.truncate(path, 2)
    (fault,) = source.poll(0.0).faults
    assert (fault.partition, fault.offset) == (path.name, 6)
    assert source.poll(0.0).faults == []
    assert source.lag() == {}
    append(path, b"b\nc\nd\n")
    batch = source.poll(0.0)
    assert (values(batch), batch.faults) == ([b"d"], [])


def test_a_file_that_was_cut_and_goes_on_otherwise_is_read_from_the_next_line(tmp_path: Path) -> None:
    path = file_in(tmp_path, 1)
    append(path, b"aaaa\n")
    source = opened(tmp_path)
    source.poll(0.0)
    path.write_bytes(b"")
    assert len(source.poll(0.0).faults) == 1
    append(path, b"a longer line\nnext\n")
    batch = source.poll(0.0)
    assert [fault.offset for fault in batch.faults] == [5]
    assert [(record.value, record.offset) for record in batch.records] == [(b"next", 14)]


def test_a_stored_position_inside_of_a_line_goes_on_at_the_next(tmp_path: Path) -> None:
    path = file_in(tmp_path, 1)
    append(path, b"first\nsecond\n")
    batch = opened(tmp_path, {path.name: 3}).poll(0.0)
    assert values(batch) == [b"second"]
    assert [fault.offset for fault in batch.faults] == [3]


def test_a_stored_position_beyond_the_end_waits_for_the_file(tmp_path: Path) -> None:
    path = file_in(tmp_path, 1)
    append(path, b"a\n")
    source = opened(tmp_path, {path.name: 4})
    assert [fault.offset for fault in source.poll(0.0).faults] == [4]
    append(path, b"b\nc\n")
    assert values(source.poll(0.0)) == [b"c"]


def test_a_removed_file_is_a_fault_if_something_in_it_was_not_read(tmp_path: Path) -> None:
    read, unread = file_in(tmp_path, 1), file_in(tmp_path, 2)
    append(read, b"a\n")
    append(unread, b"b\nunfinished")
    source = opened(tmp_path)
    source.poll(0.0)
    read.unlink()
    unread.unlink()
    batch = source.poll(0.0)
    assert list(batch.faults) == [SourceFault(unread.name, 2, "the file was removed with 10 bytes unread")]
    assert batch.revoked == ()
    assert source.poll(0.0) == Batch([], [], [], caught_up=True)


def test_a_file_that_cannot_be_read_is_told_once_and_stops_nobody(tmp_path: Path) -> None:
    broken = file_in(tmp_path, 1)
    broken.mkdir(parents=True)  # opening a folder fails for every user, root included
    append(file_in(tmp_path, 2), b"fine\n")
    source = opened(tmp_path)
    batch = source.poll(0.0)
    assert values(batch) == [b"fine"]
    assert [fault.partition for fault in batch.faults] == [broken.name]
    assert not batch.caught_up
    assert source.poll(0.0).faults == []


def test_a_spool_that_cannot_be_listed_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / spool.RECORDS).write_text("a file is in the way", encoding="utf-8")
    with pytest.raises(SourceUnavailable, match="cannot be listed"):
        opened(tmp_path).poll(0.0)


class TestCleaning:
    def test_what_is_stored_and_old_is_deleted(self, tmp_path: Path) -> None:
        now = 1_000_000.0
        source = SpoolSource(tmp_path, keep_seconds=3600.0, clock=lambda: now, wait=lambda seconds: None)
        source.open(MemoryPositions())
        paths = {name: file_in(tmp_path, number) for number, name in enumerate(["old", "fresh", "partly", "unfinished"], 1)}
        for name, path in paths.items():
            append(path, b"a\nb\n" + (b"tail" if name == "unfinished" else b""))
            os.utime(path, (now, now if name == "fresh" else now - 7200))
        source.poll(0.0)
        source.committed({path.name: 2 if name == "partly" else 4 for name, path in paths.items()})
        assert {name for name, path in paths.items() if path.exists()} == {"fresh", "partly", "unfinished"}
        assert source.poll(0.0) == Batch([], [], [], caught_up=True)

    def test_what_was_stored_before_a_restart_is_deleted_too(self, tmp_path: Path) -> None:
        now = 1_000_000.0
        source = SpoolSource(tmp_path, keep_seconds=3600.0, clock=lambda: now, wait=lambda seconds: None)
        paths = {name: file_in(tmp_path, number) for number, name in enumerate(["stored", "partly", "unread"], 1)}
        for path in paths.values():
            append(path, b"a\nb\n")
            os.utime(path, (now - 7200, now - 7200))
        source.open(MemoryPositions({paths["stored"].name: 4, paths["partly"].name: 2}))
        source.poll(0.0)
        source.committed({})
        assert {name for name, path in paths.items() if path.exists()} == {"partly", "unread"}

    def test_nothing_is_deleted_without_being_asked_for(self, tmp_path: Path) -> None:
        path = file_in(tmp_path, 1)
        append(path, b"a\n")
        os.utime(path, (0, 0))
        source = opened(tmp_path)
        source.poll(0.0)
        source.committed({path.name: 2})
        assert path.exists()


CONTENT = st.lists(st.one_of(st.binary(max_size=12), st.just(b"\n"), st.binary(min_size=40, max_size=60)), max_size=20)


@given(pieces=CONTENT, chunk=st.integers(1, 50), max_lines=st.integers(1, 4))
def test_any_growth_in_any_pieces_gives_the_lines_of_the_whole(
    pieces: list[bytes], chunk: int, max_lines: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Against the standard library's split, for every way in which a file may grow between reads; the limit is 30 bytes."""
    path = tmp_path_factory.mktemp("growth") / "file"
    path.touch()
    before, lines.CHUNK = lines.CHUNK, chunk  # type: ignore[misc]
    try:
        reader = LineReader(path, 0, limit=30)
        got: list[tuple[int, bytes]] = []
        skipped: list[int] = []
        whole = b""
        for piece in [*pieces, b""]:
            append(path, piece)
            whole += piece
            for _ in range(len(whole) + 3):
                found, problem = reader.read(max_lines)
                got += found
                if problem is not None:
                    skipped.append(problem.offset)
                elif not found:
                    break
        assert reader.at_end
    finally:
        lines.CHUNK = before  # type: ignore[misc]
    expected: list[tuple[int, bytes]] = []
    expected_skipped: list[int] = []
    offset = 0
    for line in whole.split(b"\n")[:-1]:
        if len(line) > 30:
            expected_skipped.append(offset)
        else:
            expected.append((offset, line))
        offset += len(line) + 1
    assert got == expected
    assert skipped == expected_skipped

"""The bounded queues of the client: in memory (handoff) and in files (segments), and the two together."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin.handoff import Entry, Handoff
from tocsin.transports import Message
from tocsin.transports.backlog import Backlog
from tocsin.transports.segments import READ_ATTEMPTS, Segments

SIZE = 50


def message(number: int, keep: bool = False) -> Message:
    kind = b"run" if keep else b"step"
    value = b'{"run":"r","time":%d,"kind":"%s"' % (number, kind)
    return Message("r", value + b" " * (SIZE - 2 - len(value)) + b"}", float(number), keep)


def entry(number: int, keep: bool = False) -> Entry[Message]:
    return Entry(number, message(number, keep), SIZE, keep)


def times(entries: list[Entry[Message]]) -> list[float]:
    return [found.item.time for found in entries]


def test_handoff_is_first_in_first_out() -> None:
    queue: Handoff[int] = Handoff(10, 1000)
    assert [queue.put(number, 1) for number in range(10)] == [0] * 10
    assert (len(queue), queue.bytes) == (10, 10)
    assert queue.take() == list(range(10))
    assert (len(queue), queue.bytes, queue.take()) == (0, 0, [])


@pytest.mark.parametrize(("items", "size"), [(3, 10_000), (10_000, 30)])
def test_handoff_drops_the_oldest_steps_and_nothing_else(items: int, size: int) -> None:
    queue: Handoff[str] = Handoff(items, size)
    assert queue.put("run", 10, keep=True) == 0
    assert sum(queue.put(f"step {number}", 10) for number in range(10)) == 8
    assert queue.put("end", 10, keep=True) == 0
    assert queue.take() == ["run", "step 8", "step 9", "end"]


def test_handoff_of_kept_items_alone_grows() -> None:
    queue: Handoff[int] = Handoff(2, 10)
    assert [queue.put(number, 10, keep=True) for number in range(5)] == [0] * 5
    assert queue.put(5, 10) == 1, "a step that fits nowhere goes at once"
    assert queue.take() == [0, 1, 2, 3, 4]


def test_handoff_peek_and_done() -> None:
    queue: Handoff[int] = Handoff(100, 1000)
    for number in range(10):
        queue.put(number, 10)
    assert [found.item for found in queue.peek(3, 1000)] == [0, 1, 2]
    assert [found.item for found in queue.peek(100, 45)] == [0, 1, 2, 3]
    assert [found.item for found in queue.peek(100, 1)] == [0], "at least one"
    assert queue.done(queue.peek(4, 1000)[-1].number) == 4
    assert queue.done(0) == 0
    assert (queue.take(), queue.bytes) == ([4, 5, 6, 7, 8, 9], 0)


def test_handoff_pops_the_oldest_and_frees_its_room() -> None:
    queue: Handoff[int] = Handoff(3, 30)
    assert queue.pop() is None
    queue.put(0, 0, keep=True)
    for item in range(1, 5):
        queue.put(item, 10)
    popped = [entry.item for entry in iter(queue.pop, None)]
    assert popped == [0, 3, 4], "kept entries first, then what is left of the others"
    assert (len(queue), queue.bytes) == (0, 0)
    assert queue.put(5, 30) == 0


def test_handoff_may_be_entered_again_from_a_signal_handler() -> None:
    """A handler that logs may interrupt `put` on its own thread; a plain lock would wait for itself for ever."""
    queue: Handoff[int] = Handoff(10, 100)
    with queue._lock:  # noqa: SLF001 - as if interrupted inside
        queue.put(1, 1)
    assert queue.take() == [1]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=40), st.integers(1, 8), st.integers(1, 100))
def test_handoff_keeps_its_limits_and_the_order(items: list[tuple[int, bool]], most: int, room: int) -> None:
    queue: Handoff[int] = Handoff(most, room)
    dropped = sum(queue.put(number, size, keep) for number, (size, keep) in enumerate(items))
    steps = [number for number, (_, keep) in enumerate(items) if not keep]
    left = queue.take()
    assert left == sorted(left)
    assert len(left) + dropped == len(items)
    assert [number for number in left if items[number][1]] == [number for number, (_, keep) in enumerate(items) if keep]
    kept = [number for number in left if not items[number][1]]
    assert kept == steps[len(steps) - len(kept) :], "of the steps, the newest stay"
    if kept:
        assert len(kept) <= most
        assert sum(items[number][0] for number in kept) <= room


def test_segments_in_order_over_many_files(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "r", max_bytes=10**6, segment_bytes=5 * SIZE)
    for number in range(23):
        segments.append([entry(number)])
    assert len(list(tmp_path.glob("*/records/*.jsonl"))) == 5
    found = []
    while entries := segments.peek(2, 10**6):
        found += times(entries)
        segments.done(entries[-1].number)
    assert found == list(range(23))
    assert len(segments) == 0
    assert not list(tmp_path.iterdir())
    segments.append([entry(23)])
    assert times(segments.peek(10, 10**6)) == [23]
    segments.close()


def test_segments_drop_the_oldest_steps_and_keep_run_records(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "r", max_bytes=12 * SIZE, segment_bytes=5 * SIZE)
    dropped = sum(segments.append([entry(number, keep=number == 1)]) for number in range(30))
    found = []
    while entries := segments.peek(100, 10**6):
        found += times(entries)
        segments.done(entries[-1].number)
    assert found[0] == 1
    assert found[1:] == list(range(31 - len(found), 30))
    assert dropped == 30 - len(found)
    assert 8 <= len(found) <= 12
    assert len(segments) == 0
    segments.close()


def test_dropping_while_the_oldest_are_under_way(tmp_path: Path) -> None:
    segments = Segments(tmp_path, "r", max_bytes=6 * SIZE, segment_bytes=3 * SIZE)
    segments.append([entry(number) for number in range(3)])
    under_way = segments.peek(3, 10**6)
    segments.append([entry(number) for number in range(3, 6)])
    assert segments.append([entry(6)]) == 3
    assert segments.done(under_way[-1].number) == 0, "they were dropped meanwhile; newer ones are not touched"
    assert times(segments.peek(10, 10**6)) == [3, 4, 5]
    segments.close()


def leave(root: Path, *numbers: int, tail: bytes = b"") -> Path:
    """What a process that died leaves behind."""
    segments = Segments(root, "r", max_bytes=10**6)
    segments.append([entry(number, keep=number == 0) for number in numbers])
    segments.close()
    path = max(root.glob("*/records/*.jsonl"))
    with path.open("ab") as file:
        file.write(tail)
    return path


def test_adoption_of_what_dead_processes_left(tmp_path: Path) -> None:
    leave(tmp_path, 0, 1, 2, tail=message(9).value[:20])
    leave(tmp_path, 3, 4, tail=b"{damaged\n" + message(9).value + b"\n")
    (tmp_path / "stray").mkdir()
    (tmp_path / "file").write_text("")
    segments = Segments(tmp_path, "r", max_bytes=10**6)
    segments.append([entry(5)])
    assert segments.adopt() == 5
    assert segments.adopt() == 0
    assert len(segments) == 6
    found: list[Entry[Message]] = []
    while entries := segments.peek(2, 10**6):
        found += entries
        segments.done(entries[-1].number)
    assert times(found) == [0, 1, 2, 3, 4, 5]
    assert [one.keep for one in found] == [True, False, False, False, False, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "stray"]


def test_a_living_process_is_not_robbed(tmp_path: Path) -> None:
    living = Segments(tmp_path, "r", max_bytes=10**6)
    living.append([entry(1)])
    other = Segments(tmp_path, "r", max_bytes=10**6)
    assert other.adopt() == 0
    living.close()
    assert other.adopt() == 1
    other.close()


def test_a_segment_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    backlog = Backlog(tmp_path, "r", segment_bytes=2 * SIZE)
    for number in range(4):
        backlog.append([message(number)])
        backlog.spill()
    sorted(tmp_path.glob("*/records/*.jsonl"))[0].unlink()
    assert times(backlog.peek(10, 10**6)) == [2, 3]
    assert backlog.dropped == {"spool_unreadable": 2}
    assert backlog.errors == 1
    backlog.close()


@pytest.mark.parametrize("failures", [1, READ_ATTEMPTS - 1, READ_ATTEMPTS])
def test_what_cannot_be_read_for_a_while_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """A job that is out of descriptors, a network disk that is away: the records are there, and wait."""
    backlog = Backlog(tmp_path, "t", segment_bytes=5 * SIZE)
    for number in range(20):
        backlog.append([message(number)])
        backlog.spill()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, mode="r": _fail(OSError(errno.EMFILE, "too many open files")))
        for _ in range(min(failures, READ_ATTEMPTS - 1)):
            with pytest.raises(OSError, match="too many"):
                backlog.peek(100, 10_000)
        assert (len(backlog), backlog.dropped) == (20, {})
        if failures == READ_ATTEMPTS:
            with pytest.raises(OSError, match="too many"):
                backlog.peek(100, 10_000)
    lost = 5 if failures == READ_ATTEMPTS else 0
    assert times(backlog.peek(100, 10_000)) == [float(number) for number in range(lost, lost + 5)]
    assert backlog.dropped == ({"spool_unreadable": 5} if lost else {})
    assert backlog.errors == failures + (failures == READ_ATTEMPTS)


def _fail(error: OSError) -> NoReturn:
    raise error


def test_backlog_takes_from_disk_before_memory(tmp_path: Path) -> None:
    backlog = Backlog(tmp_path, "r")
    backlog.append([message(0), message(1)])
    assert not list(tmp_path.iterdir()), "a healthy job writes nothing"
    assert backlog.spill()
    backlog.append([message(2)])
    assert (len(backlog), backlog.in_memory, backlog.spooled) == (3, 1, 2)
    under_way = backlog.peek(10, 10**6)
    assert times(under_way) == [0, 1]
    assert backlog.spill()
    assert backlog.done(under_way[0].number) == 1
    assert times(backlog.peek(10, 10**6)) == [1, 2]
    backlog.close()


def test_memory_that_fills_goes_to_disk_by_itself(tmp_path: Path) -> None:
    backlog = Backlog(tmp_path, "r", memory_bytes=10 * SIZE)
    backlog.append([message(number) for number in range(100)])
    assert backlog.dropped == {}
    assert backlog.in_memory <= 10
    found = []
    while entries := backlog.peek(7, 10**6):
        found += times(entries)
        backlog.done(entries[-1].number)
    assert found == list(range(100))
    backlog.close()


def test_a_late_confirmation_touches_no_file_that_was_let_go(tmp_path: Path) -> None:
    backlog = Backlog(tmp_path, "r")
    backlog.append([message(0), message(1)])
    under_way = backlog.peek(10, 10**6)
    backlog.close()
    assert backlog.done(under_way[-1].number) == 0
    heir = Backlog(tmp_path, "r")
    assert heir.adopt() == 2
    assert times(heir.peek(10, 10**6)) == [0, 1]
    heir.close()


def test_without_a_disk_the_oldest_steps_go(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for folder in (None, blocked / "fallback"):
        backlog = Backlog(folder, "r", memory_bytes=10 * SIZE)
        backlog.append([message(0, keep=True), *[message(number) for number in range(1, 100)]])
        assert not backlog.spill()
        assert times(backlog.peek(100, 10**6)) == [0, *range(91, 100)]
        assert backlog.dropped == {"memory_full": 90}
        backlog.close()
        assert backlog.dropped == {"memory_full": 100}

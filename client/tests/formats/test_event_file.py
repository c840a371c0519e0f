"""The framing of event files: growth at every byte, damage at every byte, and real writers."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import events
from tocsin.formats import event_file
from tocsin.formats.event_file import Frame, begins_like_one, frames

FRAMES = [
    events.begin(1.0),
    *(events.scalar("train/loss", value, step, 5.0) for step, value in enumerate((0.5, float("nan"), 2.0))),
]
DATA = b"".join(FRAMES)
ENDS = [sum(map(len, FRAMES[: count + 1])) for count in range(len(FRAMES))]


def read(data: bytes, offset: int = 0, *, complete: bool = False) -> list[Frame]:
    file = io.BytesIO(data)
    file.seek(offset)
    return list(frames(file, offset, complete=complete))


def test_each_frame_has_its_place() -> None:
    found = read(DATA)
    assert [frame.next_offset for frame in found] == ENDS
    assert [frame.offset for frame in found] == [0, *ENDS[:-1]]
    assert [DATA[frame.offset + 12 : frame.next_offset - 4] for frame in found] == [frame.event for frame in found]
    assert read(DATA, ENDS[1]) == found[2:]


def test_what_is_not_whole_is_waited_for() -> None:
    for cut in range(len(DATA)):
        found = read(DATA[:cut])
        assert [frame.next_offset for frame in found] == [end for end in ENDS if end <= cut], cut
        assert all(not frame.error for frame in found)
        place = found[-1].next_offset if found else 0
        assert found + read(DATA, place) == read(DATA), cut


def test_what_is_cut_off_for_good_is_one_place() -> None:
    for cut in set(range(1, len(DATA))).difference(ENDS):
        last = read(DATA[:cut], complete=True)[-1]
        assert (last.event, last.next_offset) == (b"", cut)
        assert last.error == f"the last {cut - last.offset} bytes are no whole event"


def test_damage_costs_the_event_it_is_in() -> None:
    whole = read(DATA)
    for place in range(ENDS[-2]):
        damaged = bytes([*DATA[:place], DATA[place] ^ 0x41, *DATA[place + 1 :]])
        hit = next(index for index, end in enumerate(ENDS) if place < end)
        found = read(damaged)
        assert [frame for frame in found if not frame.error] == [*whole[:hit], *whole[hit + 1 :]], place
        bad = [frame for frame in found if frame.error]
        assert bad == [whole[hit]._replace(event=b"", error=f"{len(FRAMES[hit])} damaged bytes")], place


def test_damage_at_the_end_may_be_content_that_is_still_to_come() -> None:
    """Network file systems show the length of a file before its content."""
    for place in range(ENDS[-2], ENDS[-1]):
        unwritten = DATA[:place] + bytes(len(DATA) - place)
        if unwritten != DATA:
            assert [frame.next_offset for frame in read(unwritten)] == ENDS[:-1], place
            assert read(unwritten, complete=True)[-1].error
    assert read(DATA, ENDS[-2]) == read(DATA)[-1:]


@given(st.lists(st.one_of(st.sampled_from(FRAMES), st.binary(max_size=40)), max_size=8), st.integers(1, 50))
def test_garbage_between_whole_frames_loses_none(parts: list[bytes], chunk: int) -> None:
    data = b"".join(parts) + FRAMES[1]

    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(chunk, size or 0))

    found = list(frames(Dripping(data), 0, complete=True))
    whole = [frame[12:-4] for frame in [*parts, FRAMES[1]] if frame in FRAMES]
    assert [frame.event for frame in found if not frame.error] == whole
    assert sum(frame.next_offset - frame.offset for frame in found) == len(data)


def test_an_event_over_the_limit_is_passed_over_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MAX_EVENT_BYTES", 100)
    monkeypatch.setattr(event_file, "_CHUNK", 64)
    large = events.scalar("x" * 200, 1.0, 1, 5.0)
    found = read(FRAMES[1] + large + FRAMES[2])
    assert [bool(frame.error) for frame in found] == [False, True, False]
    assert found[1].error == f"an event of {len(large) - 16} bytes, the limit is 100"
    assert found[1].next_offset == len(FRAMES[1]) + len(large)
    assert [frame.next_offset for frame in read(FRAMES[1] + large[:-20])] == [len(FRAMES[1])]


def _torch(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        writer.add_scalar("a", 0.5, 1)


def _tensorboard_x(folder: Path) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        writer.add_scalar("a", 0.5, 1)


def _tensorboard(folder: Path) -> None:
    from tensorboard.summary import Writer
    from tensorboard.summary._output import DirectoryOutput

    writer = Writer(DirectoryOutput(str(folder)))
    writer.add_scalar("a", 0.5, step=1)
    writer.close()


@pytest.mark.parametrize("write", [_torch, _tensorboard_x, _tensorboard])
def test_real_writers_are_recognised(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    (path,) = tmp_path.iterdir()
    assert begins_like_one(path.read_bytes()[:64])
    assert [frame.error for frame in read(path.read_bytes(), complete=True)] == ["", ""]


@pytest.mark.parametrize("beginning", [b"", b"\x18", DATA[:20], b"{'loss': 1}\n" * 5, bytes(64), DATA[1:]])
def test_other_beginnings_are_none(beginning: bytes) -> None:
    assert not begins_like_one(beginning)

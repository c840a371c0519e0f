"""The spool's layout and the stop requests in it: the contract with every reader in the collector."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import control, spool
from tocsin.control import ControlError, StopRequest

STOP = StopRequest(
    run="grpo/7b:042",
    id="logprob-gap-stop/grpo-7b-042/1",
    rule="logprob-gap-stop",
    step=1234,
    reason="Engines disagree: mean |dlogp| 0.031 nats (stop line 0.01)",
    action="checkpoint_and_stop",
    requested_at=1790000123.4,
    expires_at=1790000723.4,
)


def test_names() -> None:
    assert spool.record_file_name("grpo/7b:042", 5, 42, "0a1b2c") == "00000000000000000005-grpo_7b_042-42-0a1b2c.jsonl"
    assert spool.control_path(Path("s"), "grpo/7b:042") == Path("s/control/grpo_7b_042-da162b2b.json")


@given(st.text(min_size=1, max_size=200))
def test_any_run_id_makes_a_safe_name(run: str) -> None:
    name = spool.record_file_name(run, 1, 1, "abcdef")
    assert spool.is_record_file(name)
    assert os.path.basename(name) == name
    assert len(name) < 200
    assert not spool.slug(run).startswith(".")
    assert spool.control_path(Path("s"), run).name.isascii()


def test_runs_with_equal_slugs_have_control_files_of_their_own() -> None:
    assert spool.slug("a/b") == spool.slug("a:b")
    assert spool.control_path(Path("s"), "a/b") != spool.control_path(Path("s"), "a:b")


def test_record_files_in_order_and_strangers_left_out(tmp_path: Path) -> None:
    assert spool.record_files(tmp_path) == []
    folder = tmp_path / "records"
    folder.mkdir()
    names = [spool.record_file_name("r", created, 1, "abcdef") for created in (10**18, 9, 10)]
    for name in [*names, "notes.txt", ".hidden.jsonl", "00000000000000000001-r-1-abcdef.jsonl.tmp"]:
        (folder / name).write_text("")
    assert [path.name for path in spool.record_files(tmp_path)] == [names[1], names[2], names[0]]


def test_writer_begins_a_new_file_after_the_limit(tmp_path: Path) -> None:
    writer = spool.SpoolWriter(tmp_path, "r", max_file_bytes=10)
    for number in range(5):
        writer.append([b"abc%d" % number])
    writer.append([])
    writer.close()
    writer.close()
    assert [path.read_bytes() for path in spool.record_files(tmp_path)] == [b"abc0\nabc1\n", b"abc2\nabc3\n", b"abc4\n"]
    writer.append([b"later"])
    writer.close()
    assert spool.record_files(tmp_path)[-1].read_bytes() == b"later\n"


def test_a_file_that_was_cleaned_up_during_a_pause_is_not_written_on(tmp_path: Path) -> None:
    writer = spool.SpoolWriter(tmp_path, "r")
    writer.append([b"{1}"])
    (old,) = spool.record_files(tmp_path)
    old.unlink()
    writer.append([b"{2}"])
    writer.close()
    (new,) = spool.record_files(tmp_path)
    assert new != old and new.read_bytes() == b"{2}\n"


@pytest.mark.parametrize("truncate_fails", [False, True])
def test_a_disk_that_fills_in_the_middle_of_a_batch_leaves_no_half_line(
    truncate_fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = spool.SpoolWriter(tmp_path, "r")
    writer.append([b"first"])
    real, room = os.write, [7]

    def full(fd: int, data: bytes | memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(fd, data[: room[0]])
        room[0] -= written
        return written

    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "write", full)
    if truncate_fails:
        monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="No space"):
        writer.append([b"second", b"third"])
    monkeypatch.undo()
    writer.append([b"second", b"third"])
    writer.close()
    complete = [line for path in spool.record_files(tmp_path) for line in path.read_bytes().split(b"\n")[:-1]]
    # Where the half batch could not be taken back, its whole lines are there twice: a duplicate, never a glued line.
    assert complete == [b"first", *([b"second"] if truncate_fails else []), b"second", b"third"]


def test_control_round_trip(tmp_path: Path) -> None:
    assert spool.read_control(tmp_path, STOP.run) is None
    path = spool.write_control(tmp_path, STOP)
    assert path == spool.control_path(tmp_path, STOP.run)
    assert spool.read_control(tmp_path, STOP.run) == STOP
    spool.write_control(tmp_path, msgspec.structs.replace(STOP, id="2"))
    newer = spool.read_control(tmp_path, STOP.run)
    assert newer is not None
    assert newer.id == "2"
    assert [found.name for found in path.parent.iterdir()] == [path.name], "nothing temporary stays"


def test_a_failed_replacement_leaves_the_old_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = spool.write_control(tmp_path, STOP)

    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EACCES, "refused")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="refused"):
        spool.write_control(tmp_path, STOP)
    assert spool.read_control(tmp_path, STOP.run) == STOP
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_stranger_in_the_control_file(tmp_path: Path) -> None:
    path = spool.write_control(tmp_path, STOP)
    path.write_bytes(control.encode(msgspec.structs.replace(STOP, run="another")))
    assert spool.read_control(tmp_path, STOP.run) is None
    path.write_bytes(b"{")
    with pytest.raises(ControlError):
        spool.read_control(tmp_path, STOP.run)


def test_the_wire_form_of_a_request() -> None:
    assert control.encode(STOP) == (
        b'{"kind":"stop","run":"grpo/7b:042","id":"logprob-gap-stop/grpo-7b-042/1","rule":"logprob-gap-stop","step":1234,'
        b'"reason":"Engines disagree: mean |dlogp| 0.031 nats (stop line 0.01)","action":"checkpoint_and_stop",'
        b'"requested_at":1790000123.4,"expires_at":1790000723.4,"attempt":0,"v":1}'
    )
    assert control.decode(control.encode(STOP).replace(b'"attempt":0,', b"")) == STOP, "as collectors before it wrote it"
    assert control.decode(control.encode(STOP)) == STOP
    assert control.decode(control.encode(STOP)[:-1] + b',"new":[1]}') == STOP


@pytest.mark.parametrize(
    "value",
    [
        b"", b"[]", b"{}", b"null", b"\xff", b"[" * 50_000, b" " * 70_000,
        control.encode(STOP).replace(b'"v":1', b'"v":2'),
        control.encode(STOP).replace(b"checkpoint_and_stop", b"reboot"),
        control.encode(STOP).replace(b'"kind":"stop"', b'"kind":"go"'),
        control.encode(STOP).replace(b'"id":"logprob-gap-stop/grpo-7b-042/1"', b'"id":""'),
        control.encode(STOP).replace(b"1790000723.4", b"null"),
    ],
)  # fmt: skip
def test_no_request(value: bytes) -> None:
    with pytest.raises(ControlError):
        control.decode(value)


@given(st.binary(max_size=200))
def test_any_bytes(value: bytes) -> None:
    with pytest.raises(ControlError):
        control.decode(value)


def test_expiry() -> None:
    assert not control.expired(STOP, 1790000723.3)
    assert control.expired(STOP, 1790000723.4)
    assert control.expired(msgspec.structs.replace(STOP, expires_at=float("nan")), 0.0)

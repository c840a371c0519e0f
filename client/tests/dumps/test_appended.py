"""Following dumps that grow: shards, repeated rows, steps that are complete, late, begun twice, or written by another start."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import dump_following, dumps
from tocsin import wire
from tocsin.dumps.stepwise import GRACE_SECONDS
from tocsin.formats import Parsed
from tocsin.wire import StepRecord

CONFIG = {"filter_zero_std_samples": False}


class Following(dump_following.Following):
    """A follower of open-instruct's shards, or of another appended dump, and what its trainer writes."""

    def __init__(self, path: Path, state: Path, name: str = "open-instruct-rollouts", **how: Any) -> None:
        super().__init__(path, state, name, config=CONFIG, **how)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, rows: Sequence[Mapping[str, Any]], shard: int = 0, run: str = "a__1__1700000000") -> Path:
        return dumps.write(self.path / f"{run}_rollouts_{shard:06d}.jsonl", rows, append=True)

    def step(self, step: int, *, seed: int = 0, shard: int = 0, run: str = "a__1__1700000000") -> None:
        self.append(dumps.open_instruct_rows(dumps.make(step, seed=seed), step), shard, run)


def steps_of(records: Sequence[wire.Record]) -> list[StepRecord]:
    return [record for record in records if isinstance(record, StepRecord)]


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Following]:
    with Following(tmp_path / "rollouts", tmp_path / "state") as following:
        yield following


def test_a_step_is_complete_when_the_next_one_begins_or_nothing_comes(shards: Following) -> None:
    assert shards.look() == []
    shards.step(1)
    assert shards.look() == []
    shards.step(2)
    assert shards.look() == ["run 1", "1:1"]
    assert shards.look() == []
    shards.now += GRACE_SECONDS
    assert shards.look() == ["1:2"]
    assert shards.looks() == []


def test_a_group_may_be_split_across_shards_and_looks(shards: Following) -> None:
    made = dumps.make(1)
    rows = dumps.open_instruct_rows(made, 1)
    shards.append(rows[:6])
    assert shards.look() == []
    shards.append(rows[6:7])
    shards.append(rows[7:], shard=1)
    assert shards.look() == []
    shards.start()
    assert shards.looks() == ["run 1", "1:1"]
    truth = dumps.rewards(made, scale=10.0)
    for name, value in truth.items():
        assert steps_of(shards.records)[0].metrics[name] == pytest.approx(value), name


def test_half_a_row_is_waited_for(shards: Following) -> None:
    path = shards.append(dumps.open_instruct_rows(dumps.make(1), 1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert shards.look() == []
    path.write_bytes(whole)
    assert shards.looks() == ["run 1", "1:1"]
    groups = steps_of(shards.records)[0].groups
    assert groups is not None and groups.success == [0, 4, 2, 2]


def test_a_row_that_stays_half_is_counted_when_the_next_shard_is_there(shards: Following) -> None:
    path = shards.append(dumps.open_instruct_rows(dumps.make(1), 1))
    path.write_bytes(path.read_bytes()[:-30])
    shards.step(2, shard=1)
    told = shards.looks()
    assert told[0].startswith(f"{path.name}, row 16: not JSON") and told[1:] == ["run 1", "1:1", "1:2"]


def test_late_rows_are_counted_with_their_place_and_left_out(shards: Following) -> None:
    shards.step(1)
    assert shards.looks() == ["run 1", "1:1"]
    late = {**dumps.open_instruct_rows(dumps.make(1), 1)[0], "sample_idx": 99}
    path = shards.append([late])
    assert shards.looks() == [f"{path.name}, row 17: a sample of step 1, which was sent already"]
    shards.start()
    shards.step(2)
    assert shards.looks() == ["1:2"]


def test_a_start_of_the_trainer_that_goes_back_is_a_new_attempt(shards: Following) -> None:
    for step in (1, 2, 3):
        shards.step(step)
    assert shards.looks() == ["run 1", "1:1", "1:2", "1:3"]
    for step in (3, 4):
        shards.step(step, seed=1)
    shards.start()
    assert shards.looks() == ["run 2", "2:3", "2:4"]
    shards.step(2, seed=2)
    assert shards.looks() == ["run 3", "3:2"]


def test_a_step_begun_twice_counts_from_its_second_beginning(shards: Following) -> None:
    shards.step(1)
    shards.append(dumps.open_instruct_rows(dumps.make(2, seed=5), 2)[:5])  # the trainer died here
    shards.step(2)
    assert shards.looks() == ["run 1", "1:1", "run 2", "2:2"]
    assert len(shards.notes) == 1 and "second beginning" in shards.notes[0]
    groups = steps_of(shards.records)[1].groups
    assert groups is not None and groups.success == [0, 4, 2, 2]


def test_shards_of_another_run_are_a_new_attempt_and_other_files_are_none(shards: Following) -> None:
    for step in (1, 2):
        shards.step(step)
    shards.append([{"run_name": "a"}], run="x")
    (shards.path / "x_rollouts_000000.jsonl").rename(shards.path / "a__1__1700000000_metadata.jsonl")
    shards.step(9, run="a__1__1700000000_filtered")
    dumps.write(shards.path / "a__1__1700000000_trainer_logprobs_step000001.jsonl", [{"step": 1, "trainer_logprobs": [-0.1]}])
    for step in (2, 3):
        shards.step(step, seed=1, run="a__1__1700009999")
    assert shards.looks() == ["run 1", "1:1", "1:2", "run 2", "2:2", "2:3"]


def test_a_file_begun_anew_is_a_new_attempt(shards: Following) -> None:
    for step in (1, 2, 3):
        shards.step(step)
    shards.looks()
    (shards.path / "a__1__1700000000_rollouts_000000.jsonl").unlink()
    shards.step(1, seed=1)
    assert shards.looks() == ["run 2", "2:1"]
    shards.start()
    (shards.path / "a__1__1700000000_rollouts_000000.jsonl").unlink()
    shards.step(1, seed=2)
    assert shards.looks() == ["run 3", "3:1"]


def test_a_last_look_takes_what_is_there_and_a_later_one_takes_it_whole(shards: Following) -> None:
    rows = dumps.open_instruct_rows(dumps.make(1), 1)
    shards.append(rows[:8])
    assert shards.looks(last=True)[:2] == ["run 1", "1:1"]
    shards.append(rows[8:])
    shards.start()
    assert shards.looks()[:2] == ["run 1", "1:1"]
    groups = steps_of(shards.records)[-1].groups
    assert groups is not None and len(groups.prompt) == 4


def test_from_the_end(tmp_path: Path) -> None:
    with Following(tmp_path / "rollouts", tmp_path / "state", from_end=True) as following:
        following.step(1)
        following.step(2)
        assert following.looks() == []
        following.step(3)
        assert following.looks() == ["run 1", "1:3"]


def test_nothing_there(tmp_path: Path) -> None:
    following = Following(tmp_path / "none", tmp_path / "state")
    assert following.look() == []
    with pytest.raises(FileNotFoundError, match="no open-instruct-rollouts"):
        following.look(last=True)


@pytest.fixture
def swift(tmp_path: Path) -> Iterator[Following]:
    with Following(tmp_path / "completions.jsonl", tmp_path / "state", "ms-swift-completions") as following:
        yield following


def test_ms_swift_a_row_that_repeats_its_samples_is_no_step(swift: Following) -> None:
    made = dumps.make(1)
    dumps.write(swift.path, [dumps.swift_row(made, 1), dumps.swift_row(made, 2), dumps.swift_row(dumps.make(3), 3)])
    assert swift.looks() == ["run 1", "1:1", "1:3"]
    swift.start()
    dumps.write(swift.path, [dumps.swift_row(dumps.make(3), 4), dumps.swift_row(dumps.make(5), 5)], append=True)
    assert swift.looks() == ["1:5"]
    assert set(swift.notes) == {"rows that repeat the last row's samples are left out: nothing new was generated"}


def test_ms_swift_one_row_may_hold_several_steps(swift: Following) -> None:
    first, second = dumps.swift_row(dumps.make(1), 1), dumps.swift_row(dumps.make(2), 2)
    both = {key: [*first[key], *second[key]] for key in first}
    dumps.write(swift.path, [both, dumps.swift_row(dumps.make(3), 3)])
    assert swift.look() == ["run 1", "1:1"]
    swift.start()
    assert swift.looks() == ["1:2", "1:3"]
    sizes = [len(record.groups.prompt) for record in steps_of(swift.records) if record.groups is not None]
    assert sizes == [4, 4, 4]


def test_ms_swift_the_same_step_again_is_a_new_attempt(swift: Following) -> None:
    dumps.write(swift.path, [dumps.swift_row(dumps.make(step), step) for step in (10, 20)])
    assert swift.looks() == ["run 1", "1:10", "1:20"]
    dumps.write(swift.path, [dumps.swift_row(dumps.make(20, seed=1), 20)], append=True)
    swift.start()
    assert swift.looks() == ["run 2", "2:20"]


WORK = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4000)),
        st.tuples(st.just("look"), st.integers(0, 1)),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    max_size=25,
)


def _whole(step_count: int) -> tuple[bytes, bytes]:
    """Two shards: steps go on over the border, with a bad row and a restart in the second."""
    rows = [row for step in range(1, step_count) for row in dumps.open_instruct_rows(dumps.make(step, prompts=2), step)]
    again = [row for step in (2, 3) for row in dumps.open_instruct_rows(dumps.make(step, prompts=2, seed=1), step)]
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    cut = len(lines) // 2 + 3
    return b"".join(lines[:cut]), b"".join(lines[cut:]) + b"{bad\n" + b"".join(
        json.dumps(row).encode() + b"\n" for row in again
    )


SHARDS = _whole(5)


@settings(max_examples=30)
@given(WORK)
def test_killed_anywhere_the_same_records_arrive(work: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder, Following(Path(folder) / "d", Path(folder) / "state") as following:
        following.path.mkdir()
        names = [following.path / f"run_rollouts_{shard:06d}.jsonl" for shard in (0, 1)]
        written = 0
        data = b"".join(SHARDS)
        for what, amount in [*work, ("write", len(data)), ("kill", 0)]:
            if what == "write":
                for path, begin, part in zip(names, (0, len(SHARDS[0])), SHARDS, strict=True):
                    piece = part[max(0, written - begin) : max(0, written + amount - begin)]
                    if piece:
                        with path.open("ab") as file:
                            file.write(piece)
                written += amount
            elif what == "look":
                following.look(keep=bool(amount))
                if not amount and following.source is not None:
                    following.source.rewind()
            else:
                following.start()
        following.looks()
        with Following(following.path, Path(folder) / "other") as undisturbed:
            undisturbed.looks()
        assert _distinct(following.records) == _distinct(undisturbed.records)
        sent = [dump_following.short(Parsed(0, 0, record)) for record in undisturbed.records]
        assert sent == ["run 1", "1:1", "1:2", "1:3", "1:4", "run 2", "2:2", "2:3"]


def _distinct(records: Sequence[wire.Record]) -> list[bytes]:
    return list(dict.fromkeys(wire.encode(msgspec.structs.replace(record, time=0.0)) for record in records))


@settings(max_examples=40)
@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b"{}", b'{"step": 1}', b"null"])), max_size=8))
def test_any_bytes_are_counted_and_cost_only_themselves(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder, Following(Path(folder) / "d", Path(folder) / "state") as following:
        path = following.append(dumps.open_instruct_rows(dumps.make(1), 1))
        noise = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
        path.write_bytes(b"".join(line + b"\n" for line in noise) + path.read_bytes())
        told = following.looks()
        assert told[-2:] == ["run 1", "1:1"]
        assert len(told) - 2 == sum(1 for line in noise if line.strip())


def test_removed_shards_are_no_loss(shards: Following) -> None:
    shards.step(1)
    shards.append(dumps.open_instruct_rows(dumps.make(2), 2)[:6])
    assert shards.look() == ["run 1", "1:1"]
    shards.append(dumps.open_instruct_rows(dumps.make(2), 2)[6:])
    shards.step(3, shard=1)
    (shards.path / "a__1__1700000000_rollouts_000000.jsonl").unlink()
    assert shards.look() == ["1:2"]
    shards.start()
    shards.step(4, shard=2)
    (shards.path / "a__1__1700000000_rollouts_000001.jsonl").unlink()
    assert shards.looks() == ["1:4"], "step 3 was removed before anyone read it"


def test_other_bytes_in_place_are_a_new_attempt(shards: Following) -> None:
    for step in (1, 2):
        shards.step(step)
    shards.looks()
    path = shards.path / "a__1__1700000000_rollouts_000000.jsonl"
    rows = [row for step in (1, 2, 3) for row in dumps.open_instruct_rows(dumps.make(step, seed=1), step)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert shards.looks() == ["run 2", "2:1", "2:2", "2:3"]


def test_a_step_waits_longer_for_the_rest_of_a_half_row(shards: Following) -> None:
    path = shards.append(dumps.open_instruct_rows(dumps.make(1), 1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    shards.look()
    for _ in range(3):
        shards.now += GRACE_SECONDS
        assert shards.look() == []
    path.write_bytes(whole)
    assert shards.look() == []
    assert shards.looks() == ["run 1", "1:1"]

"""Following folders with a file per step: what is complete, what is new, and what a restart of the trainer means."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import dump_following, dumps
from tocsin import wire
from tocsin.dumps import DUMPS
from tocsin.dumps.layout import verl_units
from tocsin.dumps.rows import Row, file_rows
from tocsin.dumps.stepwise import GRACE_SECONDS, TORN_SECONDS, Stepwise
from tocsin.wire import StepRecord


class Following(dump_following.Following):
    """A follower of a verl folder, or of another one with a file per step, and what its trainer writes."""

    def __init__(self, path: Path, state: Path, name: str = "verl-rollouts", **how: Any) -> None:
        self.writes = 0
        super().__init__(path, state, name, **how)

    def write(self, step: int, *, seed: int = 0, rows: int | None = None, text: str | None = None) -> Path:
        """Write a step as verl does; each write is a second later than the one before."""
        path = self.path / f"{step}.jsonl"
        made = dumps.verl_rows(dumps.make(step, seed=seed), step)
        if text is None:
            dumps.write(path, made[:rows])
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.touch(path)
        return path

    def touch(self, path: Path) -> None:
        self.writes += 1
        os.utime(path, ns=(self.writes * 10**9, self.writes * 10**9))


@pytest.fixture
def verl(tmp_path: Path) -> Following:
    return Following(tmp_path / "rollouts", tmp_path / "state")


def test_a_step_is_complete_when_the_next_one_is_there(verl: Following) -> None:
    assert verl.look() == []
    verl.write(1)
    assert verl.look() == []
    verl.write(2)
    assert verl.look() == ["run 1", "1:1"]
    assert verl.look() == []


def test_or_when_it_has_not_changed_for_the_grace_time(verl: Following) -> None:
    verl.write(1, rows=3)
    assert verl.look() == []
    verl.now += GRACE_SECONDS - 0.1
    verl.write(1)
    assert verl.look() == []
    verl.now += GRACE_SECONDS - 0.1
    assert verl.look() == []
    verl.now += 0.2
    assert verl.look() == ["run 1", "1:1"]
    assert verl.looks() == []


def test_a_torn_file_waits_longer_and_its_last_line_is_counted(verl: Following) -> None:
    path = verl.write(1)
    path.write_text(path.read_text()[:-20])
    verl.touch(path)
    verl.look()
    verl.now += TORN_SECONDS - 1
    assert verl.look() == []
    verl.now += 1
    error, *records = verl.look()
    assert error.startswith("1.jsonl, row 16: not JSON") and records == ["run 1", "1:1"]


def test_what_was_not_complete_after_all_is_sent_again_in_the_same_attempt(verl: Following) -> None:
    verl.write(1, rows=3)
    assert verl.looks() == ["run 1", "1:1"]
    verl.write(1)
    assert verl.looks() == ["1:1"]
    verl.start()
    assert verl.looks() == []
    first, second = (record for record in verl.records if isinstance(record, StepRecord))
    assert first.groups is not None and second.groups is not None and len(second.groups.prompt) == 4
    assert verl.notes == ["a step had not been complete, and was sent again"]


def test_a_step_written_anew_is_a_new_attempt(verl: Following) -> None:
    for step in (1, 2, 3, 4, 5):
        verl.write(step)
    assert verl.looks() == ["run 1", "1:1", "1:2", "1:3", "1:4", "1:5"]
    verl.start()
    verl.write(3, seed=1)
    assert verl.looks() == ["run 2", "2:3"]
    verl.write(4, seed=1)
    verl.write(5, seed=1)
    verl.start()
    assert verl.looks() == ["2:4", "2:5"]
    verl.write(6, seed=1)
    assert verl.looks() == ["2:6"]


def test_the_last_step_written_anew_is_a_new_attempt(verl: Following) -> None:
    for step in (1, 2):
        verl.write(step)
    verl.looks()
    verl.write(2, seed=1)
    verl.write(3, seed=1)
    assert verl.looks() == ["run 2", "2:2", "2:3"]


def test_what_the_old_attempt_left_comes_before_what_the_new_one_wrote(verl: Following) -> None:
    for step in (1, 2, 3):
        verl.write(step)
    verl.looks()
    for step in (4, 5):
        verl.write(step)
    for step in (3, 4):
        verl.write(step, seed=1)
    # Nobody looked meanwhile: step 5 is the old attempt's, step 4 was written anew before it was read.
    assert verl.looks() == ["1:5", "run 2", "2:3", "2:4"]


def test_a_copied_or_touched_folder_says_nothing_new(verl: Following) -> None:
    for step in (1, 2, 3):
        verl.write(step)
    verl.looks()
    copy = verl.path.with_name("copy")
    shutil.copytree(verl.path, copy)
    shutil.rmtree(verl.path)
    copy.rename(verl.path)
    for path in reversed(sorted(verl.path.iterdir())):
        verl.touch(path)
    assert verl.looks() == []
    verl.write(4)
    assert verl.looks() == ["1:4"]


def test_rows_that_come_late_to_an_older_step_open_no_attempt(verl: Following) -> None:
    for step in (1, 2, 3):
        verl.write(step)
    verl.looks()
    with (verl.path / "1.jsonl").open("a") as file:
        file.write("{}\n")
    verl.touch(verl.path / "1.jsonl")
    assert verl.looks() == []
    verl.write(4)
    assert verl.looks() == ["1:4"]


def test_a_restart_further_back_than_is_remembered(verl: Following) -> None:
    row = '{"input": "p", "output": "a", "score": 1.0}\n'
    for step in range(1, 21):
        verl.write(step, text=row)
    remember_little(verl)
    assert verl.looks()[-1] == "1:20"
    verl.start()
    remember_little(verl)
    assert verl.looks() == []
    verl.write(3, seed=1)
    assert verl.looks() == ["run 2", "2:3"]
    verl.write(4, seed=1)
    assert verl.looks() == ["2:4"]


def remember_little(following: Following) -> None:
    following.source = Stepwise(following.path, DUMPS[following.name], verl_units, following.reading, remembered=8)


def test_steps_without_a_readable_sample_say_so_and_the_rest_goes_on(verl: Following) -> None:
    verl.write(1)
    verl.write(2, text="not json\n\n[3]\n{}\n")
    verl.write(3, text="")
    verl.write(4)
    told = verl.looks()
    assert told[:2] == ["run 1", "1:1"] and told[-1] == "1:4"
    places = ["2.jsonl, row 1", "2.jsonl, row 3", "2.jsonl, row 4", "2.jsonl, row 0", "3.jsonl, row 0"]
    assert [text.partition(":")[0] for text in told[2:7]] == places
    assert told[4] == "2.jsonl, row 4: no input" and told[6].endswith("step 3 has no readable sample")


def test_a_last_look_takes_what_is_there_and_a_later_one_takes_it_whole(verl: Following) -> None:
    path = verl.write(1)
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert verl.looks(last=True)[1:3] == ["run 1", "1:1"]
    verl.start()
    path.write_text(whole)
    verl.write(2)
    assert verl.looks(last=True) == ["run 1", "1:1", "1:2"]


def test_a_last_look_at_nothing_is_an_error(tmp_path: Path) -> None:
    following = Following(tmp_path / "none", tmp_path / "state")
    with pytest.raises(FileNotFoundError):
        following.look(last=True)
    following.path.mkdir()
    with pytest.raises(FileNotFoundError, match="no steps of verl-rollouts"):
        following.look(last=True)


def test_from_the_end(tmp_path: Path) -> None:
    following = Following(tmp_path / "rollouts", tmp_path / "state", from_end=True)
    for step in (1, 2):
        following.write(step)
    assert following.looks() == []
    following.write(3)
    assert following.looks() == ["run 1", "1:3"]


def test_dropped_records_are_read_again(verl: Following) -> None:
    for step in (1, 2):
        verl.write(step)
    assert verl.look(keep=False) == ["run 1", "1:1"]
    verl.source.rewind()
    assert verl.looks() == ["run 1", "1:1", "1:2"]
    assert wire.encode(verl.records[1]) == wire.encode(verl.records[3])


def test_records_are_dated_by_the_file_and_the_same_when_read_again(verl: Following) -> None:
    verl.write(1)
    verl.looks()
    verl.state.unlink()
    verl.now += 1000
    verl.start()
    verl.looks()
    first, second = verl.records[:2], verl.records[2:]
    assert [wire.encode(record) for record in first] == [wire.encode(record) for record in second]
    assert first[1].time == 1.0


def test_a_bookmark_of_another_version_starts_over(verl: Following) -> None:
    verl.write(1)
    verl.looks()
    text = verl.state.read_text().replace('"position"', '"place"')
    verl.state.write_text(text)
    verl.start()
    assert verl.looks() == ["run 1", "1:1"]


def nemo(following: Following, folder: str, step: int, seed: int = 0) -> None:
    path = following.path / folder / f"train_data_step{step}.jsonl"
    following.touch(dumps.write(path, dumps.nemo_rows(dumps.make(step, seed=seed))))


def test_nemo_a_start_of_the_trainer_that_goes_back_is_an_attempt(tmp_path: Path) -> None:
    following = Following(tmp_path / "logs", tmp_path / "state", "nemo-samples")
    for step in (1, 2, 3):
        nemo(following, "exp_001", step)
    assert following.looks() == ["run 1", "1:1", "1:2", "1:3"]
    nemo(following, "exp_001", 4)
    for step in (3, 4):
        nemo(following, "exp_002", step, seed=1)
    following.start()
    assert following.looks() == ["1:4", "run 2", "2:3", "2:4"]
    nemo(following, "exp_010", 5, seed=2)  # went on where it stopped
    assert following.looks() == ["2:5"]
    nemo(following, "exp_010", 6, seed=2)
    shutil.rmtree(following.path / "exp_001")
    assert following.looks() == ["2:6"]
    nemo(following, "exp_011", 6, seed=3)
    following.start()
    assert following.looks() == ["run 3", "3:6"]


def test_nemo_one_attempts_folder_alone(tmp_path: Path) -> None:
    following = Following(tmp_path / "logs" / "exp_002", tmp_path / "state", "nemo-samples")
    for step in (3, 4):
        nemo(following, "", step)
    assert following.looks() == ["run 1", "1:3", "1:4"]


def test_areal_a_version_is_complete_when_two_later_ones_are_there(tmp_path: Path) -> None:
    following = Following(tmp_path / "rollout", tmp_path / "state", "areal-trajectories")
    dumps.write_areal(following.path, 0, dumps.make(0))
    dumps.write_areal(following.path, 1, dumps.make(1, prompts=1))
    assert following.look() == []
    dumps.write_areal(following.path, 0, dumps.make(0, first=8))  # the last of version 0, after the first of version 1
    dumps.write_areal(following.path, 2, dumps.make(2))
    assert following.look() == ["run 1", "1:0"]
    record = following.records[1]
    assert isinstance(record, StepRecord) and record.groups is not None
    assert following.looks() == ["1:1", "1:2"]
    dumps.write_areal(following.path, 1, dumps.make(1, first=8))
    assert following.looks() == []


def test_trl_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional: only TRL's parquet dumps need it")
    arrow = pytest.importorskip("pyarrow", reason="as above")
    config = {"reward_weights": [1.0, 0.0]}
    following = Following(tmp_path / "completions", tmp_path / "state", "trl-completions", config=config)
    following.path.mkdir()

    def write(step: int, row: dict[str, Any]) -> None:
        row = {("advantage" if key == "advantages" else key): value for key, value in row.items() if key != "entropy"}
        path = following.path / f"completions_{step:05d}.parquet"
        parquet.write_table(arrow.table({**row, "step": [str(step)] * len(row["step"])}), path)
        following.touch(path)

    write(10, dumps.swift_row(dumps.make(10), 10))
    write(20, dumps.swift_row(dumps.make(20), 20))
    write(30, dumps.swift_row(dumps.make(20), 30))
    (following.path / "completions_00040.parquet").write_bytes(b"PAR1half")
    told = following.looks()
    assert told[:3] == ["run 1", "1:10", "1:20"] and len(told) == 5
    assert told[3].startswith("completions_00040.parquet, row 1") and told[4].endswith("step 40 has no readable sample")
    assert any("nothing new was generated" in note for note in following.notes)
    record = following.records[1]
    assert isinstance(record, StepRecord)
    assert record.metrics["zero_variance_group_ratio"] == pytest.approx(0.5)


WORK = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 6)),
        st.tuples(st.just("back"), st.integers(1, 3)),
        st.tuples(st.just("look"), st.integers(0, 1)),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=30)
@given(WORK)
def test_killed_anywhere_all_steps_arrive_once_written_and_the_last_attempt_is_whole(work: list[tuple[str, int]]) -> None:
    """Whatever is killed when, what was written last for each step arrives; if nothing went back, in order, in one attempt."""
    with tempfile.TemporaryDirectory() as folder:
        following = Following(Path(folder) / "rollouts", Path(folder) / "state")
        step, seed, back = 0, 0, False
        written: dict[int, int] = {}
        sent: list[StepRecord] = []
        for what, amount in [*work, ("write", 1), ("kill", 0)]:
            if what == "write":
                for _ in range(amount):
                    step += 1
                    following.write(step, seed=seed)
                    written[step] = seed
            elif what == "back" and step:
                step, seed, back = max(0, step - amount), seed + 1, True
            elif what == "look":
                following.look(keep=bool(amount))
                if not amount:
                    following.source.rewind()
            elif what == "kill":
                following.start()
        following.looks(last=True)
        sent = [record for record in following.records if isinstance(record, StepRecord)]
        latest = {record.step: record for record in sent}
        assert set(latest) == set(written)
        for number, record in latest.items():
            truth = dumps.characters(dumps.make(number, seed=written[number]))
            assert record.metrics["response_chars_mean"] == pytest.approx(truth["response_chars_mean"])
        if not back:
            distinct = list(dict.fromkeys(wire.encode(record) for record in following.records))
            assert [wire.decode(value).record.attempt for value in distinct] == [1] * len(distinct)
            steps = [one.step for value in distinct if isinstance(one := wire.decode(value).record, StepRecord)]
            assert steps == sorted(set(steps))


GARBAGE = st.lists(
    st.one_of(st.binary(max_size=60), st.sampled_from([b"{}", b'{"score": NaN}', b"[1]", b"\xff\xfe"])), max_size=8
)


@settings(max_examples=30)
@given(GARBAGE, st.sampled_from(["verl-rollouts", "nemo-samples"]), st.booleans())
def test_any_bytes_are_counted_and_cost_only_themselves(lines: list[bytes], name: str, torn: bool) -> None:
    """Garbage before and behind a good step's rows: each line is told with its place, the step is measured."""
    with tempfile.TemporaryDirectory() as folder:
        following = Following(Path(folder) / "d", Path(folder) / "state", name)
        made = dumps.make(1)
        good = dumps.verl_rows(made, 1) if name == "verl-rollouts" else dumps.nemo_rows(made)
        path = following.path / ("1.jsonl" if name == "verl-rollouts" else "train_data_step1.jsonl")
        dumps.write(path, good)
        noise = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
        path.write_bytes(b"".join(line + b"\n" for line in noise) + path.read_bytes() + (b'{"torn' if torn else b""))
        told = following.looks(last=True)
        assert told[-2:] == ["run 1", "1:1"]
        usable = [line for line in noise if line.strip()]
        assert len(told) - 2 == len(usable) + torn
        assert all(", row " in text for text in told[:-2])


def test_the_reader_of_a_step_is_bounded(tmp_path: Path, big_dump: Callable[[Path], int]) -> None:
    """Rows are read one by one, four bytes are held per number, and measuring them makes no copies of all of them."""
    import tracemalloc

    following = Following(tmp_path / "logs", tmp_path / "state", "nemo-samples")
    tokens = big_dump(following.path / "train_data_step1.jsonl")
    assert isinstance(following.source, Stepwise)
    following.looks(last=True)  # imports and first-time costs
    following.state.unlink()
    following.start()
    tracemalloc.start()
    try:
        following.looks(last=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 12 * tokens


@pytest.fixture
def big_dump() -> Callable[[Path], int]:
    """Writes one; gives its trained tokens."""

    def write(path: Path) -> int:
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            for line in dumps.endless_nemo_rows(128, 4096):
                file.write(line)
        return 128 * (4096 - 8)

    return write


def test_a_step_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    following = Following(tmp_path / "rollouts", tmp_path / "state")
    following.write(1, rows=5)
    following.write(2)
    rewrites: list[Path] = []

    def rows(path: Path) -> Iterator[Row]:
        yield from file_rows(path)
        if not rewrites:
            rewrites.append(following.write(1))

    dump = dataclasses.replace(DUMPS["verl-rollouts"], rows=rows)
    following.source = Stepwise(following.path, dump, verl_units, following.reading)
    assert following.looks() == ["run 1", "1:1", "1:2"]
    first = following.records[1]
    assert isinstance(first, StepRecord) and first.groups is not None and len(first.groups.prompt) == 4


def test_a_file_system_that_tells_old_sizes(tmp_path: Path) -> None:
    """NFS caches attributes for up to a minute; opening a file brings the present ones."""
    following = Following(tmp_path / "rollouts", tmp_path / "state")
    following.write(1, rows=5)
    (old,) = verl_units(following.path)
    following.write(1)
    units = [old]
    following.source = Stepwise(following.path, DUMPS["verl-rollouts"], lambda path, taken: list(units), following.reading)
    assert following.looks() == []
    units[:] = verl_units(following.path)
    assert following.looks() == ["run 1", "1:1"]


def test_files_from_before_1970_are_dated_now(verl: Following) -> None:
    os.utime(verl.write(1), ns=(-(10**9), -(10**9)))
    verl.looks()
    assert all(record.time >= 1000.0 for record in verl.records)

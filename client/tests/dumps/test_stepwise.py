"""Following folders with a file per step: what is complete, what is new, and what a restart of the trainer means."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kit.stepwise import Following
from tocsin import wire
from tocsin.dumps import DUMPS
from tocsin.dumps.layout import verl_units
from tocsin.dumps.stepwise import GRACE_SECONDS, TORN_SECONDS, Stepwise
from tocsin.wire import StepRecord


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


def test_files_from_before_1970_are_dated_now(verl: Following) -> None:
    os.utime(verl.write(1), ns=(-(10**9), -(10**9)))
    verl.looks()
    assert all(record.time >= 1000.0 for record in verl.records)

"""Following trainer_state.json, which is rewritten as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tocsin.formats import Parsed
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.document import REMEMBERED, Document, newest
from tocsin.ship.follow import Follower
from tocsin.ship.source import Reading
from tocsin.wire import EndRecord, RunRecord, StepRecord

Row = dict[str, object]


class Follow:
    """A Document and its bookmark; `start` is a new process."""

    def __init__(self, path: Path, state: Path, *, from_end: bool = False) -> None:
        self.path, self.state, self.from_end = path, state, from_end
        self.saves = 0
        self.start()

    def start(self) -> Follow:
        reading = Reading(to="x", run="r", bookmarks=Bookmarks(self.state), key="k", clock=lambda: 5.0, from_end=self.from_end)
        self.reading, self.document = reading, Document(self.path, "trainer-state", reading)
        return self

    def save(self, rows: Sequence[Row], path: Path | None = None, **more: object) -> None:
        """Write the state as the Trainer does."""
        target = path or self.path
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_text(json.dumps({"log_history": list(rows), **more}))
        self.saves += 1
        os.utime(target, ns=(self.saves * 10**9, self.saves * 10**9))

    def poll(self, *, last: bool = False) -> list[str]:
        """What one look brings, in short."""
        batch = self.document.poll(last)
        if batch.bookmark is not None:
            self.reading.bookmarks.put("k", batch.bookmark)
        return [short(parsed) for parsed in batch.parsed]


def short(parsed: Parsed) -> str:
    record = parsed.record
    if isinstance(record, StepRecord):
        return f"{record.attempt}:{record.step}"
    if isinstance(record, RunRecord):
        return f"run {record.attempt}"
    return f"end {record.attempt}:{record.step}" if isinstance(record, EndRecord) else parsed.error


def rows(*steps: int, value: float = 0.5) -> list[Row]:
    return [{"loss": value, "step": step} for step in steps]


def test_only_new_rows_are_sent(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    assert follow.poll() == []
    follow.save(rows(10, 20))
    assert follow.poll() == ["run 1", "1:10", "1:20"]
    assert follow.poll() == []
    follow.save(rows(10, 20, 30))
    assert follow.poll() == ["1:30"]
    follow.save(rows(10, 20, 30, 40))
    assert follow.start().poll() == ["1:40"]
    assert follow.start().poll() == []


def test_a_half_written_state_waits_for_its_next_change(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    follow.path.write_text('{"log_history": [{"loss": 1.0, "st')
    assert follow.poll() == []
    assert len(follow.poll(last=True)) == 1
    assert follow.poll(last=True) == []
    follow.save(rows(10))
    assert follow.poll() == ["run 1", "1:10"]


def test_training_that_went_back_to_a_checkpoint_is_a_new_attempt(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    follow.save(rows(10, 20, 30, 40))
    follow.poll()
    follow.save([*rows(10, 20), *rows(30, value=0.75)])
    assert follow.start().poll() == ["run 2", "2:30"]
    follow.save([*rows(10, 20), *rows(30, 40, 50, value=0.75)])
    assert follow.poll() == ["2:40", "2:50"]
    # Found only when it is past the old place: the content tells.
    follow.save([*rows(10, 20), *rows(30, value=0.75), *rows(40, 50, 60, value=0.25)])
    assert follow.poll() == ["run 3", "3:40", "3:50", "3:60"]
    assert follow.poll() == []


def test_an_older_state_says_nothing_new(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    follow.save(rows(10, 20, 30))
    follow.poll()
    follow.save(rows(10, 20))
    assert follow.poll() == []
    follow.save(rows(10, 20, 30, 40))
    assert follow.poll() == ["1:40"]


def test_an_evaluation_that_joins_the_last_row_sends_it_again(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    follow.save(rows(10, 20))
    follow.poll()
    follow.save([*rows(10, 20), {"eval_loss": 0.1, "step": 20}])
    assert follow.poll() == ["1:20"]
    assert follow.start().poll() == []


def test_the_end_is_told_once_and_an_evaluation_after_it_opens_nothing(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    follow.save(rows(10, 20), max_steps=20, global_step=20)
    assert follow.poll() == ["run 1", "1:10", "1:20", "end 1:20"]
    follow.save(
        [*rows(10, 20), {"eval_loss": 0.1, "step": 20}, {"eval_loss": 0.1, "step": 21}, {"train_runtime": 3.0, "step": 21}]
    )
    assert follow.poll() == []
    assert follow.start().poll() == []
    follow.save([*rows(10, 20, 30)], max_steps=40, global_step=30)
    assert follow.poll() == ["run 2", "2:30"]


def test_the_newest_checkpoint_of_an_output_folder(tmp_path: Path) -> None:
    folder = tmp_path / "output"
    folder.mkdir()
    follow = Follow(folder, tmp_path / "s")
    assert newest(folder) is None
    assert follow.poll() == []
    follow.save(rows(10), folder / "checkpoint-10" / "trainer_state.json")
    assert follow.poll() == ["run 1", "1:10"]
    follow.save(rows(10, 20), folder / "checkpoint-20" / "trainer_state.json")
    follow.save(rows(10, 20, 30), folder / "checkpoint-30" / "trainer_state.json")
    assert follow.poll() == ["1:20", "1:30"]
    follow.save([*rows(10, 20, 30), {"train_runtime": 1.0, "step": 30}], folder / "trainer_state.json")
    assert follow.start().poll() == ["end 1:30"]


def test_rows_that_are_none_are_told_once(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    follow.save([{"loss": 1.0}, *rows(10)])
    assert follow.poll() == ["run 1", "1:10", "log_history[0] has no step"]
    follow.save([{"loss": 1.0}, *rows(10, 20), {"loss": 2.0}])
    assert follow.start().poll() == ["1:20", "log_history[3] has no step"]


def test_steps_that_repeat_in_one_history_do_not_begin_attempts_at_every_look(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    history = [*rows(10, 20), *rows(10, 20, value=0.75)]
    follow.save(history)
    assert follow.poll() == ["run 1", "1:10", "1:20"]
    follow.save([*history, *rows(30)])
    assert follow.poll() == ["1:30"]


def test_memory_of_sent_rows_is_bounded(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    count = REMEMBERED + 500
    follow.save(rows(*range(1, count)))
    assert len(follow.poll()) == count
    follow.save(rows(*range(1, count + 1)))
    assert follow.start().poll() == [f"1:{count}"]


def test_from_the_end(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s", from_end=True)
    follow.save(rows(10, 20))
    assert follow.poll() == ["run 1"]
    follow.save(rows(10, 20, 30))
    assert follow.poll() == ["1:30"]


def test_rewind_reads_again_from_the_bookmark(tmp_path: Path) -> None:
    follow = Follow(tmp_path / "trainer_state.json", tmp_path / "s")
    follow.save(rows(10))
    follow.poll()
    follow.save(rows(10, 20))
    assert [short(parsed) for parsed in follow.document.poll(False).parsed] == ["1:20"]
    follow.document.rewind()
    assert follow.poll() == ["1:20"]


def test_the_newest_state_of_rolls_output_folder(tmp_path: Path) -> None:
    """Told from the folder alone; a checkpoint that is being written is waited for; training that goes back is an attempt."""
    folder = tmp_path / "output"
    folder.mkdir()

    def states(step: int) -> Path:
        return folder / "pipeline" / f"checkpoint-{step}" / "pipeline" / "worker_state_pipeline.json"

    def history(*steps: int, value: float = 0.5) -> list[Row]:
        return [{"actor_train/grad_norm@mean": value, "system/step": step} for step in steps]

    writer = Follow(folder, tmp_path / "s")
    reading = Reading(to="x", run="r", bookmarks=Bookmarks(tmp_path / "s"), key="k", clock=lambda: 5.0)
    follower = Follower(folder, "auto", reading)
    assert follower.poll(last=False).parsed == ()
    writer.save(history(0, 1, 2), states(2), step=2)
    assert [short(parsed) for parsed in follower.poll(last=False).parsed] == ["run 1", "1:0", "1:1", "1:2"]
    assert follower.format == "roll-state"
    writer.save(history(0, 1, 2, 3, 4), states(4), step=4)
    states(4).write_text(states(4).read_text()[:-9])
    assert follower.poll(last=False).parsed == ()
    writer.save(history(0, 1, 2, 3, 4), states(4), step=4)
    places = follower.poll(last=False).parsed
    assert [short(parsed) for parsed in places] == ["1:3", "1:4"]
    assert [parsed.record.names for parsed in places if isinstance(parsed.record, StepRecord)] == ["roll", "roll"]
    writer.save([*history(0, 1, 2), *history(3, 4, 5, 6, value=0.75)], states(6), step=6)
    assert [short(parsed) for parsed in follower.poll(last=False).parsed] == ["run 2", "2:3", "2:4", "2:5", "2:6"]
    follower.close()

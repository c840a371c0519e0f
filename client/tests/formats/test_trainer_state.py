"""trainer_state.json."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tocsin.formats import Parsed, detect, read_records
from tocsin.formats.trainer_state import read_history
from tocsin.wire import EndRecord, StepRecord


def write(path: Path, history: list[object], **more: object) -> Path:
    path.write_text(json.dumps({"log_history": history, **more}, indent=2))
    return path


def steps(places: list[Parsed]) -> list[StepRecord]:
    return [place.record for place in places if isinstance(place.record, StepRecord)]


def test_rows_evaluations_and_the_end(tmp_path: Path) -> None:
    path = write(
        tmp_path / "trainer_state.json",
        [
            {"loss": 0.5, "grad_norm": float("nan"), "kl": None, "epoch": 0.1, "step": 10},
            {"eval_loss": 0.4, "epoch": 0.1, "step": 10},
            {"loss": 0.25, "epoch": 0.2, "step": 20},
            {"eval_loss": 0.3, "epoch": 0.25, "step": 25},
            {"train_runtime": 9.0, "train_loss": 0.1, "step": 25},
        ],
        max_steps=100,
        global_step=25,
    )
    assert detect(path) == "trainer-state"
    places = list(read_records(path, run="r"))
    first, second, third = steps(places)
    assert math.isnan(first.metrics.pop("grad_norm"))
    assert first.metrics == {"loss": 0.5, "kl": None, "epoch": 0.1, "eval_loss": 0.4}
    assert (first.step, second.step, third.step) == (10, 20, 25)
    assert third.metrics == {"eval_loss": 0.3, "epoch": 0.25}
    assert [(place.offset, place.next_offset) for place in places] == [(0, 0), (0, 2), (2, 3), (3, 4), (5, 5)]
    assert places[-1].record == EndRecord(run="r", time=180.0, step=25)


def test_the_run_time_in_every_row_ends_nothing(tmp_path: Path) -> None:
    """As transformers writes it with include_num_input_tokens_seen."""
    timed = {"loss": 0.5, "train_runtime": 9.0, "train_tokens_per_second": 5.0}
    rows: list[object] = [{**timed, "step": 10}, {**timed, "step": 20}, {"train_runtime": 19.0, "train_loss": 0.5, "step": 20}]
    places = list(read_records(write(tmp_path / "s.json", rows, max_steps=100, global_step=20), run="r"))
    assert [record.step for record in steps(places)] == [10, 20]
    assert isinstance(places[-1].record, EndRecord)


@pytest.mark.parametrize(("done", "ended"), [(249, False), (250, True)])
def test_all_planned_steps_done_is_an_end(tmp_path: Path, done: int, ended: bool) -> None:
    path = write(tmp_path / "s.json", [{"loss": 1.0, "step": done}], max_steps=250, global_step=done)
    assert isinstance(list(read_records(path))[-1].record, EndRecord) is ended


def test_no_plan_is_no_end(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", [{"loss": 1.0, "step": 3}], max_steps=-1, global_step=3)
    assert not isinstance(list(read_records(path))[-1].record, EndRecord)


def test_rows_that_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", ["x", {"loss": 1.0}, {"loss": 1.0, "step": -1}, {"loss": 1.0, "step": 4}])
    places = list(read_records(path))
    assert [place.error for place in places if place.record is None] == [
        "log_history[0] is no object",
        "log_history[1] has no step",
        "log_history[2] has no step",
    ]
    assert [record.step for record in steps(places)] == [4]


def test_a_document_that_is_none_is_one_unreadable_place(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"log_history": [{"loss": 1.0, "st')
    (place,) = read_records(path, "trainer-state")
    assert place.record is None
    for text in ("", "3", '{"log_history": 3}', "[" * 200_000):
        with pytest.raises(ValueError, match=r"."):
            read_history(text.encode())


def test_history_that_goes_back_is_two_attempts(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", [{"loss": 1.0, "step": step} for step in (10, 20, 10, 20)])
    assert [(record.attempt, record.step) for record in steps(list(read_records(path)))] == [(1, 10), (1, 20), (2, 10), (2, 20)]


def test_the_history_alone() -> None:
    """As a script saves it: a list. It does not say how many steps were planned, but its summary ends the run."""
    history = read_history(b'[{"loss": NaN, "step": 3}, {"eval_loss": 0.5, "step": 3}, {"train_runtime": 1.0, "step": 3}]')
    assert [(row.step, sorted(row.metrics)) for row in history.rows] == [(3, ["eval_loss", "loss"])]
    assert history.ended
    assert read_history(b"[]") == ([], [], 0, False)

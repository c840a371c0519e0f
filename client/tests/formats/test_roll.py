"""ROLL's console, and the state it keeps beside a checkpoint."""

from __future__ import annotations

import json
import math

import pytest

from tocsin.formats import FORMATS, Parsed
from tocsin.formats.base import Parser
from tocsin.formats.roll import REMEMBERED
from tocsin.wire import RunRecord, StepRecord

CONSOLE = FORMATS["roll-console"]


def line(step: int, /, text: str = "[2026-01-01 00:00:00] [tracking.py (99)] [INFO] ", **metrics: float) -> str:
    return f"{text}metrics_tag: {json.dumps({'step': step, 'metrics': {'actor/lr': 1e-06, **metrics}})}"


def feed(parser: Parser, *lines: str) -> list[Parsed]:
    out: list[Parsed] = []
    offset = 0
    for text in lines:
        value = text.encode() + b"\n"
        out += parser.feed(value, offset)
        offset += len(value)
    return [*out, *parser.finish()]


def steps(*lines: str) -> list[tuple[int, int]]:
    places = feed(CONSOLE.parser(run="r"), *lines)
    assert all(place.record is not None for place in places)
    return [(place.record.attempt, place.record.step) for place in places if isinstance(place.record, StepRecord)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("\x1b[36m(RLVRPipeline pid=12)\x1b[0m [INFO] ", "\x1b[0m"),
        ("", "\x1b[32m [repeated 2x across cluster]\x1b[0m"),
    ],
)
def test_a_row(before: str, after: str) -> None:
    run, step = feed(CONSOLE.parser(run="r"), line(12, before, kl=math.nan) + after)
    assert isinstance(run.record, RunRecord)
    assert run.record.labels == {"framework": "roll"}
    assert isinstance(step.record, StepRecord)
    assert (step.record.step, step.record.names, step.record.metrics["actor/lr"]) == (12, "roll", 1e-06)
    assert math.isnan(step.record.metrics["kl"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('metrics_tag: {"step": 1, "metr', "no JSON after metrics_tag"),
        ('metrics_tag: {"step": -1, "metrics": {}}', "step is -1, expected"),
        ('metrics_tag: {"metrics": {}}', "step is None, expected"),
        ('metrics_tag: {"step": 1, "metrics": [1]}', 'expected an object with "step" and "metrics"'),
    ],
)
def test_what_is_no_row(text: str, why: str) -> None:
    (place,) = feed(CONSOLE.parser(run="r"), text)
    assert place.record is None
    assert place.error.startswith(why)


def test_a_resume_that_replays_the_history_is_one_new_attempt_and_no_old_step() -> None:
    """Steps 0 to 9, saved at 6; the job resumes from there in the same console and logs 0 to 6 again before it trains on."""
    first = [line(step, loss=step / 7) for step in range(10)]
    saved = first[6].replace('"loss"', '"time/save": 3.0, "system/step": 6, "loss"')  # ROLL adds to the row when it saves
    replay = [*first[:6], saved]
    second = [line(step, loss=step / 9) for step in range(7, 12)]
    assert steps(*first, *replay, *second) == [*((1, step) for step in range(10)), *((2, step) for step in range(7, 12))]
    third = [line(12, loss=3.0)]
    assert steps(*first, *replay, *second, *replay, *second, *third)[-2:] == [(2, 11), (3, 12)]


def test_a_resume_at_the_newest_step_is_a_new_attempt_too() -> None:
    first = [line(step, loss=step / 7) for step in range(4)]
    assert steps(*first, *first, line(4, loss=1.0)) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 4)]


def test_a_replay_into_a_new_console_is_history() -> None:
    told = "[INFO] resume_from_checkpoint: /models/checkpoint-6"
    replay = [line(step, loss=step / 7) for step in range(7)]
    assert steps("resume_from_checkpoint: true", told, *replay, line(7), line(8)) == [(1, 7), (1, 8)]
    # A job that begins from nothing after that says so by other numbers, not by a checkpoint.
    later = [line(step, loss=9.0 + step) for step in range(9)]
    assert steps(told, *replay, line(7), line(8), *later)[:3] == [(1, 7), (1, 8), (2, 7)]


def test_the_newest_row_twice_is_no_restart() -> None:
    assert steps(line(1), line(2, a=1.0), line(2, a=1.0), line(3)) == [(1, 1), (1, 2), (1, 3)]


def test_training_that_begins_anew_in_the_same_console() -> None:
    first = [line(step, loss=step / 7) for step in range(5)]
    second = [line(step, loss=step / 3 + 1) for step in range(5)]
    assert steps(*first, *second) == [*((1, step) for step in range(5)), *((2, step) for step in range(5))]
    assert steps(*first, *second, *second, line(5))[-1] == (3, 5)


def test_what_was_sent_is_remembered_over_a_restart_of_the_shipper_and_is_bounded() -> None:
    parser = CONSOLE.parser(run="r")
    rows = [line(step, loss=step / 7) for step in range(REMEMBERED + 5)]
    feed(parser, *rows)
    state = json.loads(json.dumps(parser.state()))
    assert len(state["sent"]) == REMEMBERED
    again = CONSOLE.parser(run="r", state=state)
    places = feed(again, *rows[:20], *rows[-20:], line(len(rows)))
    assert [type(place.record).__name__ for place in places] == ["RunRecord", "StepRecord"]


def test_the_state_beside_a_checkpoint() -> None:
    history = [{"actor/lr@mean": 1e-06, "system/step": 0}, {"actor/lr@mean": math.nan, "system/step": 1}, {"x": 1.0}]
    document = json.dumps({"step": 1, "log_history": history, "kv": {}}).encode()
    parser = FORMATS["roll-state"].parser(run="r")
    list(parser.feed(document, 0))
    places = list(parser.finish())
    assert [place.error for place in places if place.record is None] == ["log_history[2] has no system/step"]
    records = [place.record for place in places if isinstance(place.record, StepRecord)]
    assert [(record.step, record.names, sorted(record.metrics)) for record in records] == [
        (0, "roll", ["actor/lr@mean", "system/step"]),
        (1, "roll", ["actor/lr@mean", "system/step"]),
    ]

"""verl's file logger."""

from __future__ import annotations

import json
import math

from tocsin.formats import FORMATS, Parsed
from tocsin.formats.base import Holding
from tocsin.formats.merge import GRACE_SECONDS
from tocsin.wire import RunRecord, StepRecord

FORMAT = FORMATS["verl-jsonl"]


def parse(*lines: str) -> list[Parsed]:
    parser = FORMAT.parser(run="r")
    out: list[Parsed] = []
    offset = 0
    for text in lines:
        line = text.encode() + b"\n"
        out += parser.feed(line, offset)
        offset += len(line)
    return [*out, *parser.finish()]


def test_a_row() -> None:
    line = '{"step": 12, "data": {"actor/grad_norm": 0.81, "actor/lr": 1e-06, "training/global_step": 12, "ok": true}}'
    run, step = parse(line)
    assert run == Parsed(0, 0, RunRecord(run="r", time=0.0, labels={"framework": "verl"}))
    assert step.next_offset == len(line) + 1
    assert step.record == StepRecord(
        run="r",
        step=12,
        time=60.0,
        names="verl",
        metrics={"actor/grad_norm": 0.81, "actor/lr": 1e-06, "training/global_step": 12.0, "ok": 1.0},
    )


def test_null_nan_and_missing_stay_apart() -> None:
    (_, new) = parse('{"step": 1, "data": {"a": null, "b": 0}}')
    (_, old) = parse('{"step": 1, "data": {"a": NaN, "b": Infinity, "c": "0.5", "d": "text", "e": [1]}}')
    assert isinstance(new.record, StepRecord)
    assert new.record.metrics == {"a": None, "b": 0.0}
    assert isinstance(old.record, StepRecord)
    assert math.isnan(old.record.metrics.pop("a"))
    assert old.record.metrics == {"b": math.inf, "c": 0.5}


def test_a_step_that_goes_back_opens_an_attempt_and_an_equal_one_does_not() -> None:
    places = parse(*(json.dumps({"step": step, "data": {"a": 1.0}}) for step in (9, 10, 10, 11, 10, 11)))
    steps = [(place.record.attempt, place.record.step) for place in places if isinstance(place.record, StepRecord)]
    assert steps == [(1, 9), (1, 10), (1, 10), (1, 11), (2, 10), (2, 11)]
    assert [place.record.attempt for place in places if isinstance(place.record, RunRecord)] == [1, 2]


def test_what_is_no_row_is_one_unreadable_place() -> None:
    bad = ['{"step": 1, "data"', "[]", '{"step": 1}', '{"step": -1, "data": {}}', '{"step": 1.5, "data": {}}', "\x00\x00"]
    places = parse(bad[0], "", *bad[1:], '{"step": 2, "data": {"a": 1}}')
    errors = [place for place in places if place.record is None]
    assert [place.value.decode() for place in errors] == bad
    assert all(place.error for place in errors)
    assert isinstance(places[-1].record, StepRecord)


def test_more_metrics_than_the_wire_takes_are_an_unreadable_place() -> None:
    (_, place) = parse(json.dumps({"step": 1, "data": {f"m{i}": 1.0 for i in range(2001)}}))
    assert place.record is None
    assert place.error == "2001 metrics at step 1, the limit is 2000"


def test_a_key_that_is_no_text_is_left_out() -> None:
    (_, place) = parse('{"step": 1, "data": {"\\ud800": 1, "é": NaN}}')
    assert isinstance(place.record, StepRecord)
    assert list(place.record.metrics) == ["é"]


def test_restarted_opens_an_attempt_at_any_step() -> None:
    parser = FORMAT.parser(run="r")
    line = b'{"step": 5, "data": {"a": 1}}\n'
    list(parser.feed(line, 0))
    parser.restarted()
    state = json.loads(json.dumps(parser.state()))
    again = FORMAT.parser(run="r", state=state)
    (run, step) = again.feed(line.replace(b"5", b"6"), 0)
    assert isinstance(run.record, RunRecord)
    assert isinstance(step.record, StepRecord)
    assert step.record.attempt == 2


def test_a_clock_dates_what_has_none() -> None:
    parser = FORMAT.parser(run="r", clock=lambda: 1790000000.5)
    assert {place.record.time for place in parser.feed(b'{"step": 5, "data": {"a": 1}}\n', 0) if place.record} == {1790000000.5}


def test_fully_asynchronous_training_writes_a_step_in_several_rows() -> None:
    """From the first row that shows the mode; rows before it, and those of other modes, are sent at once."""
    parser = FORMAT.parser(run="r")
    assert isinstance(parser, Holding)
    rows: list[tuple[int, dict[str, float]]] = [
        (1, {"timing_s/gen": 1.0}),
        (1, {"actor/grad_norm": 0.5, "fully_async/trainer/idle_ratio": 0.1}),
        (1, {"val-core/gsm8k/acc/mean@1": 0.5}),
        (2, {"timing_s/gen": 2.0}),
        (2, {"actor/grad_norm": 0.25}),
    ]
    out: list[StepRecord] = []
    for offset, (step, data) in enumerate(rows):
        places = parser.feed(json.dumps({"step": step, "data": data}).encode(), offset)
        out += [place.record for place in places if isinstance(place.record, StepRecord)]
    assert list(parser.overdue(5.0)) == []
    out += [place.record for place in parser.overdue(5.0 + GRACE_SECONDS) if isinstance(place.record, StepRecord)]
    assert [(record.step, record.metrics) for record in out] == [
        (1, rows[0][1]),
        (1, rows[1][1] | rows[2][1]),
        (2, rows[3][1] | rows[4][1]),
    ]
    again = FORMAT.parser(run="r", state=parser.state())
    assert list(again.feed(json.dumps({"step": 3, "data": {"a": 1.0}}).encode(), 9)) == []

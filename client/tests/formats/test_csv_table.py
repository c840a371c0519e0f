"""Tables of metrics."""

from __future__ import annotations

import json
import math

from tocsin.formats import FORMATS, Parsed
from tocsin.wire import RunRecord, StepRecord

FORMAT = FORMATS["csv"]


def parse(text: str, run: str = "r") -> list[Parsed]:
    parser = FORMAT.parser(run=run)
    out: list[Parsed] = []
    offset = 0
    for line in text.encode().splitlines(keepends=True):
        out += parser.feed(line, offset)
        offset += len(line)
    return [*out, *parser.finish()]


def steps(text: str) -> list[StepRecord]:
    return [place.record for place in parse(text) if isinstance(place.record, StepRecord)]


def test_cells() -> None:
    (record,) = steps("\ufeffstep,actor_entropy,a,b,c,d,e,training_global_step\r\n1,0.5,,nan,True,text,-inf,1\r\n")
    assert record.names == "verl"
    assert math.isnan(record.metrics.pop("b"))
    assert record.metrics == {"actor_entropy": 0.5, "c": 1.0, "e": -math.inf, "training_global_step": 1.0}


def test_wandb_history_with_its_own_clock_and_a_trainers_step() -> None:
    text = (
        "_step,_timestamp,_runtime,train/global_step,train/loss,train/grad_norm,profiling/x\n"
        "0,1790000000.5,1.0,,,,0.1\n"
        "1,1790000001.5,2.0,10,0.5,0.25,\n"
        "2,1790000002.5,3.0,,,,0.2\n"
        "3,1790000003.5,4.0,20.0,0.25,NaN,\n"
    )
    places = parse(text)
    assert [(record.step, record.time, sorted(record.metrics)) for record in steps(text)] == [
        (10, 1790000001.5, ["train/grad_norm", "train/loss"]),
        (10, 1790000002.5, ["profiling/x"]),
        (20, 1790000003.5, ["train/grad_norm", "train/loss"]),
    ]
    assert isinstance(places[0].record, RunRecord)
    assert places[0].record.time == 1790000001.5
    assert steps(text)[0].names == "trl"


def test_a_chart_export_names_its_runs() -> None:
    text = (
        '"Step","grpo-a - train/reward","grpo-a - train/reward__MIN","grpo-a - train/reward__MAX","grpo - b - train/reward"\n'
        '"1","0.1","0.1","0.1",""\n'
        '"2","0.2","0.2","0.2","0.5"\n'
    )
    assert [(record.run, record.step, record.metrics) for record in steps(text)] == [
        ("grpo-a", 1, {"train/reward": 0.1}),
        ("grpo-a", 2, {"train/reward": 0.2}),
        ("grpo - b", 2, {"train/reward": 0.5}),
    ]


def test_rows_that_are_none() -> None:
    places = parse('step,reward\n1,0.5\n2\n3,0.5,9\nx,1\n-1,1\n"4,1\n\n5,0.5\n')
    assert [place.error for place in places if place.record is None] == [
        "1 cells, the header has 2",
        "3 cells, the header has 2",
        "step is 'x', expected a number of 0 or more",
        "step is '-1', expected a number of 0 or more",
        "no CSV row: unexpected end of data",
    ]
    assert [place.record.step for place in places if isinstance(place.record, StepRecord)] == [1, 5]


def test_a_table_without_a_step_column_is_one_error() -> None:
    places = parse("a,b\n1,2\n3,4\n")
    assert len(places) == 1
    assert places[0].error.startswith("no step column")


def test_a_restart_that_appends_another_header() -> None:
    text = "step,reward,kl\n1,0.5,1\n2,0.5,1\nstep,kl,reward,loss\n2,9,0.25,3\n"
    records = steps(text)
    assert [(record.attempt, record.step) for record in records] == [(1, 1), (1, 2), (1, 2)]
    assert records[-1].metrics == {"kl": 9.0, "reward": 0.25, "loss": 3.0}
    assert [(record.attempt, record.step) for record in steps(text.replace("2,9", "1,9"))][-1] == (2, 1)


def test_state_goes_on_with_the_header() -> None:
    parser = FORMAT.parser(run="r")
    list(parser.feed(b"step,reward\n", 0))
    list(parser.feed(b"7,1\n", 12))
    again = FORMAT.parser(run="r", state=json.loads(json.dumps(parser.state())))
    (place,) = again.feed(b"8,1\n", 16)
    assert isinstance(place.record, StepRecord)
    assert (place.record.attempt, place.record.step, place.record.time) == (1, 8, 120.0)
    again.restarted()
    assert list(again.feed(b"step,reward\n", 0)) == []
    (run, _) = again.feed(b"9,1\n", 12)
    assert isinstance(run.record, RunRecord)
    assert run.record.attempt == 2

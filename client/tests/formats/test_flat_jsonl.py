"""JSON lines with the metrics at the top level."""

from __future__ import annotations

import json
import math

from tocsin.formats import FORMATS, Parsed
from tocsin.wire import EndRecord, RunRecord, StepRecord

FORMAT = FORMATS["flat-jsonl"]


def parse(*rows: object, names: str | None = None) -> list[Parsed]:
    parser = FORMAT.parser(run="r", names=names)
    out: list[Parsed] = []
    offset = 0
    for row in rows:
        line = (row if isinstance(row, str) else json.dumps(row)).encode() + b"\n"
        out += parser.feed(line, offset)
        offset += len(line)
    return [*out, *parser.finish()]


def steps(*rows: object) -> list[StepRecord]:
    return [place.record for place in parse(*rows) if isinstance(place.record, StepRecord)]


def test_ms_swift() -> None:
    places = parse(
        {"loss": 0.5, "grad_norm": math.nan, "global_step/max_steps": "12/100", "elapsed_time": "3m 5s", "memory(GiB)": 61.2},
        {"eval_loss": 0.25, "global_step/max_steps": "12/100"},
        {"last_model_checkpoint": "x", "global_step": 100, "log_history": [{"loss": 0.5}]},
    )
    run, first, evaluation, end = (place.record for place in places)
    assert isinstance(run, RunRecord)
    assert run.labels == {"framework": "ms_swift"}
    assert isinstance(first, StepRecord)
    assert math.isnan(first.metrics.pop("grad_norm"))
    assert (first.step, first.names, first.metrics) == (12, "ms_swift", {"loss": 0.5, "memory(GiB)": 61.2})
    assert isinstance(evaluation, StepRecord)
    assert (evaluation.step, evaluation.attempt, evaluation.metrics) == (12, 1, {"eval_loss": 0.25})
    assert isinstance(end, EndRecord)
    assert steps({"loss": 1.0, "iteration": "7/9"})[0].step == 7


def test_prime_rl_two_writers_out_of_order() -> None:
    rows = [
        {"step": 5, "time": 1790000000.1, "optim/lr": 1e-06},
        {"step": 6, "time": 1790000000.2, "progress/tokens": 512000},
        {"step": 5, "time": 1790000000.3, "mismatch_kl/all/mean": 0.0004},
        {"step": 7, "time": 1790000000.4, "optim/lr": 1e-06},
    ]
    found = steps(*rows)
    assert [(record.attempt, record.step, record.time) for record in found] == [(1, row["step"], row["time"]) for row in rows]
    assert {record.names for record in found} == {"prime_rl"}
    assert found[0].metrics == {"optim/lr": 1e-06}


def test_a_restart_goes_further_back_than_rows_are_late() -> None:
    found = steps(*({"step": step, "loss": 1.0} for step in (20, 30, 22, 21, 22, 31, 5, 6)))
    assert [record.attempt for record in found] == [1, 1, 1, 2, 2, 2, 3, 3]


def test_home_made_lines() -> None:
    (record,) = steps({"step": 3, "time": 2.5, "train/loss": 0.5, "train/reward": "0.25", "note": "text"})
    assert (record.names, record.time, record.metrics) == ("trl", 60.0, {"train/loss": 0.5, "train/reward": 0.25})
    (place,) = [place for place in parse({"step": 1, "x": 1.0}, names="mine") if isinstance(place.record, StepRecord)]
    assert isinstance(place.record, StepRecord)
    assert place.record.names == "mine"


def test_what_is_no_row() -> None:
    places = parse('{"step": 1, "lo', {"loss": 1.0}, [1], {"step": 2, "loss": 1.0})
    assert [place.error for place in places if place.record is None] == [
        "no JSON object",
        "no step: one of global_step/max_steps, iteration, step",
        "no JSON object",
    ]
    assert len(places) == 5

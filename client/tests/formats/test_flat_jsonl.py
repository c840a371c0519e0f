"""JSON lines with the metrics at the top level."""

from __future__ import annotations

import json
import math

import msgspec

from tocsin.formats import FORMATS, Parsed
from tocsin.formats.base import Holding
from tocsin.formats.merge import GRACE_SECONDS
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


PRIME = {
    "trainer": [{"perf/peak_memory": 9.0}, {"optim/lr": 1e-06, "optim/grad_norm": 0.5}, {"mismatch_kl/all/mean": 0.0004},
                {"time/step": 30.0, "time/forward_backward": 20.0, "time/save_ckpt": 1.0}, {"system/disk": 0.5}],
    "orchestrator": [{"progress/tokens": 512, "train/agg/all/a/reward/mean": 0.4, "time/step": 33.0, "time/save_ckpt": 2.0}],
}  # fmt: skip


def prime_rows(*turns: tuple[str, int]) -> list[dict[str, object]]:
    """The rows of these steps, in this order of the writers."""
    rows = [(step, row) for writer, step in turns for row in PRIME[writer]]
    return [{"step": step, "time": 1790000000.0 + at, **row} for at, (step, row) in enumerate(rows)]


def test_prime_rl_the_rows_of_a_step_are_joined_for_each_writer() -> None:
    found = steps(*prime_rows(("orchestrator", 0), ("orchestrator", 1), ("trainer", 0), ("orchestrator", 2), ("trainer", 1)))
    assert [(record.attempt, record.step, "optim/lr" in record.metrics) for record in found] == [
        (1, 0, False),
        (1, 1, False),
        (1, 0, True),
        (1, 2, False),
        (1, 1, True),
    ]
    assert {record.names for record in found} == {"prime_rl"}
    assert found[2].metrics == {key: value for row in PRIME["trainer"] for key, value in row.items()}
    assert found[2].time == 1790000006.0  # of its last row
    assert found[0].metrics["orchestrator/time/step"] == 33.0
    assert found[0].metrics["orchestrator/time/save_ckpt"] == 2.0
    assert "time/step" not in found[0].metrics


def test_prime_rl_interleaved_rows_are_told_apart() -> None:
    first, second = prime_rows(("trainer", 5)), prime_rows(("orchestrator", 6))
    found = steps(first[0], first[1], *second, *first[2:])
    assert [(record.step, len(record.metrics)) for record in found] == [(5, 8), (6, 4)]


def test_prime_rl_a_restart_that_goes_back_less_than_rows_are_late() -> None:
    """Both writers begin again at step 3: one new attempt, whoever writes first."""
    before = prime_rows(("orchestrator", 3), ("trainer", 3), ("orchestrator", 4), ("trainer", 4))
    for turns in ((("orchestrator", 3), ("trainer", 3)), (("trainer", 3), ("orchestrator", 3))):
        found = steps(*before, *prime_rows(*turns), *prime_rows(("orchestrator", 4), ("trainer", 4)))
        assert [(record.attempt, record.step) for record in found] == [
            *[(1, 3), (1, 3), (1, 4), (1, 4)],
            *[(2, 3), (2, 3), (2, 4), (2, 4)],
        ]


def test_prime_rl_a_row_without_a_step_goes_with_the_next_that_has_one() -> None:
    gauge = {"step": None, "time": 1790000000.5, "watcher/policy_version": 7, "producer": "orchestrator"}
    found = steps(gauge, *prime_rows(("orchestrator", 5)), {**gauge, "watcher/policy_version": 8}, gauge)
    assert [(record.step, record.metrics["watcher/policy_version"]) for record in found] == [(5, 7.0)]
    assert found[0].names == "prime_rl"
    parser = FORMAT.parser(run="r")
    list(parser.feed(json.dumps(gauge).encode(), 0))
    again = FORMAT.parser(run="r", state=parser.state())
    list(again.feed(json.dumps({"step": 1, "time": 1790000001.0, "optim/lr": 1.0}).encode(), 0))
    (_, last) = again.finish()
    assert isinstance(last.record, StepRecord)
    assert last.record.metrics["watcher/policy_version"] == 7.0


def test_prime_rl_waits_for_the_rest_of_a_step_no_longer_than_the_grace() -> None:
    parser = FORMAT.parser(run="r")
    assert isinstance(parser, Holding)
    rows = prime_rows(("trainer", 1))
    for offset, row in enumerate(rows[:2]):
        assert list(parser.feed(json.dumps(row).encode(), offset)) == []
    assert list(parser.overdue(100.0)) == []
    assert list(parser.overdue(100.0 + GRACE_SECONDS - 0.1)) == []
    (_, early) = parser.overdue(100.0 + GRACE_SECONDS)
    assert isinstance(early.record, StepRecord)
    assert early.record.metrics == {"perf/peak_memory": 9.0, "optim/lr": 1e-06, "optim/grad_norm": 0.5}
    list(parser.feed(json.dumps(rows[2]).encode(), 2))
    (late,) = parser.finish()
    assert isinstance(late.record, StepRecord)
    assert (late.record.step, late.record.attempt) == (1, 1)


def test_what_waits_is_part_of_the_state_and_nan_stays_nan() -> None:
    parser = FORMAT.parser(run="r")
    list(parser.feed(b'{"step": null, "time": 1790000000.5, "watcher/x": -Infinity}', 0))
    list(parser.feed(b'{"step": 4, "time": 1790000001.5, "optim/lr": NaN, "a": null, "b": {"c": NaN, "d": 1}}', 1))
    list(parser.feed(b'{"step": null, "time": 1790000000.5, "watcher/y": Infinity}', 2))
    state = msgspec.json.decode(msgspec.json.encode(parser.state()))  # as the bookmarks are written
    again = FORMAT.parser(run="r", state=state)
    places = [*again.feed(b'{"step": 5, "time": 1790000002.5, "optim/lr": 1.0}', 3), *again.finish()]
    first, second = (place.record.metrics for place in places if isinstance(place.record, StepRecord))
    assert repr(first) == repr({"watcher/x": -math.inf, "optim/lr": math.nan, "a": None, "b": {"c": math.nan, "d": 1.0}})
    assert second == {"watcher/y": math.inf, "optim/lr": 1.0}
    assert {place.record.attempt for place in places if place.record is not None} == {1}


def test_prime_rl_a_file_begun_anew_loses_nothing_that_was_held() -> None:
    parser = FORMAT.parser(run="r")
    (row,) = prime_rows(("orchestrator", 5))
    list(parser.feed(json.dumps(row).encode(), 900))
    parser.restarted()
    assert parser.state() is None
    places = [*parser.feed(json.dumps(row).encode(), 0), *parser.finish()]
    records = [place.record for place in places if isinstance(place.record, StepRecord)]
    assert [(record.attempt, record.step) for record in records] == [(1, 5), (2, 5)]


def test_whose_names_these_are_may_show_in_a_later_row() -> None:
    evaluation = {"step": 0, "time": 1790000000.0, "my/score": 0.5}
    assert [record.names for record in steps(evaluation, *prime_rows(("trainer", 1)))] == ["canonical", "prime_rl"]


def test_other_rows_are_sent_at_once() -> None:
    parser = FORMAT.parser(run="r")
    assert len(list(parser.feed(b'{"step": 1, "loss": 1.0}', 0))) == 2


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

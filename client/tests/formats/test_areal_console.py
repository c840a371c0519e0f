"""AReaL's console: tables in frames."""

from __future__ import annotations

import math
from functools import partial

import pytest

from tests.kit import log_lines
from tocsin.formats import FORMATS
from tocsin.wire import StepRecord

FORMAT = FORMATS["areal-console"]


def done(step: int) -> str:
    return f"20260101-00:00:00.000 StatsLogger INFO: Epoch 1/10 Step {step}/100 Train step {step}/1000 done."


def table(part: int, parts: int, **values: float) -> list[str]:
    """A table of two pairs per row, in columns from top to bottom, as AReaL lays them out."""
    pairs = [(key.replace("__", "/"), f"{value:.4e}") for key, value in values.items()]
    half = math.ceil(len(pairs) / 2)
    rows = [[cell for pair in pairs[at::half] for cell in pair] for at in range(half)]
    cells = max(len(row) for row in rows)
    lines = [f"20260101-00:00:00.000 StatsLogger INFO: Stats ({part}/{parts}):", "20260101-00:00:00.000 StatsLogger INFO: "]
    lines.append("╒" + "╤".join(["═" * 26] * cells) + "╕")
    for at, row in enumerate(rows):
        if at:
            lines.append("├" + "┼".join(["─" * 26] * cells) + "┤")
        lines.append("│" + "│".join(f" {cell:24} " for cell in [*row, *[""] * (cells - len(row))]) + "│")
    return [*lines, "╘" + "╧".join(["═" * 26] * cells) + "╛"]


parse = partial(log_lines.parse, FORMAT)
steps = partial(log_lines.steps, FORMAT)


def test_a_step() -> None:
    lines = [done(3), *table(1, 1, ppo_actor__n_seqs=64, ppo_actor__update__grad_norm=math.nan, timeperf__rollout=1234567.0)]
    places = parse(*lines)
    (record,) = [place.record for place in places if isinstance(place.record, StepRecord)]
    assert math.isnan(record.metrics.pop("ppo_actor/update/grad_norm"))
    assert (record.step, record.names) == (2, "areal")  # TensorBoard counts from 0
    assert record.metrics == {"ppo_actor/n_seqs": 64.0, "timeperf/rollout": 1.2346e6}
    assert places[-1].next_offset == sum(len(line.encode()) + 1 for line in lines)


def test_all_tables_of_a_step_are_one_record() -> None:
    first, second = steps(done(1), *table(1, 2, a=1.0), *table(2, 2, b=2.0), done(2), *table(1, 1, a=3.0))
    assert (first.step, first.metrics) == (0, {"a": 1.0, "b": 2.0})
    assert (second.step, second.metrics) == (1, {"a": 3.0})


@pytest.mark.parametrize("noise", ["(RolloutWorker pid=1) done.", "2026 INFO: generated 64", "│"])
def test_words_of_others_between_the_lines(noise: str) -> None:
    lines = [done(1), *table(1, 2, a=1.0), *table(2, 2, b=2.0)]
    mixed = [text for line in lines[:-3] for text in (line, noise)] + lines[-3:]
    assert [record.metrics for record in steps(*mixed)] == [{"a": 1.0, "b": 2.0}]


def test_rows_may_have_rays_prefix_and_colours() -> None:
    lines = [f"\x1b[36m(PPOTrainer pid=7)\x1b[0m {line}" for line in (done(5), *table(1, 1, a=1.0, b=2.0))]
    (record,) = steps(*lines)
    assert (record.step, record.metrics) == (4, {"a": 1.0, "b": 2.0})


def test_a_table_that_breaks_off_gives_what_was_read_of_it() -> None:
    cut = table(1, 1, a=1.0, b=2.0, c=3.0, d=4.0)[:-2]
    assert [(record.step, record.metrics) for record in steps(done(1), *cut, done(2), *table(1, 1, a=5.0))] == [
        (0, {"a": 1.0, "c": 3.0}),
        (1, {"a": 5.0}),
    ]
    assert [record.metrics for record in steps(done(1), *cut)] == [{"a": 1.0, "c": 3.0}]


def test_another_table_between_those_of_a_step_is_not_read() -> None:
    rich = ["┏━━━┳━━━┓", "│ gpu/utilisation │ 5.0 │", "└───┴───┘"]
    lines = [done(1), *rich, *table(1, 2, a=1.0), *rich, *table(2, 2, b=2.0), *rich, done(2), *table(1, 1, a=3.0)]
    assert [record.metrics for record in steps(*lines)] == [{"a": 1.0, "b": 2.0}, {"a": 3.0}]


def test_a_table_without_a_step_is_nothing_and_a_restart_an_attempt() -> None:
    assert parse(*table(1, 1, a=1.0), done(1)) == []
    found = steps(*(line for step in (4, 5, 3) for line in (done(step), *table(1, 1, a=1.0))))
    assert [(record.attempt, record.step) for record in found] == [(1, 3), (1, 4), (2, 2)]
    parser = FORMAT.parser(run="r")
    list(parser.feed(done(1).encode(), 0))
    assert parser.state() is None
    parser.restarted()
    assert parser.state() is not None

"""Sampled rollouts of the last records: bounded in bytes, cut where characters end, and the same after a dump."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.applied import Outcome
from collector.rollouts import MAX_ROLLOUTS, RECORD_BYTES, RECORDS, RUN_BYTES, Rollouts, StepRollouts
from collector.run import Run
from tests.collector.records import apply, row, time_of
from tests.collector.signals.playing import steps_of
from tocsin import wire


def sampled(step: int, *responses: str, log: str = "", attempt: int = 1) -> wire.StepRecord:
    return wire.StepRecord(
        run="r",
        step=step,
        time=time_of(step),
        attempt=attempt,
        metrics={"grad_norm": 1.0},
        rollouts=[wire.Rollout(prompt="p", response=response, reward=0.5) for response in responses],
        rollout_log=log,
    )


def responses(found: StepRollouts | None) -> list[str]:
    assert found is not None
    return [rollout.response for rollout in found.rollouts]


def test_a_run_keeps_what_its_last_records_bring() -> None:
    run = Run("r")
    apply(run, sampled(1, "a", "b", log="/logs/1.jsonl"), row(2, grad_norm=1.0), sampled(3, "c"))
    assert list(run.rollouts.steps) == [1, 3]
    first = run.rollouts.at(1)
    assert first is not None
    assert (responses(first), first.log, first.more, first.rollouts[0].score) == (["a", "b"], "/logs/1.jsonl", 0, 0.5)
    assert run.rollouts.at(2) is None
    apply(run, *(sampled(step, str(step)) for step in range(4, 40)))
    assert list(run.rollouts.steps) == list(range(40 - RECORDS, 40))


def test_the_first_row_of_a_step_that_brings_some_counts_and_a_late_one_finds_its_place() -> None:
    run = Run("r")
    apply(run, row(1, grad_norm=1.0), sampled(1, "a"), sampled(1, "b"), sampled(4, "d"), sampled(3, "c"))
    assert [responses(each) for each in run.rollouts.all()] == [["a"], ["c"], ["d"]]
    (applied,) = apply(run, sampled(3, "c"))
    assert applied.outcome is Outcome.DUPLICATE


def test_a_resume_forgets_the_steps_that_come_again() -> None:
    run = Run("r")
    apply(run, *(sampled(step, f"first {step}") for step in range(1, 21)), sampled(11, "second 11", attempt=2))
    assert [responses(each) for each in run.rollouts.all()][-2:] == [["first 10"], ["second 11"]]
    assert run.rollouts.size == sum(map(len, run.rollouts.dump()[1]))


def test_around_a_fault() -> None:
    run = Run("r")
    apply(run, *(sampled(step, str(step)) for step in (1, 2, 3, 4, 5, 6, 8, 9, 10)))
    found = run.rollouts.around(7, 9)
    assert [each.step for each in found.normal] == [3, 4, 5, 6]
    assert found.abnormal is not None
    assert (found.abnormal.step, [each.step for each in found.after]) == (8, [9])
    nothing = run.rollouts.around(11)
    assert (nothing.abnormal, nothing.after, [each.step for each in nothing.normal]) == (None, (), [6, 8, 9, 10])


def test_long_texts_are_cut_in_the_middle_and_short_ones_stay_whole() -> None:
    kept = Rollouts()
    long, short = "begin " + "x" * 60_000 + " end", "two words"
    kept.keep(1, [wire.Rollout(prompt=short, response=long), wire.Rollout(prompt=short, response=short)])
    one, two = kept.all()[0].rollouts
    assert (two.response, two.response_cut, one.prompt, one.prompt_cut) == (short, 0, short, 0)
    assert one.response.startswith("begin xx") and one.response.endswith("xx end")
    assert len(one.response) + one.response_cut == len(long)
    assert one.response_text.count("characters ...]") == 1
    assert f"{one.response_cut:,}" in one.response_text
    assert 0.9 * RECORD_BYTES < kept.size <= RECORD_BYTES


def test_four_records_of_any_size_fit() -> None:
    kept = Rollouts()
    for step in range(20):
        kept.keep(step, [wire.Rollout(prompt="p" * 4000, response="r" * 4000)] * 64)
    assert len(kept.steps) >= 4
    assert kept.size <= RUN_BYTES
    assert (kept.all()[-1].more, len(kept.all()[-1].rollouts)) == (64 - MAX_ROLLOUTS, MAX_ROLLOUTS)


@pytest.mark.parametrize(
    ("reward", "score"),
    [(None, None), (1, 1.0), ("nan", math.nan), ("np.float64(0.5)", 0.5), ("good", None), ("inf", math.inf)],
)
def test_rewards_as_trainers_write_them(reward: float | str | None, score: float | None) -> None:
    kept = Rollouts()
    kept.keep(1, [wire.Rollout(response="x", reward=reward)])
    kept.keep(2, [wire.Rollout(response="x" * 30_000, reward=reward)])
    found = [rollout.score for each in kept.all() for rollout in each.rollouts]
    assert repr(found) == repr([score, score])


def test_what_no_dump_can_carry_is_left_out() -> None:
    kept = Rollouts()
    kept.keep(1, [wire.Rollout(response="x", index=2**70, picked="y" * 5000, reward="z" * 100_000)], "/" * 5000)
    (each,) = kept.all()
    assert (each.log, each.rollouts[0].index, each.rollouts[0].picked, each.rollouts[0].reward) == ("", None, "", None)
    assert kept.size <= RECORD_BYTES


TEXT = st.text(st.sampled_from("aé字😀 \n\x00"), max_size=12).flatmap(lambda text: st.sampled_from([1, 400]).map(text.__mul__))
ROLLOUT = st.builds(
    wire.Rollout,
    prompt=TEXT,
    response=TEXT,
    reward=st.one_of(st.none(), st.floats(), st.sampled_from(["nan", "text"])),
    correct=st.one_of(st.none(), st.booleans()),
    truncated=st.one_of(st.none(), st.booleans()),
    index=st.one_of(st.none(), st.integers()),
    picked=st.sampled_from(["", "worst", "x" * 100]),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.lists(ROLLOUT, min_size=1, max_size=24)), max_size=24))
def test_bounded_in_order_and_the_same_after_a_dump(taken: Sequence[tuple[int, list[wire.Rollout]]]) -> None:
    kept = Rollouts()
    first: dict[int, list[wire.Rollout]] = {}
    for step, rollouts in taken:
        if step not in kept.steps:
            first[step] = rollouts
        kept.keep(step, rollouts, "/log")
        assert kept.size == sum(map(len, kept.dump()[1])) <= RUN_BYTES
        assert len(kept.steps) <= RECORDS
        assert list(kept.steps) == sorted(set(kept.steps))
    again = Rollouts()
    again.load(kept.dump())
    assert repr(again.all()) == repr(kept.all())
    for each in kept.all():
        source = first[each.step]
        assert each.more == max(0, len(source) - MAX_ROLLOUTS)
        for found, given_ in zip(each.rollouts, source, strict=False):
            assert len(found.response) + found.response_cut == len(given_.response)
            assert found.response[: found.response_cut_at] == given_.response[: found.response_cut_at]
            assert given_.response.endswith(found.response[found.response_cut_at :])
            assert len(found.prompt) + found.prompt_cut == len(given_.prompt)


def test_a_recorded_run_restored_in_the_middle_ends_with_the_same_rollouts() -> None:
    whole = half = None
    for whole in steps_of("tiny-lr_blowup-s1"):
        if whole.step == 121:
            half = Run.load(whole.dump())
            break
    assert whole is not None and half is not None
    assert half.rollouts.all() == whole.rollouts.all()
    assert half.rollouts.steps[-1] == 121
